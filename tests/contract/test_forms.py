"""What is compiled for a form is what the program's own functions come to in float64, vectorised and one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.aggregate import ReleaseTerms, ShardAggregate, release, summed
from edgefr.engine.compiled import dispatch as formed
from edgefr.engine.executors import debug, inline
from edgefr.engine.work import LocalWork
from edgefr.experiment.continual import ContinualSettings
from edgefr.methods.f3crec.memory import ReplayMemory
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.batches import Batch
from export.program import Tensors
from tests.closeness import assert_same
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, doubled, in_float64, interactions, program, work
from tests.contract.test_executors import Remembered

TERMS = ReleaseTerms(clip=None, norm="l2", by_size=False, count_everyone=False)
FORMED = [
    "fedmf",
    "fedncf",
    "pfedrec",
    "pfedrec in turns",
    "pfedrec of probabilities",
    "fedrecon",
    "fcf",
    "fedcar, neither",
    "fedmf by bpr",
    "fedncf by softmax",
    "pfedrec in turns by softmax",
    "fedrecon by softmax",
]
"""Variants that are compiled."""
EVERYONE = np.random.default_rng(0).permutation(CLIENTS)


def first(todo: LocalWork, clients: np.ndarray) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return todo.program.init_shared(3), todo.program.init_private(3, torch.from_numpy(clients))


def same(found: ShardAggregate, expected: ShardAggregate, size: float) -> None:
    """Two releases of a shard are one but for rounding; `size`: of the largest value of a row."""
    assert (found.clients, found.dropped, found.clipped) == (expected.clients, expected.dropped, expected.clipped)
    assert found.weight == expected.weight
    np.testing.assert_array_equal(found.kept, expected.kept)
    assert_same(*(np.float32(one.norms) for one in (found, expected)), size=size, name="norms")
    assert found.dense.keys() == expected.dense.keys()
    for name, value in expected.dense.items():
        assert_same(found.dense[name].float(), value.float(), size=size, name=name)
    assert found.rows.keys() == expected.rows.keys()
    for name, (rows, sums) in expected.rows.items():
        there = torch.isin(rows, found.rows[name][0])  # those of draws that no row learns from are left out
        assert torch.equal(found.rows[name][0], rows[there]), "other rows were touched"
        assert not sums[~there].any()
        assert_same(found.rows[name][1].float(), sums[there].float(), size=size, name=name)
    assert found.private.keys() == expected.private.keys()
    for name, value in expected.private.items():
        kept = torch.from_numpy(expected.kept)
        assert_same(found.private[name][kept], value[kept].float(), size=size, name=name)


def compare(
    todo: LocalWork, terms: ReleaseTerms = TERMS, executor: Any = inline.run, clients: np.ndarray = EVERYONE
) -> ShardAggregate:
    shared, private = first(todo, clients)
    assert is_compiled(todo, terms)
    before = {name: value.clone() for name, value in {**shared, **private}.items()}
    found = formed.released(todo, terms, shared, private, clients)
    assert all(torch.equal(value, {**shared, **private}[name]) for name, value in before.items())
    updates = executor(in_float64(todo), doubled(shared), doubled(private), clients)
    expected = release(updates, todo.sampler.train.counts[clients], terms)
    same(found, expected, size=max(float(value.abs().max()) for value in (*shared.values(), *private.values())))
    return found


def is_compiled(todo: LocalWork, terms: ReleaseTerms = TERMS) -> bool:
    return formed.form_of(todo, terms, *first(todo, EVERYONE), EVERYONE) is not None


def test_these_variants_are_compiled_and_no_others() -> None:
    assert [name for name in VARIANTS if is_compiled(work(program(name)))] == FORMED


@pytest.mark.parametrize("variant", FORMED)
def test_a_compiled_shard_is_that_of_the_loop_and_of_the_vectorised_executor(variant: str) -> None:
    """Three epochs; clients of many batches, of one, and of none."""
    local = program(variant)
    compare(work(local), executor=debug.run)
    for batch_size in (12, 16, 1000):
        compare(work(local, batch_size=batch_size))


@pytest.mark.parametrize(
    "terms",
    [
        replace(TERMS, clip=6.0, by_size=True),
        replace(TERMS, clip=30.0, norm="l1", count_everyone=True),
        replace(TERMS, largest=6.0),
        replace(TERMS, clip=8.0, largest=9.0, by_size=True, count_everyone=True),
    ],
)
def test_it_leaves_as_every_release_does(terms: ReleaseTerms) -> None:
    """Clipped in either norm, weighted, without the clients that went too far."""
    found = compare(work(program("fedmf")), terms)
    assert found.clipped or found.dropped


@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize("variant", ["fedmf", "fcf"])
def test_a_release_on_a_grid_is_whole_steps_of_what_was_clipped(variant: str, share: float) -> None:
    """A value that rounding left beside a step of the grid may fall to the other: hence so many steps apart at most."""
    todo, step = work(program(variant)), 2.0**-10
    terms = replace(TERMS, clip=6.0, step=step, share=share)
    found = formed.released(todo, terms, *first(todo, EVERYONE), EVERYONE)
    expected = release(inline.run(todo, *first(todo, EVERYONE), EVERYONE), todo.sampler.train.counts[EVERYONE], terms)
    whole, other = (one.rows["item"][1] / step for one in (found, expected))
    assert torch.equal(whole, whole.round())
    apart = (whole - other).abs()
    assert apart.max() <= 2
    assert (apart > 0).double().mean() < 0.01


@pytest.mark.parametrize("variant", ["fedmf", "fedncf", "pfedrec in turns", "pfedrec of probabilities"])
def test_what_is_replayed_joins_every_batch(variant: str) -> None:
    """Soft labels and weights of its own, of items that a client draws as well and of others."""
    for batch_size in (7, 1000):
        todo = replace(work(program(variant), batch_size=batch_size), memory=Remembered())
        labels = np.random.default_rng(8).random((CLIENTS, ITEMS), dtype=np.float32)
        labels[np.random.default_rng(9).random((CLIENTS, ITEMS)) > 0.25] = 0
        shared, private = first(todo, EVERYONE)
        private["memory.labels"] = torch.from_numpy(labels[EVERYONE])
        assert formed.form_of(todo, TERMS, shared, private, EVERYONE) is not None
        found = formed.released(todo, TERMS, shared, private, EVERYONE)
        updates = inline.run(in_float64(todo), doubled(shared), doubled(private), EVERYONE)
        largest = max(float(value.abs().max()) for value in (*shared.values(), *private.values()))
        same(found, release(updates, todo.sampler.train.counts[EVERYONE], TERMS), size=largest)


@pytest.mark.parametrize("variant", ["fedmf", "fcf"])
def test_an_item_that_a_client_has_twice_is_one_row(variant: str) -> None:
    """Of examples it is two; who takes all that it had at once has it once (`edge.steps`)."""
    once = interactions()
    twice = Ragged.from_lists([[*row, *row[:2], *row[:1]] for row in map(once.__getitem__, range(CLIENTS))])
    found = compare(work(program(variant), train=twice), replace(TERMS, by_size=True))
    assert found.weight == twice.counts.sum()
    if variant == "fcf":
        plain = compare(work(program(variant), train=once))
        np.testing.assert_array_equal(found.norms, plain.norms)


def test_numbers_of_clients_and_what_they_avoid_are_the_samplers() -> None:
    todo = work(program("fedmf"), batch_size=16)
    avoid = Ragged.from_lists([[(n + x) % ITEMS for x in range(5)] for n in range(CLIENTS)])
    ids = np.arange(CLIENTS) * 1_000_003 + 2**40
    made = Sampler(todo.sampler.train, np.arange(7, ITEMS), ITEMS, 3, 16, seed=5, ids=ids, avoid=avoid)
    memory = Remembered()
    compare(replace(todo, sampler=made))
    labels = torch.ones(CLIENTS, ITEMS)  # an item may be avoided, and replayed
    todo = replace(todo, sampler=made, memory=memory)
    shared, private = first(todo, EVERYONE)
    private["memory.labels"] = labels
    found = formed.released(todo, TERMS, shared, private, EVERYONE)
    expected = inline.run(todo, shared, private, EVERYONE)
    same(found, release(expected, todo.sampler.train.counts[EVERYONE], TERMS), size=1.0)


@pytest.mark.parametrize("which", ["item", "user"])
def test_who_diverges_is_dropped(which: str) -> None:
    """Values that are no numbers, or beyond all bounds, are in no sum."""
    local = FedMF(FedMFSettings(dim=8, lr=0.5, item_lr=20.0, init_scale=0.1), ITEMS, 2)
    todo = work(local, batch_size=1000)
    shared, private = first(todo, EVERYONE)
    spoilt = private["user"].clone()
    spoilt[3], spoilt[5], spoilt[7] = float("nan"), float("inf"), 1e30
    whole = formed.released(todo, TERMS, shared, {"user": spoilt}, EVERYONE)
    others = np.setdiff1d(np.arange(CLIENTS), [3, 5, 7])
    assert whole.kept.tolist() == [n for n in others.tolist()]
    alone = formed.released(todo, TERMS, shared, {"user": private["user"][others]}, EVERYONE[others])
    assert torch.equal(whole.rows["item"][1], alone.rows["item"][1])
    if which == "item":  # everybody reads it
        broken = {"item": shared["item"].clone()}
        broken["item"][int(todo.sampler.train[EVERYONE[0]][0])] = float("nan")
        assert 0 not in formed.released(todo, TERMS, broken, private, EVERYONE).kept


def test_of_those_who_solve_who_comes_to_no_number_is_dropped() -> None:
    todo = work(program("fcf"))
    shared, private = first(todo, EVERYONE)
    item = int(todo.sampler.train[EVERYONE[0]][0])
    shared["item"][item] = float("nan")
    found = formed.released(todo, TERMS, shared, private, EVERYONE)
    broken = [item in todo.sampler.train[n] for n in EVERYONE]
    assert found.kept.tolist() == np.flatnonzero(~np.array(broken)).tolist()
    assert all(bool(sums.isfinite().all()) for sums in (found.rows["item"][1], found.dense["gram.item"]))


class Judged(FedMF):
    """A method of one's own that is FedMF but for what it learns from."""

    def loss(self, tensors: Tensors, batch: Batch, phase: Any) -> torch.Tensor:
        return 2 * super().loss(tensors, batch, phase)


