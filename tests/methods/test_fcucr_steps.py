"""A clipped gradient and a softmax over the whole catalogue are torch's own, for each client of a shard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefr.engine.executors import debug, inline
from edgefr.engine.work import Executor
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fcucr.program import FCUCR
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from privacy.errors import InputError
from tests.contract import programs
from tests.contract.sessions import CLIENTS, private_of, program, work
from tests.contract.test_sessions import tables

EVERYONE = np.arange(CLIENTS)
CLIP = 0.05


def literal(local: FCUCR, client: int, clip: float | None) -> tuple[dict[str, Tensor], list[float]]:
    """What a client's tensors become by torch's own Adam on whole tables, and the norms it met."""
    todo = work(local)
    private = {name: value[client] for name, value in private_of(local, EVERYONE).items()}
    values = {name: value.clone() for name, value in {**local.init_shared(3), **private}.items()}
    phase = local.phases[0]
    leaves = {name: values[name].requires_grad_() for name in phase.trains}
    settings: dict[str, Any] = {"lr": phase.lr["item"], "betas": (0.9, phase.beta_2), "eps": 1e-8}
    optimiser, norms = torch.optim.Adam(leaves.values(), **settings), []
    alone = np.array([client])
    draw = todo.sampler.draws(alone, {phase.purpose: phase.epochs}, todo.round, False)[phase.purpose]  # type: ignore[union-attr]
    touched = torch.from_numpy(draw.touched)
    for epoch in range(phase.epochs):
        window = debug._alone(debug.lesson(todo, draw, epoch, alone), touched)
        optimiser.zero_grad()
        local.loss({**values, **leaves}, window, phase).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(leaves.values(), clip or torch.inf)))
        optimiser.step()
    return {name: value.detach() for name, value in leaves.items()}, norms


@pytest.mark.parametrize("executor", [inline.run, debug.run])
def test_gradients_are_clipped_client_by_client_as_torch_does(executor: Executor) -> None:
    local = program("without distillation", prototypes="none", gradient_clip=CLIP)
    shared = local.init_shared(3)
    found = tables(executor(work(local), shared, private_of(local, EVERYONE), EVERYONE), CLIENTS)
    for client in EVERYONE:
        expected, norms = literal(local, client, CLIP)
        assert max(norms) > CLIP  # else nothing was clipped
        for name, value in expected.items():
            mine = found[name][client] + shared[name] if name in shared else found[f"private {name}"][client]
            torch.testing.assert_close(mine, value, rtol=0, atol=2e-6)


def test_the_full_softmax_is_the_cross_entropy_over_the_catalogue() -> None:
    local = program("sasrec, full softmax", item_bias=False)
    todo, shared = work(local), local.init_shared(3)
    for client in EVERYONE:
        alone = np.array([client])
        draw = debug.draws_of(todo, alone)["round"]
        window = debug._alone(debug.lesson(todo, draw, 0, alone), torch.from_numpy(draw.touched))
        scores = local.features(shared, window) @ shared["item"].T
        each = torch.nn.functional.cross_entropy(scores, window.target, reduction="none")
        expected = (each * window.label).sum() / window.label.sum()
        torch.testing.assert_close(local.loss(shared, window, local.phases[0]), expected)


def test_what_has_no_place_for_them_is_refused() -> None:
    with pytest.raises(InputError, match=r"negatives: belongs to losses of sampled negatives, and model.loss is full"):
        load_experiment(overrides=["method=sasrec", "model.loss=full-softmax", "negatives=7"])
    with pytest.raises(InputError, match="full-softmax is for one vector per position"):
        load_experiment(overrides=["method=miasrec", "model.loss=full-softmax"])
    local = FedMF(FedMFSettings(dim=4), programs.ITEMS, 1)
    local.phases = tuple(replace(phase, clip=1.0) for phase in local.phases)
    todo, clients = programs.work(local), np.arange(3)
    for executor in (inline.run, debug.run):
        with pytest.raises(InputError, match="cuts gradients, which is for programs that learn from sessions"):
            executor(todo, local.init_shared(3), local.init_private(3, torch.from_numpy(clients)), clients)
