"""Shards of clients with sessions: what padding, company and order may not change; scoring by windows; processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cloud.fusion import KnowledgeSettings
from cloud.prototypes import KnowledgeBase
from edge.ragged import Ragged
from edge.sessions import SessionSampler, Windows
from edgefr.engine.backends.backend import Backend, InProcess
from edgefr.engine.backends.processes import Workers
from edgefr.engine.executors import inline
from edgefr.engine.executors.sessions import WindowScorer
from edgefr.engine.federation import Federation
from edgefr.engine.transfer import Transfer
from edgefr.engine.work import Updates
from export.batches import One, Window
from privacy.prototypes import Prototypes
from tests.closeness import after_training, assert_same
from tests.contract.sessions import CLIENTS, ITEMS, LENGTH, NEGATIVES, SMALL, private_of, program, sampler, work
from tests.federations import federation as made_federation

CPU, EVERYONE = torch.device("cpu"), np.arange(CLIENTS)
FAR = 3 * SMALL["lr"]
"""How far Adam takes a value in the three epochs of a round."""
SHAPES = ("sasrec", "gru4rec", "tisasrec", "fcucr", "fcucr on gru4rec", "fcucr, trained prototypes")


def columns_of(draws: SessionSampler, current: np.ndarray | None = None) -> tuple:
    """What a sampler is made of, with other sessions if `current` is given."""
    chosen = draws.current if current is None else current
    return draws.items, draws.times, chosen, draws.seen, draws.pool, ITEMS, draws.length, NEGATIVES, 5


def double(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """In float64; `tests.closeness` says why."""
    return {name: value.double() for name, value in tensors.items()}


def whole(updates: Updates, clients: int) -> dict[str, Tensor]:
    """Every tensor by client, [C, ...]."""
    out = {**updates.dense, **{f"private {name}": value for name, value in updates.private.items()}}
    for name, rows in updates.rows.items():
        out[name] = rows.values.new_zeros(clients, ITEMS, rows.values.shape[1])
        out[name][rows.client, rows.rows] = rows.values
    return out if updates.message is None else {**out, "message": updates.message}


# --- padding, company, order -----------------------------------------------------------------------------------------


def test_a_client_without_a_session_moves_nothing_and_nobody() -> None:
    """Nobody invites one; if one is in a shard, neither the server nor others can tell."""
    draws = sampler()
    draws.current[4] = -1
    draws = SessionSampler(*columns_of(draws, draws.current))
    for variant in SHAPES:
        local = program(variant)
        shared, private = double(local.init_shared(3)), double(private_of(local, EVERYONE))
        found = whole(inline.run(work(local, draws), shared, private, EVERYONE), CLIENTS)
        others = np.delete(EVERYONE, 4)
        own = {name: value[torch.from_numpy(others)] for name, value in private.items()}
        alone = whole(inline.run(work(local, draws), shared, own, others), CLIENTS - 1)
        for name, value in found.items():
            assert_same(value[others], alone[name], adam=FAR, name=name)
            assert name.startswith("private") or name == "message" or not value[4].any(), name


# --- scoring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [*SHAPES, "fcucr as released"])
def test_scores_are_each_users_last_prediction_times_items(variant: str) -> None:
    local, pool = program(variant), np.array([3, 8, 1, 30])
    shared, private, view = local.init_shared(3), private_of(local, EVERYONE), sampler().window(EVERYONE)
    scorer = WindowScorer(local, shared, private, view, pool, CPU)
    users, items = np.array([7, 0, 4]), np.array([[1, 2], [39, 0], [5, 5]])
    sampled, full = scorer(users, items), scorer(users, None)
    for row, user in enumerate(users):
        own = {**shared, **{name: value[user] for name, value in private.items()}}
        parts = (torch.from_numpy(part[user]) for part in (view.items, view.real, view.times))
        numbers, real, times = parts
        window = Window(numbers, numbers, real, real, times=times)
        last = local.predicted(own, local.features(own, window), real)[-1]
        assert_same(sampled[row], shared["item"][items[row]] @ last)
        assert_same(full[row], shared["item"][pool] @ last)
        vectors = local.vectors(own, One(numbers, numbers, real, real))
        user_vector = local.user(own, One(numbers, numbers, real, real, history=window), vectors, vectors)
        scores = local.score(own, window, shared["item"][items[row]], user_vector)
        assert_same(scores, sampled[row])


@pytest.mark.parametrize("variant", SHAPES)
def test_scores_depend_on_no_other_user_and_on_no_padding(variant: str) -> None:
    local, pool, items = program(variant), np.arange(ITEMS), np.tile(np.arange(ITEMS), (CLIENTS, 1))
    shared, private, view = local.init_shared(3), private_of(local, EVERYONE), sampler().window(EVERYONE)
    base = WindowScorer(local, shared, private, view, pool, CPU)(EVERYONE, items)
    noise = np.where(view.real > 0, view.items, 17), view.real, np.where(view.real > 0, view.times, 1e6)
    noisy = Windows(noise[0], noise[1], noise[2].astype(np.float32))
    assert_same(WindowScorer(local, shared, private, noisy, pool, CPU)(EVERYONE, items), base)
    for user in EVERYONE:
        own = {name: value.clone() * (1 if name in shared else 3) for name, value in private.items()}
        for name in own:
            own[name][user] = private[name][user]
        alone = WindowScorer(local, shared, own, view, pool, CPU)(np.array([user]), items[:1])
        assert_same(alone[0], base[user])


# --- a backend --------------------------------------------------------------------------------------------------------


def rounds(backend: Backend, variant: str) -> Federation:
    """Two rounds with a knowledge base in shards of four."""
    local = program(variant)
    f = made_federation(local, CLIENTS, {"weights": "size"}, rounds=2, backend=backend)
    if local.settings.reply:
        base = KnowledgeBase(local.settings.reply, KnowledgeSettings(top_k=2))
        f.transfer = Transfer(base, local.publishes, Prototypes(base.width, 2, received_noise=0.1), 3)  # type: ignore[arg-type]
    for number in (1, 2):
        f.round(number, EVERYONE, sampler(), Ragged.empty(CLIENTS))
    return f


def test_worker_processes_give_the_same_bits() -> None:
    backend = Workers(2)
    try:
        for variant in ("fcucr as released", "gru4rec"):
            found, expected = rounds(backend, variant), rounds(InProcess(inline.run), variant)
            for kind in ("shared", "private"):
                mine, theirs = getattr(found, kind), getattr(expected, kind)
                assert mine.keys() == theirs.keys()
                assert all(torch.equal(mine[name], value) for name, value in theirs.items())
            if found.transfer is not None and expected.transfer is not None:
                assert np.array_equal(
                    found.transfer.state()["base"]["vectors"], expected.transfer.base.state()["vectors"]
                )
                assert found.private["prototype"].any()
            assert (found.shared["item"] != program(variant).init_shared(3)["item"]).any()
    finally:
        backend.close()


def test_a_round_is_the_mean_of_its_clients_weighed_by_targets() -> None:
    """A client's size is how many targets its window has: at most `length`, however long the session."""
    f = rounds(InProcess(inline.run), "sasrec")
    local = program("sasrec")
    shared = local.init_shared(3)
    for number in (1, 2):
        todo = replace(work(local), round=number)
        updates = whole(inline.run(todo, shared, {}, EVERYONE), CLIENTS)
        weight = torch.tensor([min(n - 1, LENGTH) for n in (5, 2, 9, 3, 4, 2, 7, 12, 3)]).double()
        weight = weight / weight.sum()
        shared = {n: (v + torch.tensordot(weight, updates[n].double(), 1)).float() for n, v in shared.items()}
    for name, value in shared.items():
        assert_same(f.shared[name], value, **after_training(local.phases, 6, shared), name=name)


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor keeps tiny numbers")
@pytest.mark.parametrize("goes_wrong", [False, True])
def test_tiny_numbers_are_zeros_while_a_shard_is_trained_and_no_longer(goes_wrong: bool) -> None:
    local, seen = program("sasrec"), list[float]()
    learned = local.learned

    def watched(*given: object) -> tuple[Tensor, dict[str, Tensor]]:
        seen.append(float(torch.tensor(1e-30) * 1e-10))  # a product below what processors are fast on
        if goes_wrong:
            raise ZeroDivisionError
        return learned(*given)  # type: ignore[arg-type]

    local.learned = watched  # type: ignore[method-assign,assignment]
    with suppress(ZeroDivisionError):
        inline.run(work(local), local.init_shared(3), private_of(local, EVERYONE), EVERYONE)
    assert set(seen) == {0.0}
    assert float(torch.tensor(1e-30) * 1e-10) > 0