def test_who_computes_something_else_and_declares_nothing_is_not_compiled() -> None:
    made = FedMF(FedMFSettings(dim=8), ITEMS, 1)
    assert is_compiled(work(made))
    assert not is_compiled(work(Judged(FedMFSettings(dim=8), ITEMS, 1)))
    made.score = lambda *given: torch.zeros(1)  # type: ignore[method-assign]
    assert not is_compiled(work(made))


@pytest.mark.parametrize("change", [{"loss": "bce-scaled"}, {"loss": "softmax", "negative_weight": 5.0}])
def test_an_objective_that_the_compiled_code_does_not_compute_is_not_given_to_it(change: dict[str, Any]) -> None:
    assert is_compiled(work(FedMF(FedMFSettings(dim=8, loss="softmax"), ITEMS, 1)))
    assert not is_compiled(work(FedMF(FedMFSettings(dim=8, **change), ITEMS, 1)))


def test_what_the_compiled_code_has_no_place_for_is_not_given_to_it() -> None:
    todo = work(program("fedmf"))
    assert is_compiled(todo)
    for other in ({"each": True}, {"keeps": True}):
        assert not is_compiled(todo, replace(TERMS, **other))
    (phase,) = todo.phases
    for change in ({"optimiser": "adam"}, {"epochs": 0}, {"when": "final"}, {"uses": (*phase.uses, "other")}):
        assert not is_compiled(replace(todo, phases=[replace(phase, **change)]))
    solves = work(program("fcf"))
    assert is_compiled(solves)
    for change in ({"epochs": 2}, {"lr": dict.fromkeys(("item", "gram.item"), 0.5)}, {"accumulates": True}):
        assert not is_compiled(replace(solves, phases=[solves.phases[0], replace(solves.phases[1], **change)]))
    settings = ContinualSettings(list_size=6, kd_weight=0.5, shift_scale=0.01)
    steps = ReplayMemory(settings, "adaptive", np.arange(ITEMS), ITEMS, 3, True)
    own = {"memory.items": torch.arange(6).repeat(CLIENTS, 1).int(), "memory.labels": torch.zeros(CLIENTS, 6)}
    shared, private = first(todo, EVERYONE)
    assert formed.form_of(replace(todo, memory=steps), TERMS, shared, private | own, EVERYONE) is None
    assert formed.form_of(todo, TERMS, shared, {"user": private["user"].double()}, EVERYONE) is None


