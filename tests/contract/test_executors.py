"""What is simulated in bulk is what one client would do: every method, vectorised against the plain loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edge.replay import Replay
from edgefr.engine.executors import debug, inline
from edgefr.engine.work import Clients, LocalWork, Updates
from edgefr.experiment.continual import ContinualSettings
from edgefr.methods.f3crec.memory import ReplayMemory
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.program import LocalProgram, Phase, Tensors
from tests.closeness import after_training, assert_all_same, assert_same
from tests.contract.programs import CLIENTS, ITEMS, VARIANTS, doubled, in_float64, most_steps, program, work
from tests.mostly_slow import mostly_slow

REPLAYED = [
    v
    for v in VARIANTS
    if "mean" not in v and not any(p.which.pairs or p.pulls or p.which.part == "whole" for p in program(v).phases)
]
"""Variants that take part in replays: a replayed item has no negatives or context, and no row moves unread."""


def dense(updates: Updates, clients: int) -> dict[str, torch.Tensor]:
    """Every update as a dense tensor per client."""
    out = dict(updates.dense)
    for name, rows in updates.rows.items():
        table = rows.values.new_zeros(clients, ITEMS, rows.values.shape[1])
        table[rows.client, rows.rows] = rows.values
        out[name] = table
    return out | {f"private {name}": value for name, value in updates.private.items()}


def whole(todo: LocalWork, updates: Updates, clients: np.ndarray) -> dict[str, torch.Tensor]:
    """The clients' own tables after the work, [clients, ITEMS, width]."""
    out = {}
    for name, rows in updates.tables.items():
        pairs = np.repeat(clients, ITEMS), np.tile(np.arange(ITEMS), len(clients))
        out[f"own {name}"] = todo.tables[name].rows(*pairs).view(len(clients), ITEMS, -1)
        out[f"own {name}"][rows.client, rows.rows] = rows.values
    return out


def run(executor, variant: str, when: str, clients: np.ndarray, **options) -> dict[str, torch.Tensor]:
    """The work of these clients, in float64."""
    todo = in_float64(work(program(variant), when, **options))
    updates = executor(todo, *first(todo.program, clients), clients)
    return dense(updates, len(clients)) | whole(todo, updates, clients)


def first(local: LocalProgram, clients: np.ndarray) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Shared tensors, and the private ones of these clients, in float64."""
    return doubled(local.init_shared(3)), doubled(local.init_private(3, torch.from_numpy(clients)))


def bounds(variant: str, when: str = "round", batch_size: int = 16) -> dict[str, Any]:
    """What `assert_same` has to know: the loop adds up the weights of an example's appearances itself, in float32."""
    todo = work(program(variant), when, batch_size=batch_size)
    begun = first(todo.program, np.arange(CLIENTS))
    return {**after_training(todo.phases, most_steps(todo), *begun), "inputs": torch.float32}


def test_sgd_of_the_loop_is_that_of_torch_optim() -> None:
    """The loop itself against torch.optim on a whole dense model: one client, all epochs."""
    local = program("fedmf", local_epochs=2)
    todo = replace(work(local, batch_size=1000))
    who = np.array([0])
    shared, private = first(local, who)
    found = dense(debug.run(todo, shared, private, who), 1)
    item, user = shared["item"].clone().requires_grad_(), private["user"][0].clone().requires_grad_()
    phase = local.phases[0]
    optimiser = torch.optim.SGD(
        [{"params": [item], "lr": phase.lr["item"]}, {"params": [user], "lr": phase.lr["user"]}]
    )
    for epoch in range(2):
        examples = todo.sampler.epoch(who, phase.name, todo.round, epoch)
        scores = (item[torch.from_numpy(examples.items)] * user).sum(1)
        label = torch.from_numpy(examples.label).double()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert_same(found["item"][0], item - shared["item"], inputs=torch.float32)
    assert_same(found["private user"][0], user, inputs=torch.float32)


@dataclass(frozen=True)
class Remembered:
    """A memory stub: two clients of three replay the items whose labels in `memory.labels` [C, items] are above 0."""

    weight: float = 0.01

    def replay(
        self, program: LocalProgram, shared: Tensors, private: Tensors, clients: Clients, number: int
    ) -> Replay | None:
        label = private["memory.labels"].numpy() * (clients % 3 > 0)[:, None]
        slot, items = np.nonzero(label)
        weight = (self.weight * (1 + items % 4)).astype(np.float32)
        return Replay(Ragged.from_sorted(slot, items.astype(np.int32), len(clients)), label[slot, items], weight)

    def draws(self, private: Tensors, clients: Clients, number: int) -> None:
        return None


def remembering(executor, variant: str, clients: np.ndarray, batch_size: int, **options) -> dict[str, torch.Tensor]:
    """One round of clients that remember a quarter of the catalogue with soft labels."""
    local = program(variant)
    labels = np.random.default_rng(8).random((CLIENTS, ITEMS), dtype=np.float32)
    labels = np.where(np.random.default_rng(9).random((CLIENTS, ITEMS)) < 0.25, labels, np.float32(0))
    shared, private = first(local, clients)
    private["memory.labels"] = torch.from_numpy(labels[clients])
    todo = in_float64(replace(work(local, batch_size=batch_size), memory=Remembered(**options)))
    updates = executor(todo, shared, private, clients)
    return dense(updates, len(clients)) | whole(todo, updates, clients)


