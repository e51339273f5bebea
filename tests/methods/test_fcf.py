"""FCF: users by their normal equations, items by a gradient over the whole catalogue, both written out with loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edge.sampling import Sampler, Selection
from edgefr.engine.executors import debug, inline
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fcf.program import FCF, solved
from edgefr.methods.fcf.settings import FCFSettings
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract.programs import CLIENTS, ITEMS, work
from tests.federations import begun as begun_run
from tests.federations import federation as made_federation

ALPHA, RIDGE, ITEM_RIDGE, DIM = 3.0, 2.0, 0.05, 6
HOW = {"dim": DIM, "alpha": ALPHA, "ridge": RIDGE, "init_scale": 0.4}
WHOLE = Selection(part="whole")
Array = np.ndarray


def fcf(**values: object) -> FCF:
    return FCF(FCFSettings.model_validate(HOW | values), ITEMS)


def factor(table: Array, had: Array) -> Array:
    """The user's vector by hand: (Y'CY + ridge I) x = Y'C p, with a row of C for every item of the catalogue."""
    p = np.isin(np.arange(len(table)), had).astype(float)
    c = 1 + ALPHA * p
    return np.linalg.solve(table.T @ (c[:, None] * table) + RIDGE * np.eye(DIM), table.T @ (c * p))


def gradient(table: Array, had: Array, user: Array) -> Array:
    """A client's gradient by hand, item by item: -2 c (p - <x, y>) x."""
    out = np.zeros_like(table)
    for item, row in enumerate(table):
        p = float(item in had)
        out[item] = -2 * (1 + ALPHA * p) * (p - row @ user) * user
    return out


@pytest.mark.parametrize("executor", [inline.run, debug.run])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_a_client_solves_for_itself_and_sends_its_gradient_over_the_whole_catalogue(executor, batch_size: int) -> None:
    """However small the batches that others learn from."""
    local = fcf()
    todo = work(local, batch_size=batch_size)
    who = np.array([int(np.argmax(todo.sampler.train.counts)), 0])
    shared = local.init_shared(3)
    table = shared["item"].double().numpy()
    found = executor(todo, shared, {"user": torch.full((2, DIM), 9.0)}, who)
    rows = torch.zeros(2, ITEMS, DIM)
    rows[found.rows["item"].client, found.rows["item"].rows] = found.rows["item"].values
    for slot, client in enumerate(who):
        had = todo.sampler.train[client]
        user = factor(table, had)
        assert_same(found.private["user"][slot], torch.from_numpy(user).float())
        untouched = np.setdiff1d(np.arange(ITEMS), had)
        assert not rows[slot][torch.from_numpy(untouched)].any(), "rows of items it had not stay at home"
        of_gram = found.dense["gram.item"][slot].double().numpy()
        sent = rows[slot].double().numpy() + table @ (of_gram + of_gram.T)
        np.testing.assert_allclose(-sent, gradient(table, had, user), atol=2e-5)


def federation(local: FCF, **settings: float) -> Federation:
    return made_federation(local, CLIENTS, {"rule": "gram", **settings})


class Adam:
    """The server's optimiser by hand, value by value of a gradient that is to be followed downward."""

    def __init__(self, lr: float) -> None:
        self.lr, self.first, self.second, self.number = lr, 0.0, 0.0, 0

    def step(self, slope: Array) -> Array:
        self.number += 1
        self.first = 0.9 * self.first + 0.1 * slope
        self.second = 0.99 * self.second + 0.01 * slope**2
        unbiased = self.first / (1 - 0.9**self.number), self.second / (1 - 0.99**self.number)
        return -self.lr * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-3)


