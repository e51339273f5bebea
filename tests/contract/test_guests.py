"""Methods to come run as they are written: vectorised, in a loop, and in any layout they can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from edge.sampling import Sampler, Selection
from edge.sessions import windows
from edge.steps import steps_of
from edgefr.engine.executors import debug, inline
from edgefr.engine.executors.sessions import WindowScorer
from edgefr.engine.work import LocalWork
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.testing.battery import check_method
from export.batches import One, Window
from export.learning import unlearnable
from export.program import LocalProgram, SessionProgram, read_by, turns
from privacy.errors import InputError
from tests.contract import sessions
from tests.contract.guests.fedcar import FedCAR
from tests.contract.guests.fedrecon import FedRecon
from tests.contract.guests.in_context import LENGTH, InContext
from tests.contract.guests.pairwise import Pairwise
from tests.contract.guests.softmax import FullSoftmax
from tests.contract.programs import CLIENTS, ITEMS, interactions, work
from tests.contract.test_executors import Remembered, dense
from tests.mostly_slow import mostly_slow

SETS: dict[str, Callable[[], LocalProgram]] = {
    "bpr": lambda: Pairwise("bpr", ITEMS),
    "bpr, padded": lambda: Pairwise("bpr", ITEMS, "padded"),
    "in context": lambda: InContext(ITEMS),
    "in context, padded": lambda: InContext(ITEMS, "padded"),
    "sampled softmax": lambda: Pairwise("softmax", ITEMS),
    "sampled softmax, padded": lambda: Pairwise("softmax", ITEMS, "padded"),
    "fedrecon": lambda: FedRecon(ITEMS),
    "fedrecon, most in support": lambda: FedRecon(ITEMS, support=0.8),
}
SESSIONS: dict[str, Callable[[], SessionProgram]] = {
    "full softmax": lambda: FullSoftmax(sessions.ITEMS, sessions.LENGTH),
    "fedcar": lambda: FedCAR(sessions.ITEMS, sessions.LENGTH),
}


def ran(executor, local: LocalProgram, todo: LocalWork, clients: np.ndarray) -> dict[str, torch.Tensor]:
    """Updates and new private tensors of these clients."""
    shared, private = local.init_shared(3), private_of(local, clients)
    updates = executor(todo, shared, private, clients)
    items = sessions.ITEMS if isinstance(local, SessionProgram) else ITEMS
    out = dense(replace(updates, rows={}), len(clients))
    for name, rows in updates.rows.items():
        out[name] = torch.zeros(len(clients), items, rows.values.shape[1])
        out[name][rows.client, rows.rows] = rows.values
    return out | ({} if updates.message is None else {"message": updates.message})


def private_of(local: LocalProgram, clients: np.ndarray) -> dict[str, torch.Tensor]:
    """First private tensors; of what came before and from others, draws that depend on the client alone."""
    private = local.init_private(3, torch.from_numpy(clients))
    for name, value in private.items():
        for row, client in enumerate(clients):
            if name.startswith("previous.") or name == "message":
                draws = np.random.default_rng([int(client), len(name)]).normal(0, 0.5, value.shape[1:])
                value[row] = torch.from_numpy(draws).float() if name != "previous.known" else float(client % 3 > 0)
    return private


def same(fast: dict[str, torch.Tensor], slow: dict[str, torch.Tensor]) -> None:
    assert fast.keys() == slow.keys()
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("guest", mostly_slow(SETS | SESSIONS, [*list(SETS)[:1], *list(SESSIONS)[:1]]))
def test_guests_keep_the_contract(guest: str) -> None:
    check_method((SETS | SESSIONS)[guest](), skip=["workers"])


@pytest.mark.parametrize("guest", SESSIONS)
def test_guests_that_learn_from_sessions_recommend(guest: str) -> None:
    """Scores of everybody at once are those of one user and one item after the other."""
    local = SESSIONS[guest]()
    everyone = np.arange(sessions.CLIENTS)
    items, times = sessions.sessions()
    view = windows(items, times, everyone, sessions.LENGTH)
    shared, private = local.init_shared(3), private_of(local, everyone)
    scorer = WindowScorer(local, shared, private, view, np.arange(sessions.ITEMS), torch.device("cpu"))
    pool = scorer(everyone, None)
    some = np.random.default_rng(1).integers(0, sessions.ITEMS, (sessions.CLIENTS, 4))
    np.testing.assert_allclose(scorer(everyone, some), np.take_along_axis(pool, some, axis=1), atol=1e-5)
    for user in (0, 5):
        own = {**shared, **{name: value[user] for name, value in private.items()}}
        seen, real, since = (torch.from_numpy(part[user]) for part in (view.items, view.real, view.times))
        past = Window(seen, seen, real, real, times=since)
        for item in (0, 17):
            one = torch.tensor([item])
            batch = One(one, one, one, one, history=past)
            vectors = local.vectors(own, batch)
            mine = local.user(own, batch, local.vectors(own, past), vectors)
            assert float(local.score(own, batch, vectors, mine)) == pytest.approx(float(pool[user, item]), abs=1e-5)


def test_an_item_drawn_for_two_positives_stands_in_two_pairs() -> None:
    """By hand: BPR's gradient of one client and one step, example after example."""
    local = Pairwise("bpr", ITEMS)
    (phase,) = local.phases
    local.phases = (replace(phase, epochs=1),)
    todo = work(local, batch_size=400)
    busiest = np.array([int(np.argmax(todo.sampler.train.counts))])
    found = ran(inline.run, local, todo, busiest)
    assert isinstance(todo.sampler, Sampler)
    drawn = todo.sampler.epoch(busiest, phase.purpose, todo.round, 0, which=Selection(pairs=True))
    groups = drawn.items.reshape(-1, 4).astype(np.int64)
    assert len(np.unique(groups[:, 1:])) < groups[:, 1:].size  # some were drawn twice
    item = local.init_shared(3)["item"].requires_grad_()
    user = local.init_private(3, torch.from_numpy(busiest))["user"][0].requires_grad_()
    scores = item[torch.from_numpy(groups)] @ user
    loss = -torch.nn.functional.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()
    of_item, of_user = torch.autograd.grad(loss, [item, user])
    torch.testing.assert_close(found["item"][0], -phase.lr["item"] * of_item, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(found["private user"][0], (user - phase.lr["user"] * of_user).detach())


def test_pairs_keep_the_draws_of_single_examples() -> None:
    sampler = work(Pairwise("bpr", ITEMS)).sampler
    assert isinstance(sampler, Sampler)
    for client in range(CLIENTS):
        one = np.array([client])
        plain = sampler.epoch(one, "p", 2, 0)
        paired = sampler.epoch(one, "p", 2, 0, which=Selection(pairs=True))
        assert sorted(plain.items.tolist()) == sorted(paired.items.tolist())
        assert (paired.label.reshape(-1, 4)[:, 0] == 1).all()
        assert not paired.label.reshape(-1, 4)[:, 1:].any()


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_support_and_query_part_a_clients_positives_anew_in_every_round(share: float) -> None:
    sampler, everyone = work(FedRecon(ITEMS)).sampler, np.arange(CLIENTS)
    assert isinstance(sampler, Sampler)
    train = interactions()

    def part(name: str, number: int, clients: np.ndarray) -> list[set[int]]:
        which = Selection(part=name, support=share)  # type: ignore[arg-type]
        found = sampler.epoch(clients, name, number, 0, which=which)
        rows = np.split(np.arange(len(found.items)), np.cumsum(found.counts)[:-1])
        return [set(found.items[row][found.label[row] == 1].tolist()) for row in rows]

    support, query, later = part("support", 2, everyone), part("query", 2, everyone), part("support", 3, everyone)
    for client in everyone:
        own = set(train[client].tolist())
        assert support[client] | query[client] == own
        assert not support[client] & query[client]
        assert len(support[client]) == int(np.ceil(share * len(own)))
        assert part("support", 2, np.array([client])) == [support[client]]
    assert later != support


def test_what_is_made_anew_owes_nothing_to_the_round_before() -> None:
    local, clients = FedRecon(ITEMS), np.arange(CLIENTS)
    todo = work(local)
    shared, private = local.init_shared(3), local.init_private(3, torch.from_numpy(clients))
    for executor in (inline.run, debug.run):
        first = executor(todo, shared, private, clients)
        other = executor(todo, shared, {"user": private["user"] + 5}, clients)
        same(dense(first, CLIENTS), dense(other, CLIENTS))
        later = executor(replace(todo, round=3), shared, private, clients)
        assert not torch.allclose(first.private["user"], later.private["user"])
    alone = inline.run(todo, shared, {"user": private["user"][[4]]}, clients[[4]])
    torch.testing.assert_close(alone.private["user"][0], inline.run(todo, shared, private, clients).private["user"][4])


def test_a_phase_that_alternates_steps_after_each_step_of_the_other() -> None:
    """Phases after one another end elsewhere; so does the encoder without what others sent."""
    local, clients = FedCAR(sessions.ITEMS, sessions.LENGTH), np.arange(sessions.CLIENTS)
    taking_turns = ran(inline.run, local, sessions.work(local), clients)
    local.phases = tuple(replace(phase, alternates=False) for phase in local.phases)
    one_by_one = ran(inline.run, local, sessions.work(local), clients)
    same(one_by_one, ran(debug.run, local, sessions.work(local), clients))
    assert float((taking_turns["encoder.query"] - one_by_one["encoder.query"]).abs().max()) > 1e-4
    with pytest.raises(ValueError, match="'contrast' alternates, but not with a phase of the same draws"):
        turns([replace(local.phases[0], draws="others"), replace(local.phases[1], alternates=True)])


def test_fedcar_keeps_its_encoder_and_tells_of_it() -> None:
    local, clients = FedCAR(sessions.ITEMS, sessions.LENGTH), np.arange(sessions.CLIENTS)
    found = ran(inline.run, local, sessions.work(local), clients)
    shared = local.init_shared(3)
    for name in local.shapes:
        torch.testing.assert_close(found[f"private previous.{name}"], shared[name] + found[name])
    told = local.other(found["message"])
    torch.testing.assert_close(told["query"], shared["encoder.query"] + found["encoder.query"])
    assert {"message", "previous.encoder.query"} <= read_by(local.phases, "round")


def test_what_no_device_does_is_named() -> None:
    """A device draws what is made anew by the rule that the program names, so the rule has to be the program's own."""
    assert all(unlearnable(guest()) is None for guest in (SETS | SESSIONS).values())
    assert unlearnable(FedMF(FedMFSettings(dim=4), ITEMS, 1)) is None
    local = FedRecon(ITEMS)
    (said,) = (spec.first for spec in local.specs.values() if spec.reset == "round")
    assert said is not None
    for first, why in (
        (None, "does not say how"),
        (replace(said, scale=0.2), "but not as its"),
        (replace(said, purpose="x"), "but not"),
    ):
        local.specs = {**local.specs, "user": replace(local.specs["user"], first=first)}
        assert f"makes 'user' anew in every round{' and ' if first is None else ', '}{why}" in str(unlearnable(local))


def test_pairs_have_no_replay() -> None:
    local, clients = Pairwise("bpr", ITEMS), np.arange(CLIENTS)
    todo = replace(work(local), memory=Remembered())
    private = {**local.init_private(3, torch.from_numpy(clients)), "memory.labels": torch.zeros(CLIENTS, ITEMS)}
    for executor in (inline.run, debug.run):
        with pytest.raises(InputError, match="compares items in pairs"):
            executor(todo, local.init_shared(3), private, clients)


def test_a_context_is_what_the_client_had_just_before() -> None:
    """By hand: of every positive the items before it in its client's own order, whichever part it is in."""
    sampler, train = work(InContext(ITEMS)).sampler, interactions()
    assert isinstance(sampler, Sampler)
    for which in (Selection(pairs=True, context=LENGTH), Selection(pairs=True, context=LENGTH, part="query")):
        found = sampler.epoch(np.arange(CLIENTS), "p", 2, 0, which=which)
        assert found.context is not None
        groups, number = found.items.reshape(-1, 4), 0
        for client, count in enumerate(found.counts // 4):
            own = train[client].tolist()
            for _ in range(count):
                at = own.index(groups[number, 0])
                before = own[max(0, at - LENGTH) : at]
                assert found.context[number].tolist() == [-1] * (LENGTH - len(before)) + before
                number += 1


def test_steps_number_what_contexts_read() -> None:
    """Every entry once; a context's numbers lead to its items, and what is read beside examples weighs nothing."""
    sampler = work(InContext(ITEMS)).sampler
    assert isinstance(sampler, Sampler)
    clients = np.argsort(-sampler.train.counts, kind="stable")
    which = Selection(pairs=True, context=LENGTH)
    epochs = [sampler.epoch(clients, "p", 2, epoch, which=which) for epoch in range(2)]
    steps, plain = (
        steps_of(some, 16, ITEMS)
        for some in (epochs, [sampler.epoch(clients, "p", 2, epoch, which=Selection(pairs=True)) for epoch in (0, 1)])
    )
    pairs = steps.pairs
    assert pairs is not None
    assert pairs.context is not None
    assert pairs.there is not None
    for step in range(len(steps.lengths)):
        slots = steps.slots[steps.row[steps.bounds[step] : steps.bounds[step + 1]]] * ITEMS
        assert len(np.unique(slots + steps.items[steps.bounds[step] : steps.bounds[step + 1]])) == len(slots)
    owner = np.repeat(np.arange(len(pairs.positive)), LENGTH).reshape(-1, LENGTH)
    own = steps.slots[steps.row]
    assert (own[pairs.context] == own[pairs.positive][owner]).all()
    assert (steps.items[pairs.context] == steps.items[pairs.positive][owner])[pairs.there == 0].all()
    read = {tuple(row) for epoch in epochs for row in np.c_[epoch.items.reshape(-1, 4)[:, 0], epoch.context].tolist()}
    there = np.where(pairs.there > 0, steps.items[pairs.context], -1)
    assert {tuple(row) for row in np.c_[steps.items[pairs.positive], there].tolist()} == read
    kept = steps.weight > 0
    np.testing.assert_array_equal(steps.items[kept], plain.items)
    np.testing.assert_array_equal(steps.weight[kept], plain.weight)
    np.testing.assert_array_equal(steps.label[kept], plain.label)
    assert not kept.all()


def test_a_context_goes_with_pairs() -> None:
    with pytest.raises(ValueError, match="ask for pairs"):
        Selection(context=LENGTH)