@pytest.mark.parametrize("variant", mostly_slow(REPLAYED))
def test_replayed_examples_join_every_batch(variant: str) -> None:
    for batch_size in (7, 1000):
        clients = np.random.default_rng(0).permutation(CLIENTS)
        fast = remembering(inline.run, variant, clients, batch_size)
        slow = remembering(debug.run, variant, clients, batch_size)
        without = run(inline.run, variant, "round", clients, batch_size=batch_size)
        assert_all_same(fast, slow, **bounds(variant, batch_size=batch_size))
        assert fast.keys() == without.keys()
        idle = (clients % 3 == 0) | (clients == CLIENTS // 2)  # no memory, or no batch that a replay could join
        for name in fast:
            change = (fast[name] - without[name]).flatten(1).abs().amax(1).numpy()
            assert (change[idle] < 1e-5).all()
        changed = [(fast[n] - without[n]).flatten(1).abs().amax(1).numpy() for n in fast]
        assert (np.max(changed, axis=0)[~idle] > 1e-5).all()


def drawing(executor, variant: str, clients: np.ndarray, batch_size: int, memory: Any) -> dict[str, torch.Tensor]:
    """One round of clients that draw what they replay anew in every step; every third has nothing to."""
    local = program(variant)
    lists = np.argsort(np.random.default_rng(8).random((CLIENTS, ITEMS)), axis=1)[:, :6].astype(np.int32)
    lists[::3] = -1
    shared, private = first(local, clients)
    private["memory.items"] = torch.from_numpy(lists[clients])
    private["memory.labels"] = torch.from_numpy(np.random.default_rng(9).random((CLIENTS, 6), np.float32)[clients])
    todo = in_float64(replace(work(local, batch_size=batch_size), memory=memory))
    return dense(executor(todo, shared, private, clients), len(clients))


def has_one_table(variant: str) -> bool:
    """Say whether ranks come from one item table; rows of a client's own are in no block."""
    specs = program(variant).specs.values()
    return any(spec.kind == "rows" for spec in specs) and all(
        spec.place == "shared" for spec in specs if spec.kind == "rows"
    )


@pytest.mark.parametrize("variant", mostly_slow(filter(has_one_table, REPLAYED)))
def test_a_replay_can_be_drawn_for_every_step(variant: str) -> None:
    """By the ranks of the tensors that a client then has, of which only the plain loop has whole tables."""
    for batch_size in (7, 1000):
        settings = ContinualSettings(list_size=6, kd_weight=0.5, shift_scale=0.01)
        steps, once = (ReplayMemory(settings, "adaptive", np.arange(ITEMS), ITEMS, 3, each) for each in (True, False))
        clients = np.random.default_rng(0).permutation(CLIENTS)
        fast, slow = (drawing(executor, variant, clients, batch_size, steps) for executor in (inline.run, debug.run))
        assert_all_same(fast, slow, **bounds(variant, batch_size=batch_size))
        other = drawing(inline.run, variant, clients, batch_size, once)
        changed = np.max([(fast[n] - other[n]).flatten(1).abs().amax(1).numpy() for n in fast], axis=0)
        assert (changed[clients % 3 == 0] < 1e-5).all()
        assert (changed > 1e-5).any(), "one draw for the round, from other keys, is another draw"


def test_a_replay_of_no_weight_changes_nothing() -> None:
    clients = np.arange(CLIENTS)
    found = remembering(inline.run, "fedmf", clients, 16, weight=0.0)
    expected = run(inline.run, "fedmf", "round", clients, batch_size=16)
    assert_all_same(found, expected, inputs=torch.float32)


class TwoPhases(FedMF):
    """User first, then the table; both phases on the same draws unless told otherwise."""

    def __init__(self, draws: str | None):
        super().__init__(FedMFSettings(dim=8, lr=0.5, item_lr=20.0, init_scale=0.1), ITEMS, 2)
        (both,) = self.phases
        first = replace(both, name="user", trains=("user",), epochs=1, draws=draws)
        self.phases: tuple[Phase, ...] = (first, replace(both, name="item", trains=("item",), draws=draws))


def purposes(todo: LocalWork, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the sampler is asked for from now on: (purpose, epoch)."""
    asked: list[tuple[str, int]] = []
    draw = todo.sampler.epoch

    def epoch(clients, purpose, *path):
        asked.append((purpose, path[-1]))
        return draw(clients, purpose, *path)

    monkeypatch.setattr(todo.sampler, "epoch", epoch)
    return asked


@pytest.mark.parametrize("draws", ["both", None])
def test_phases_may_share_their_draws(draws: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    local, clients = TwoPhases(draws), np.arange(CLIENTS)
    shared, private = first(local, clients)
    todo = work(local, batch_size=16)
    slow = dense(debug.run(todo, shared, private, clients), CLIENTS)
    asked = purposes(todo, monkeypatch)
    fast = dense(inline.run(todo, shared, private, clients), CLIENTS)
    assert_all_same(fast, slow, inputs=torch.float32)
    expected = [("both", 0), ("both", 1)] if draws else [("item", 0), ("item", 1), ("user", 0)]
    assert sorted(asked) == expected
