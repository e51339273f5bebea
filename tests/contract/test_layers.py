"""Layers that are trained in compiled calls are what the program's own functions come to, vectorised and one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from edgefr.engine.compiled import mlp_phases as layered
from edgefr.engine.executors import debug, inline
from edgefr.engine.work import LocalWork, Updates
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import Batch
from export.program import Tensors
from tests.closeness import after_training, assert_all_same
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, doubled, in_float64, most_steps, program, work
from tests.mostly_slow import mostly_slow

COMPILED = {
    "transfr vector": ("round", "final"),
    "transfr mean": ("round", "final"),
    "transfr sgd plain": ("round", "final"),
    "transfr mean by softmax": ("round", "final"),
    "transfr mean by bpr": ("round", "final"),
    "transfr vector by bpr": ("round", "final"),
}
"""Variants whose layers are compiled, and in which phases; the last two are no variants of the table."""
BY_BPR = {"adapter": [18, 7], "head": [6, 7], "optimiser": "sgd", "lr": 0.05, "loss": "bpr"}
EVERYONE = np.random.default_rng(0).permutation(CLIENTS)


def of(variant: str) -> Any:
    if not variant.endswith("by bpr"):
        return program(variant)
    text = torch.from_numpy(np.random.default_rng(0).standard_normal((ITEMS, 11)).astype(np.float32))
    encoder = "mean" if "mean" in variant else "vector"
    return TransFR(TransFRSettings.model_validate({**BY_BPR, "user_encoder": encoder}), text, 3)


def first(todo: LocalWork, clients: np.ndarray) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Tensors that have learned something: a head whose last layer is zeros hides what is wrong below it."""
    noise = torch.Generator().manual_seed(1)
    private = todo.program.init_private(3, torch.from_numpy(clients))
    moved = {name: value + 0.1 * torch.randn(value.shape, generator=noise) for name, value in private.items()}
    return todo.program.init_shared(3), moved


def left(updates: Updates) -> dict[str, torch.Tensor]:
    return {**updates.dense, **{f"private {name}": value for name, value in updates.private.items()}}


def is_compiled(todo: LocalWork) -> bool:
    shared, private = first(todo, EVERYONE)
    return layered.layers_of(todo.program, todo.phases, {**shared, **private}) is not None


def test_these_phases_are_compiled_and_no_others() -> None:
    found = {v: tuple(w for w in ("round", "final") if is_compiled(work(program(v), w))) for v in VARIANTS}
    known = {name: phases for name, phases in COMPILED.items() if name in VARIANTS}
    assert {name: phases for name, phases in found.items() if phases} == known


@pytest.mark.parametrize("variant", mostly_slow(COMPILED))
def test_compiled_layers_are_those_of_the_loop(variant: str) -> None:
    """Three epochs; clients of many batches, of one, and of none."""
    for when, batch_size in itertools.product(("round", "final"), (12, 1000)):
        todo = work(of(variant), when, batch_size=batch_size)
        assert is_compiled(todo)
        shared, private = first(todo, EVERYONE)
        before = {name: value.clone() for name, value in {**shared, **private}.items()}
        found = left(inline.run(todo, shared, private, EVERYONE))
        assert all(torch.equal(value, {**shared, **private}[name]) for name, value in before.items())
        expected = left(debug.run(in_float64(todo), doubled(shared), doubled(private), EVERYONE))
        limits = after_training(todo.phases, most_steps(todo), shared, private)
        assert found.keys() == expected.keys()
        assert_all_same(found, {name: value.float() for name, value in expected.items()}, **limits)


def test_a_client_does_not_depend_on_who_is_beside_it() -> None:
    """To the bit: its products are its own."""
    for variant in ("transfr vector", "transfr mean by softmax"):
        todo = work(program(variant), "round")
        shared, private = first(todo, EVERYONE)
        together = left(inline.run(todo, shared, private, EVERYONE))
        for slot in (0, 7):
            own = {name: value[slot : slot + 1] for name, value in private.items()}
            alone = left(inline.run(todo, shared, own, EVERYONE[slot : slot + 1]))
            assert all(torch.equal(value[0], together[name][slot]) for name, value in alone.items())


def test_few_epochs_at_once_are_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments and the number of a step go on from one to the next."""
    todo = work(program("transfr vector"), "round")
    once = left(inline.run(todo, *first(todo, EVERYONE), EVERYONE))
    monkeypatch.setattr(layered, "AT_ONCE", 1)
    again = left(inline.run(todo, *first(todo, EVERYONE), EVERYONE))
    assert all(torch.equal(value, again[name]) for name, value in once.items())


class Longer(TransFR):
    """A method of one's own that is TransFR but for its vectors."""

    def vectors(self, tensors: Tensors, batch: Batch) -> torch.Tensor:
        return 2 * super().vectors(tensors, batch)


def test_who_derives_from_it_and_says_nothing_is_not_compiled() -> None:
    text, settings = torch.zeros(ITEMS, 6), TransFRSettings.model_validate({**BY_BPR, "adapter_init": "random"})
    for kind, expected in ((TransFR, True), (Longer, False)):
        assert is_compiled(work(kind(settings, text, 1))) is expected
    local = TransFR(settings, text, 1)
    local.score = lambda *given: torch.zeros(1)  # type: ignore[method-assign]
    assert not is_compiled(work(local))


def test_what_the_compiled_code_has_no_place_for_is_not_given_to_it() -> None:
    todo = work(program("transfr vector"))
    (phase,) = todo.phases
    shared, private = first(todo, EVERYONE)
    values = {**shared, **private}
    assert layered.layers_of(todo.program, [phase], values) is not None
    for change in ({"accumulates": True}, {"trains": ("user",)}, {"trains": (*phase.trains, "head.0.bias")}):
        assert layered.layers_of(todo.program, [replace(phase, **change)], values) is None
    assert layered.layers_of(todo.program, [phase, phase], values) is None
    assert layered.layers_of(todo.program, [phase], doubled(values)) is None
