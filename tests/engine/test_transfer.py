"""Prototypes between clients, in both orders, against a plain loop over dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cloud.fusion import KnowledgeSettings
from cloud.prototypes import KnowledgeBase
from edge.ragged import Ragged
from edgefr.engine.executors.sessions import published
from edgefr.engine.federation import Federation
from edgefr.engine.transfer import REPLY, Transfer
from edgefr.engine.work import LocalWork
from privacy import keyed
from privacy.prototypes import Prototypes
from tests.closeness import assert_all_same, assert_same
from tests.contract.sessions import CLIENTS, SMALL, program, sampler
from tests.federations import federation as made_federation

CPU, EVERYONE, WIDTH = torch.device("cpu"), np.arange(CLIENTS), 6


class Loop:
    """The server by dicts: the newest prototype of every (client, session), and the mean of the nearest of others."""

    def __init__(self, top_k: int, window: int | None = None):
        self.top_k, self.window = top_k, window
        self.held: dict[tuple[int, int], tuple[int, np.ndarray]] = {}

    def exchange(self, number: int, sent: dict[tuple[int, int], np.ndarray]) -> dict[int, np.ndarray]:
        self.held |= {key: (number, vector) for key, vector in sent.items()}
        if self.window is not None:
            self.held = {key: kept for key, kept in self.held.items() if kept[0] > number - self.window}
        return {client: self.answer(client, vector) for (client, _), vector in sent.items()}

    def answer(self, client: int, query: np.ndarray) -> np.ndarray:
        others = [vector for (owner, _), (_, vector) in sorted(self.held.items()) if owner != client]
        cosine = [vector @ query / np.linalg.norm(vector) / np.linalg.norm(query) for vector in others]
        nearest = np.argsort(-np.array(cosine), kind="stable")[: self.top_k]
        return np.mean([others[n] for n in nearest], axis=0) if others else np.zeros(len(query))


def transfer(order: str, noise: float = 0.0, seed: int = 4, width: int = WIDTH, **options: Any) -> Transfer:
    chosen = KnowledgeSettings.model_validate({"top_k": 3, "fusion": "mean", **options})
    return Transfer(KnowledgeBase(width, chosen), order, Prototypes(width, 9, received_noise=noise), seed)  # type: ignore[arg-type]


def prototypes(seed: int, clients: int = CLIENTS) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(clients, WIDTH)).astype(np.float32))


def replies(clients: int = CLIENTS) -> dict[str, torch.Tensor]:
    return {REPLY: torch.full((clients, WIDTH), 7.0)}


def after(
    made: Transfer, number: int, clients: np.ndarray, messages: torch.Tensor, private: dict[str, torch.Tensor]
) -> torch.Tensor:
    """A round of order `trained` in which these clients sent these messages, in shards of two; all replies then."""
    draws = sampler()
    for at in range(0, len(clients), 2):
        made.take(clients[at : at + 2], messages[at : at + 2])
    made.after(number, private, draws)
    return private[REPLY]


def asked_before(
    made: Transfer, local: Any, number: int, shared: Any, private: Any, clients: np.ndarray, draws: Any
) -> None:
    """Let clients ask before they train in a round, where that is the order."""
    made.before(LocalWork(local, [], draws, Ragged.empty(CLIENTS), number, CPU), shared, private, clients)


# --- the two orders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 1, 2])
def test_trained_prototypes_are_answered_after_the_round(window: int | None) -> None:
    made, loop, private, expected = transfer("trained", window=window), Loop(3, window), replies(), np.full((9, 6), 7.0)
    for number, some in enumerate(([4, 0, 7, 2, 8], [3, 1, 0], [5, 2, 6, 4]), start=1):
        clients, messages = np.array(some), prototypes(number)[: len(some)]
        asked_before(made, program("fcucr, trained prototypes"), number, {}, private, clients, sampler())
        assert private[REPLY].numpy() == pytest.approx(expected, abs=1e-6), "nothing is sent before training"
        found = after(made, number, clients, messages, private)
        sent = {(c, c): vector.double().numpy() for c, vector in zip(some, messages, strict=True)}
        for client, answer in loop.exchange(number, sent).items():
            expected[client] = answer
        assert_same(found, expected)


def test_a_query_of_its_own_is_answered_and_not_kept() -> None:
    made, loop, private = transfer("trained"), Loop(3), replies()
    clients, sent, queries = np.array([4, 0, 7, 2, 8]), prototypes(1)[:5], prototypes(2)[:5]
    after(made, 1, clients, torch.cat([sent, queries], 1), private)
    loop.exchange(1, {(c, c): vector.double().numpy() for c, vector in zip(clients, sent, strict=True)})
    for client, query in zip(clients, queries, strict=True):
        assert_same(private[REPLY][client], loop.answer(client, query.double().numpy()))
    assert len(made.base) == len(clients)


def test_received_prototypes_are_answered_before_training() -> None:
    local, made, loop, draws = program("fcucr"), transfer("received"), Loop(3), sampler()
    private = {REPLY: torch.zeros(CLIENTS, WIDTH)}
    for number, some in enumerate(([4, 0, 7, 2, 8], [3, 1, 0]), start=1):
        shared, clients = local.init_shared(number), np.array(some)
        before = private[REPLY].clone()
        asked_before(made, local, number, shared, private, clients, draws)
        alone = {c: published(local, shared, draws.window(np.array([c])), CPU)[0].double().numpy() for c in some}
        answers = loop.exchange(number, {(c, c): vector for c, vector in alone.items()})
        for client in range(CLIENTS):
            wanted = answers.get(client, before[client].numpy())
            assert_same(private[REPLY][client], wanted, size=1.0)
        kept = private[REPLY].clone()
        made.after(number, private, draws)
        assert torch.equal(private[REPLY], kept)


@pytest.mark.parametrize("interval", [2, 3])
def test_rounds_between_transfers_send_nothing_and_keep_the_answer(interval: int) -> None:
    trained, received = (transfer(order, interval=interval) for order in ("trained", "received"))
    late, early, local = replies(), replies(), program("fcucr")
    for number in range(1, 9):
        before = late[REPLY].clone(), early[REPLY].clone()
        after(trained, number, EVERYONE, prototypes(number), late)
        asked_before(received, local, number, local.init_shared(number), early, EVERYONE, sampler())
        for made, old, new in ((trained, before[0], late[REPLY]), (received, before[1], early[REPLY])):
            assert torch.equal(old, new) == ((number - 1) % interval != 0)
            assert len(made.base) == CLIENTS
            assert made.base.round == 1 + interval * ((number - 1) // interval)
    assert torch.equal(after(transfer("trained"), 1, EVERYONE, prototypes(7), replies()), late[REPLY])


def federation(variant: str, order: str, **options: Any) -> Federation:
    """A server with the knowledge base, and its clients; three shards."""
    local = program(variant)
    made = made_federation(local, CLIENTS, rounds=2)
    made.transfer = transfer(order, width=local.settings.reply, **options)
    return made


def in_float64(made: Federation) -> Federation:
    """The same federation with all tensors in float64, but for what the base answers (`tests.closeness`)."""
    made.shared = {name: value.double() for name, value in made.shared.items()}
    made.private = {name: value if name == REPLY else value.double() for name, value in made.private.items()}
    return made


@pytest.mark.parametrize(("variant", "order"), [("fcucr", "received"), ("fcucr as released", "trained")])
def test_shards_do_not_change_who_is_told_what(variant: str, order: str) -> None:
    found = []
    for size in (1, 4, 9):
        f = in_float64(federation(variant, order))
        f.shard_size = size
        for number in (1, 2):
            f.round(number, EVERYONE, sampler(), Ragged.empty(CLIENTS))
        found.append((f.private, f.shared))
    assert found[0][0][REPLY].any(dim=1).all()
    for private, shared in found[1:]:
        assert_all_same(private, found[0][0], adam=6 * SMALL["lr"])  # two rounds of three steps
        assert_all_same(shared, found[0][1], adam=6 * SMALL["lr"])


# --- what an answer says ---------------------------------------------------------------------------------------------


def test_asking_adds_nothing() -> None:
    local, made, draws = program("fcucr"), transfer("received"), sampler()
    shared, private = local.init_shared(3), {REPLY: torch.zeros(CLIENTS, WIDTH)}
    asked_before(made, local, 1, shared, private, EVERYONE, draws)
    held = made.base.state()
    backwards = EVERYONE[::-1].copy()
    asked = made.asked(local, 2, shared, backwards, draws.window(backwards), CPU)
    assert_same(asked.flip(0), private[REPLY])
    now = made.base.state()
    assert all(np.array_equal(held[name], now[name]) for name in ("vectors", "owner", "session", "since"))
    assert len(made.base) == CLIENTS


# --- noise on what is received ---------------------------------------------------------------------------------------


def test_devices_add_their_noise_to_what_they_ask_for_when_recommending_too() -> None:
    """The noise of the round that comes next, as on a device (`edge.exchange.reply_of`)."""
    local, draws = program("fcucr"), sampler()
    shared = local.init_shared(3)
    found = {}
    for size in (0.0, 0.5):
        made = transfer("received", noise=size)
        asked_before(made, local, 1, shared, {REPLY: torch.zeros(CLIENTS, WIDTH)}, EVERYONE, draws)
        found[size] = made.asked(local, 2, shared, EVERYONE, draws.window(EVERYONE), CPU)
    keys = keyed.fold(keyed.key(4, "received noise", 2), EVERYONE)
    drawn = [0.5 * keyed.normal(key, np.arange(WIDTH)) for key in keys]
    assert_same(found[0.5] - found[0.0], np.stack(drawn))


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["trained", "received"])
def test_a_restored_transfer_goes_on_as_if_it_had_never_stopped(order: str) -> None:
    variant = "fcucr" if order == "received" else "fcucr, trained prototypes"
    whole, stopped = (federation(variant, order, window=2, replace=False) for _ in range(2))
    for number in (1, 2, 3):
        whole.round(number, EVERYONE, sampler(), Ragged.empty(CLIENTS))
    for number in (1, 2):
        stopped.round(number, EVERYONE, sampler(), Ragged.empty(CLIENTS))
    state = {
        name: {n: v.numpy().copy() for n, v in value.items()} if name in ("shared", "private", "tables") else value
        for name, value in stopped.state().items()
    }
    resumed = federation(variant, order, window=2, replace=False)
    resumed.restore(state)
    resumed.round(3, EVERYONE, sampler(), Ragged.empty(CLIENTS))
    for kind in ("shared", "private"):
        mine, theirs = getattr(resumed, kind), getattr(whole, kind)
        assert all(torch.equal(mine[name], value) for name, value in theirs.items())
