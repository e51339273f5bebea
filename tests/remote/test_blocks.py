"""Runs over blocks of time: devices end each block where the simulator does, remember it, and learn in the next."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import edgefr
from edge.bundle import open_bundle
from edge.catalogue import Catalogue
from edge.connection import Patience
from edge.device import Device
from edge.remote import TrafficCounts, join
from edgefr.data.splits.blocks import Block
from edgefr.serving.devices import Devices
from edgefr.serving.rehearsal import rehearse
from edgefr.serving.serve import origins_of
from edgefr.serving.training import training_of
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs.lineage import Begun, Closed, Lineage, Opened, sealed
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.worlds import CLASS, ROUNDS, Twins, killable, known, serving

QUICK = Patience(tries=3, pause_s=0.05)
OVER_BLOCKS = {
    "method": "f3crec",
    "protocol.min_interactions": 1,
    "protocol.base": 0.5,
    "protocol.increments": 2,
    "data_options.interactions": 40,
    "local_epochs": 2,
    "model.dim": 4,
    "model.init_scale": 0.3,
    "model.lr": 0.5,
    "model.item_lr": 2.0,
    "continual.list_size": 5,
    "evaluation.k": "[20]",
    "evaluation.full_ranking_users": 100,
}


@cache
def _world() -> Twins:
    """F3CRec on FedMF; its folders are only read. Only a block's last round is measured, so that it is the best."""
    return Twins.of(OVER_BLOCKS, worlds.kept())


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return _world().own(tmp_path)


@cache
def blocks() -> tuple[Block, ...]:
    found = prepare(_world().begun.experiment, None, "cpu").blocks
    assert all((block.train.counts > 0).all() for block in found), "somebody has nothing to learn from in a block"
    return found


class Fleet:
    """Every user's device, which goes from bundle to bundle and learns of each block what its user had in it."""

    def __init__(self, run: Run, states: Path):
        model = open_model(run).model
        self.run, self.states, self.ids, self.users = run, states, model.names.items, model.names.users
        self.bundle = run.path / "bundles" / CLASS

    def device(self, user: str) -> Device:
        return open_device(self.bundle, self.states / user, user=user)

    def items(self, user: str, block: int) -> list[str]:
        """What a user had in a block to learn from."""
        return [self.ids[item] for item in blocks()[block].train[self.users.index(user)]]

    def work(self, url: str, block: int) -> None:
        """All devices take part to the end of a session."""

        def one(user: str) -> TrafficCounts:
            known(self.run, self.states / user, user)
            return join(self.device(user), url, self.items(user, block), patience=QUICK)

        with ThreadPoolExecutor(len(self.users)) as pool:
            assert not any(counts.late for counts in pool.map(one, self.users))

    def migrate(self, name: str, next_block: bool) -> None:
        """All devices go on under newer bundles, which are made of what was served."""
        out = edgefr.export(self.run, served=True, next_block=next_block).path
        assert out.name == name
        for user in self.users:
            self.device(user).update(out / CLASS)
        self.bundle = out / CLASS

    def serve(self, block: int, rounds: int = ROUNDS) -> None:
        with serving(self.run, None, rounds) as (url, future):  # type: ignore[arg-type]
            self.work(url, block)
            future.result(60)

    @property
    def offered(self) -> list[str]:
        """The ids of the items that its bundle's devices may recommend."""
        found = Catalogue(open_bundle(self.bundle))
        return [found.ids[item] for item in found.offered_items]

    def compare(self, simulated: Run) -> None:
        """Server and devices are where the simulator ended."""
        tensors = simulated.read_tensors("model")
        served = load_file(self.run.path / "lineage" / "shared.safetensors")
        assert_same(served["shared.item"], tensors["shared.item"].numpy())
        own = np.stack([self.device(user).state.part("private")["user"] for user in self.users])
        assert_same(own, tensors["private.user"].numpy())


def test_devices_end_every_block_where_the_simulator_does(twins: Twins, tmp_path: Path) -> None:
    """Three blocks of three rounds, one of them in two sessions, between which its bundles were published anew."""
    fleet = Fleet(twins.begun, tmp_path / "states")
    fleet.serve(0)
    fleet.migrate("bundles-3-block-1", next_block=True)
    fleet.serve(1, rounds=1)
    fleet.migrate("bundles-4", next_block=False)
    assert fleet.offered == [fleet.ids[item] for item in blocks()[1].pool]
    fleet.serve(1, rounds=2)
    fleet.migrate("bundles-6-block-2", next_block=True)
    assert len(fleet.offered) > len(blocks()[1].pool)
    fleet.serve(2)
    fleet.compare(twins.simulated)
    assert [opened.block for opened, _ in twins.begun.lineage.rounds] == [0] * ROUNDS + [1] * ROUNDS + [2] * ROUNDS
    device = fleet.device(fleet.users[0])
    assert device.status()["block"] == 2
    past = np.concatenate([blocks()[t].train[0] for t in range(2)])
    assert set(device.state.tensors["items.past"].tolist()) == set(past.tolist())
    assert set(device.state.tensors["items.own"].tolist()) == set(blocks()[2].train[0].tolist())


