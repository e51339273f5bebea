"""FedRecon: a vector that nobody keeps, rebuilt on a support set each round and on everything to recommend."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edge.sampling import Sampler, Selection
from edgefr.engine.executors import debug, inline
from edgefr.engine.footprint import round_work
from edgefr.engine.work import LocalWork
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fedrecon.program import FedRecon
from edgefr.methods.fedrecon.settings import FedReconSettings
from edgefr.simulation.loop import Training
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract.programs import ITEMS, work
from tests.federations import begun as begun_run

HOW = {"dim": 6, "rebuild_lr": 0.7, "item_lr": 9.0, "init_scale": 0.4, "rebuild_epochs": 2, "support": 0.6}
Array = np.ndarray


def fedrecon(**values: object) -> FedRecon:
    return FedRecon(FedReconSettings.model_validate(HOW | values), ITEMS, 1)


def mean_gradients(user: Array, item: Array, items: Array, label: Array) -> tuple[Array, Array]:
    """By hand: the gradient of the mean cross-entropy by the user's vector, and by every row of the item table."""
    wrong = (1 / (1 + np.exp(-item[items] @ user)) - label) / len(items)
    of_items = np.zeros_like(item)
    np.add.at(of_items, items, wrong[:, None] * user)
    return wrong @ item[items], of_items


@pytest.mark.parametrize("executor", [inline.run, debug.run])
def test_a_round_rebuilds_on_the_support_set_and_learns_on_the_query_set(executor) -> None:
    """Algorithm 1 by hand: two passes over the support set, then one step of the items, at the vector found."""
    local = fedrecon()
    todo = work(local, batch_size=1000)
    sampler = todo.sampler
    assert isinstance(sampler, Sampler)
    who = np.array([int(np.argmax(sampler.train.counts))])
    shared = local.init_shared(3)
    made = todo.begun(local.init_private(3, torch.from_numpy(who)), who)
    item, user = (value.double().numpy() for value in (shared["item"], made["user"][0]))
    rebuild, update, _ = local.phases
    for epoch in range(2):
        drawn = sampler.epoch(who, rebuild.purpose, 2, epoch, which=Selection(part="support", support=0.6))
        user = user - 0.7 * mean_gradients(user, item, drawn.items, drawn.label)[0]
    drawn = sampler.epoch(who, update.purpose, 2, 0, which=Selection(part="query", support=0.6))
    step = -9.0 * mean_gradients(user, item, drawn.items, drawn.label)[1]
    found = executor(todo, shared, {"user": torch.zeros(1, 6)}, who)
    changed = torch.zeros(ITEMS, 6)
    changed[found.rows["item"].rows] = found.rows["item"].values
    assert_same(changed, torch.from_numpy(step).float())
    assert_same(found.private["user"][0], torch.from_numpy(user).float())
    support_alone = np.setdiff1d(np.arange(ITEMS), drawn.items)
    assert not changed[torch.from_numpy(support_alone)].any(), "an item outside the query set learned"


def begun(*overrides: str) -> Training:
    some = ("data_options={users: 50, items: 150, interactions: 12}", "protocol.negatives=20", "model.dim=4")
    return begun_run(load_experiment(overrides=["method=fedrecon", "rounds=2", *some, *overrides]))


def test_what_recommends_is_rebuilt_from_everything_its_user_has() -> None:
    """Neither the last round's vector nor the first one is asked, also for clients that no round invited."""
    run = begun("clients_per_round=0.2", "negatives=2", "batch_size=1000")
    run.learn()
    f, task = run.federation, run.stage.task
    first = run.together().private["user"].clone()
    f.private["user"] += 3.0
    assert torch.equal(run.together().private["user"], first)
    phase = f.program.phases[-1]
    never = np.flatnonzero(f.counters.participation == 0)[:1]
    assert phase.when == "final"
    assert len(never)
    sampler = run.sampler(task)
    item, user = f.shared["item"].double().numpy(), first[never[0]].double().numpy()
    todo = LocalWork(f.program, [phase], sampler, task.train, run.rounds, f.device)
    mine = todo.begun({"user": f.private["user"][never]}, never)["user"][0].double().numpy()
    for epoch in range(phase.epochs):
        drawn = sampler.epoch(never, phase.purpose, run.rounds, epoch)
        assert drawn.counts[0] == task.train.counts[never[0]] * 3
        mine = mine - phase.lr["user"] * mean_gradients(mine, item, drawn.items, drawn.label)[0]
    np.testing.assert_allclose(user, mine, atol=1e-5)


def test_its_simulated_work_is_that_of_the_parts() -> None:
    local, everyone = fedrecon(), np.arange(20)
    sampler = work(local, batch_size=16).sampler
    counts = sampler.train.counts[everyone]
    support = np.ceil(counts * 0.6)
    found = round_work(local, local.phases[:2], sampler, everyone, np.zeros(20, bool))
    read = np.asarray(found.examples_per_step) * np.asarray(found.steps)
    np.testing.assert_allclose(read, 4 * (2 * support + (counts - support)))


@pytest.mark.parametrize(("protocol", "why"), [("blocks", "keep nothing"), ("sessions", "sessions yet to come")])
def test_protocols_that_need_a_state_are_refused(protocol: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        load_experiment(overrides=["method=fedrecon", f"protocol.name={protocol}"])
    assert "protocol.name=leave-one-out" in str(refused.value)
