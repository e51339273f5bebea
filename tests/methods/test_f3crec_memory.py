"""What clients remember of a block, and what of it they replay."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.experiment.continual import ContinualSettings
from edgefr.methods.f3crec.memory import (
    ITEMS,
    LABELS,
    ReplayMemory,
    empty,
    holders,
    relabel,
    remember_best,
    remember_errors,
    without_repeats,
)
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings

CLIENTS, ITEMS_IN_ALL, POOL = 5, 12, np.array([0, 1, 2, 4, 5, 7, 8, 10])
TABLE = np.random.default_rng(0).standard_normal((CLIENTS, len(POOL))).astype(np.float32)


def scores(clients: np.ndarray) -> np.ndarray:
    return TABLE[clients]


def remembered(size: int = 3, who: tuple[int, ...] = (0, 2, 3)) -> dict[str, torch.Tensor]:
    state = empty(CLIENTS, size)
    remember_best(state, np.array(who), scores, POOL, 0, size)
    return state


def test_the_best_items_are_remembered_with_their_predictions() -> None:
    state = remembered()
    best = POOL[np.argsort(-TABLE[2])[:3]]
    assert state[ITEMS][2].tolist() == best.tolist()
    expected = 1 / (1 + np.exp(-np.sort(TABLE[2])[::-1][:3]))
    np.testing.assert_allclose(state[LABELS][2].numpy(), expected, rtol=1e-6)
    assert (state[ITEMS][[1, 4]] == -1).all(), "somebody else's memory was touched"


def test_items_that_are_remembered_twice_leave_one_place() -> None:
    state = empty(1, 4)
    state[ITEMS][0] = torch.tensor([3, 5, 3, 8])
    without_repeats(state, np.array([0]))
    assert state[ITEMS][0].tolist() == [3, 5, -1, 8]


def model(state: dict[str, torch.Tensor]) -> tuple[FedMF, dict, dict]:
    program = FedMF(FedMFSettings(dim=4, init_scale=1.0), ITEMS_IN_ALL, 1)
    return program, program.init_shared(1), program.init_private(1, torch.arange(CLIENTS)) | state


def replay(picks: str, state: dict[str, torch.Tensor], clients: np.ndarray, **settings: object):
    program, shared, private = model(state)
    memory = ReplayMemory(ContinualSettings.model_validate(settings), picks, POOL, ITEMS_IN_ALL, seed=0)  # type: ignore[arg-type]
    own = {name: value[torch.from_numpy(clients)] for name, value in private.items()}
    return memory.replay(program, shared, own, clients, 1)


@pytest.mark.parametrize(("reduction", "share"), [("mean", 3), ("sum", 1)])
def test_the_whole_list_is_replayed_with_the_weight_of_eq_5_and_6(reduction: str, share: int) -> None:
    found = replay("all", remembered(), np.arange(CLIENTS), kd_weight=0.6, kd_reduction=reduction)
    assert found.items.counts.tolist() == [3, 0, 3, 3, 0]
    np.testing.assert_allclose(found.weight, 0.6 / share, rtol=1e-6)
    assert sorted(found.items[2].tolist()) == sorted(remembered()[ITEMS][2].tolist())


def test_steady_clients_replay_everything_and_moved_ones_nothing() -> None:
    _, shared, private = model({})
    now = (private["user"] @ shared["item"][torch.from_numpy(POOL)].T).numpy()
    state = empty(CLIENTS, 4)
    remember_best(state, np.arange(CLIENTS), lambda some: now[some], POOL, 0, 4)  # exactly today's taste
    state[ITEMS][1] = torch.from_numpy(POOL[np.argsort(now[1])[:4]].astype(np.int32))  # its worst items
    found = replay("adaptive", state, np.arange(CLIENTS), shift_scale=0.5, list_size=4)
    assert found.items.counts.tolist() == [4, 0, 4, 4, 4]


def test_discrepancy_replays_as_many_as_the_list_is_long() -> None:
    state = empty(CLIENTS, 6)
    remember_best(state, np.array([0, 2]), scores, POOL, 0, 3)
    remember_best(state, np.array([0, 2]), lambda some: -TABLE[some], POOL, 3, 3)
    without_repeats(state, np.array([0, 2]))
    assert replay("discrepancy", state, np.arange(CLIENTS), list_size=3).items.counts.tolist() == [3, 0, 3, 0, 0]


def test_errors_are_the_training_examples_predicted_worst() -> None:
    train = Ragged.from_lists([np.array(row, np.int32) for row in ([0, 4], [1], [5, 7, 8], [], [2])])
    sampler = Sampler(train, POOL, ITEMS_IN_ALL, negatives=2, batch_size=8, seed=0)
    state = empty(CLIENTS, 2)
    who = np.array([0, 2])
    remember_errors(state, who, scores, POOL, sampler, 7, 2)
    for slot, client in enumerate(who):
        drawn = sampler.epoch(who, "errors", 7)
        ends = np.cumsum(drawn.counts)
        mine = slice(ends[slot] - drawn.counts[slot], ends[slot])
        errors = {}
        for item, label in zip(drawn.items[mine], drawn.label[mine], strict=True):
            predicted = 1 / (1 + np.exp(-TABLE[client][np.searchsorted(POOL, item)]))
            errors[int(item)] = (abs(label - predicted), float(label))
        worst = sorted(errors, key=lambda item: -errors[item][0])[:2]
        assert state[ITEMS][client].tolist() == worst
        assert state[LABELS][client].tolist() == [errors[item][1] for item in worst]


def test_labels_made_anew_by_the_same_model_are_those_that_are_remembered() -> None:
    """So whoever has just remembered needs none anew."""
    state = remembered(size=len(POOL))
    before = {name: value.clone() for name, value in state.items()}
    relabel(state, holders(state), scores, POOL)
    assert holders(state).tolist() == [0, 2, 3]
    assert all(torch.equal(value, before[name]) for name, value in state.items())
    relabel(state, np.array([2]), lambda some: -TABLE[some], POOL)
    np.testing.assert_allclose(state[LABELS][2], 1 - before[LABELS][2], atol=1e-6)
    assert torch.equal(state[LABELS][[0, 3]], before[LABELS][[0, 3]])