@pytest.mark.slow
def test_a_server_that_is_killed_within_a_block_goes_on_in_it(twins: Twins, tmp_path: Path) -> None:
    fleet = Fleet(twins.begun, tmp_path / "states")
    fleet.serve(0)
    fleet.migrate("bundles-3-block-1", next_block=True)
    held = {user: (fleet.device(user), fleet.items(user, 1)) for user in fleet.users}
    with killable(twins, fleet.states, held=held) as told:
        for point, call in (("a round offered", 1), ("the tensors", 1), ("an answer", 3)):
            assert told({"point": point, "how": "after", "call": call, "rounds": 99}) == -9
        assert told({"rounds": 2 * ROUNDS - twins.begun.lineage.over}) == 0
    assert twins.begun.lineage.over == 2 * ROUNDS
    fleet.migrate("bundles-6-block-2", next_block=True)
    fleet.serve(2)
    fleet.compare(twins.simulated)


def test_a_bundle_of_the_next_block_ends_the_one_before_on_a_device(twins: Twins, tmp_path: Path) -> None:
    """What is remembered is of the old bundle's items; whoever had nothing remembers nothing; undone, all is back."""
    fleet = Fleet(twins.begun, tmp_path / "states")
    fleet.serve(0, rounds=1)
    user, idle = fleet.users[0], open_device(fleet.bundle, tmp_path / "idle", user=fleet.users[1])
    device = fleet.device(user)
    before, old = device.state, set(fleet.offered)
    out = edgefr.export(twins.begun, served=True, next_block=True).path / CLASS
    scores, offered = device.scores(), device.catalogue.offered_items
    device.update(out)
    after = open_device(out, tmp_path / "states" / user).state
    best = offered[np.argsort(-scores[offered], kind="stable")[:5]]
    assert set(after.tensors["memory.items"].tolist()) == set(best.tolist())
    assert {fleet.ids[item] for item in after.tensors["memory.items"]} <= old
    assert after.tensors["items.past"].tolist() == before.tensors["items.own"].tolist()
    assert (len(after.tensors["items.own"]), after.facts["block"], after.facts["round"]) == (0, 1, 1)
    idle.update(out)
    new = open_device(out, tmp_path / "idle").state
    assert (new.facts["block"], "memory.items" in new.tensors) == (1, False)
    open_device(out, tmp_path / "states" / user).undo()
    assert fleet.device(user).state.facts["block"] == 0


def test_what_devices_cannot_do_over_blocks_is_refused(twins: Twins, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --served with --next-block"):
        edgefr.export(twins.begun, next_block=True)
    with pytest.raises(InputError, match=r"protocol\.name=leave-one-out"):
        rehearse(twins.begun, CLASS, 1, 2)
    experiment = twins.begun.experiment
    entry, asked = experiment.protocol.entry, experiment.continual
    for name, value in (("reset_private", True), ("labels", "anew"), ("item_rate", "present")):
        odd = experiment.model_copy(update={"continual": asked.model_copy(update={name: value})})
        assert f"continual.{name}=" in str(entry.unserved(odd))
    plain = worlds.fedmf().own(tmp_path / "plain")
    with serving(plain.begun, tmp_path / "served", 1) as (url, future):
        worlds.take_part(plain, url, tmp_path / "states", list(plain.users))
        future.result(60)
    with pytest.raises(InputError, match="a run over leave-one-out has no blocks of time"):
        edgefr.export(plain.begun, served=True, next_block=True)


def test_no_round_is_in_a_block_that_is_over(tmp_path: Path) -> None:
    lineage, head = Lineage.of(tmp_path), ""
    begun = Begun(run="0" * 64, model="0" * 64, ledger=None, round=0, clients=4, terms=None)
    opened = Opened(round=1, bundle="0" * 64, event=None, clients=[0], refused=[], block=2)
    closed = Closed(round=1, clients=[0], tensors=None, burnt=False)
    for one in (begun, opened, closed):
        line, head = sealed(one, head)
        lineage.add(line)
    line, _ = sealed(opened.model_copy(update={"round": 2, "block": 1}), head)
    with pytest.raises(ValueError, match="block 1 is over"):
        lineage.add(line)


def test_a_run_that_was_simulated_goes_on_in_the_block_after_its_last(twins: Twins, tmp_path: Path) -> None:
    """Devices learn what nobody simulated, and the server looks back at what the simulated blocks came to."""
    run = Run(shutil.copytree(twins.simulated.path, tmp_path / "simulated"))
    edgefr.export(run)
    learning = open_bundle(run.path / "bundles" / CLASS).config.learning
    assert learning is not None
    assert (learning.block, learning.round) == (3, 3 * ROUNDS)
    training = training_of(run, Devices(None, origins_of(run, CLASS), 1.0), 1)  # type: ignore[arg-type]
    training.engage()
    table, known = training.federation.previous["item"]
    assert_same(table, run.read_tensors("model")["shared.item"].numpy())
    assert known.numpy().nonzero()[0].tolist() == blocks()[2].pool.tolist()