def test_a_shard_does_not_depend_on_what_came_before_it() -> None:
    todo = work(program("fedncf"), batch_size=7)
    once, again = (formed.released(todo, TERMS, *first(todo, EVERYONE), EVERYONE) for _ in range(2))
    assert torch.equal(once.rows["item"][1], again.rows["item"][1])


@pytest.mark.parametrize("variant", ["fedmf", "pfedrec in turns", "fedrecon"])
def test_shards_in_one_call_are_added_up_as_they_are_by_themselves(variant: str) -> None:
    todo = work(program(variant), batch_size=16)
    shared, private = first(todo, EVERYONE)
    cuts = np.split(np.arange(CLIENTS), [3, 4, 9])
    shards = [EVERYONE[cut] for cut in cuts]
    own = [{name: value[cut] for name, value in private.items()} for cut in cuts]
    alone = [formed.released(todo, TERMS, shared, *one) for one in zip(own, shards, strict=True)]
    expected, found = summed(alone, [len(cut) for cut in cuts]), formed.together(todo, TERMS, shared, private, shards)
    assert found is not None
    assert (found.shards, found.weight, found.clients) == (len(cuts), expected.weight, expected.clients)
    np.testing.assert_array_equal(found.norms, expected.norms)
    for one, other in zip(found.rows["item"], expected.rows["item"], strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(value, expected.private[name]) for name, value in found.private.items())


DIGEST = """
import hashlib
from tests.contract.test_forms import EVERYONE, FORMED, TERMS, first, formed, program, work
found = hashlib.sha256()
for variant in FORMED:
    todo = work(program(variant), batch_size=16)
    out = formed.released(todo, TERMS, *first(todo, EVERYONE), EVERYONE)
    for value in (out.rows["item"][1], *(out.private[name] for name in sorted(out.private))):
        found.update(value.numpy().tobytes())
    found.update(out.norms.tobytes())
print(found.hexdigest())
"""


@pytest.mark.slow
def test_every_processor_computes_the_same_bits() -> None:
    """Code for the oldest one is made on this one: no lane, no fused operation and no function of its own."""
    command = [sys.executable, "-c", DIGEST]
    runs = [
        subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=True)
        for more in ({}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""})
    ]
    assert len({run.stdout for run in runs}) == 1
    assert len(runs[0].stdout) == 65