def test_the_server_descends_along_the_mean_gradient_over_the_whole_catalogue() -> None:
    local = fcf()
    todo = work(local)
    made = federation(local, lr=0.03, floor=1e-3, ridge=ITEM_RIDGE)
    table, by_hand = made.shared["item"].double().numpy(), Adam(0.03)
    someone = np.flatnonzero(todo.sampler.train.counts)
    for number in (1, 2, 3):
        cohort = someone[number:]
        made.round(number, cohort, todo.sampler, todo.context)
        had = [todo.sampler.train[client] for client in cohort]
        slope = np.mean([gradient(table, own, factor(table, own)) for own in had], axis=0) + 2 * ITEM_RIDGE * table
        table = table + by_hand.step(slope)
        np.testing.assert_allclose(made.shared["item"].numpy(), table, atol=2e-5)
        np.testing.assert_allclose(made.shared["gram.item"].numpy(), table.T @ table, rtol=1e-5, atol=1e-4)


@given(st.integers(0, 10_000), st.integers(1, 12), st.floats(0.1, 10))
def test_elimination_solves_what_numpy_solves(seed: int, size: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    some = rng.standard_normal((3, size, size))
    matrix, right = some @ some.transpose(0, 2, 1), rng.standard_normal((3, size))
    found = solved(torch.from_numpy(matrix), torch.from_numpy(right), ridge).numpy()
    np.testing.assert_allclose(
        found, np.linalg.solve(matrix + ridge * np.eye(size), right[..., None])[..., 0], rtol=1e-7, atol=1e-8
    )


def test_the_whole_is_every_positive_in_one_batch() -> None:
    sampler = work(fcf(), batch_size=2).sampler
    assert isinstance(sampler, Sampler)
    everyone = np.arange(CLIENTS)
    drawn = sampler.epoch(everyone, "any", 1, 0, which=WHOLE)
    train = sampler.train.take(everyone)
    assert drawn.items.tolist() == train.values.tolist()
    assert drawn.label.tolist() == [1.0] * len(drawn.items)
    assert drawn.counts.tolist() == sampler.examples(everyone, WHOLE).tolist() == train.counts.tolist()
    assert drawn.batch(2) == train.counts.max()
    assert sampler.steps(everyone, WHOLE).tolist() == (train.counts > 0).tolist()
    with pytest.raises(ValueError, match="nothing to pair"):
        Selection(part="whole", pairs=True)


def test_its_simulated_work_is_one_pass_over_what_a_client_has() -> None:
    local, everyone = fcf(), np.arange(CLIENTS)
    sampler = work(local, batch_size=2).sampler
    found = round_work(local, local.phases[:2], sampler, everyone, np.zeros(CLIENTS, bool))
    read = np.asarray(found.examples_per_step) * np.asarray(found.steps)
    np.testing.assert_allclose(read, 2 * sampler.train.counts)
    assert set(np.asarray(found.steps).tolist()) == {2}


def test_what_recommends_is_solved_for_the_last_table_by_all_who_ask() -> None:
    some = ("data_options={users: 50, items: 150, interactions: 12}", "protocol.negatives=20", "clients_per_round=0.2")
    model = tuple(f"model.{name}={value}" for name, value in HOW.items())
    run = begun_run(load_experiment(overrides=["method=fcf", "rounds=2", *some, *model]))
    run.learn()
    f, task = run.federation, run.stage.task
    users, table = run.together().private["user"].numpy(), f.shared["item"].double().numpy()
    never = np.flatnonzero(f.counters.participation == 0)
    assert len(never)
    for client in (0, 7, int(never[0])):
        np.testing.assert_allclose(users[client], factor(table, task.train[client]), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["aggregation.rule=mean"], "gram is fcf's, which has no other"),
        (["method=fedmf", "aggregation.rule=gram"], "gram is fcf's"),
        (["aggregation.server_lr=2.0"], "drop server_lr"),
        (["batch_size=64"], "methods that learn from batches with sampled negatives, and method is fcf"),
        (["negatives=7"], "methods that learn from batches"),
        (["local_epochs=2"], "methods that learn from batches"),
        (["privacy.tensors=[item]"], "its server needs both"),
        (["evaluation.tables=own"], "move no table of their own"),
        (["protocol.name=blocks"], "keep nothing"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: list[str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        load_experiment(overrides=["method=fcf", *changes])
