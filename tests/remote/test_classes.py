"""Devices of several classes, whose bundles differ, answer the same rounds and end where the simulator does."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edge.bundle import open_bundle
from edge.connection import Server
from edge.remote import join
from edgefr.serving.origin import Origins, together
from edgefr.serving.rehearsal import rehearse
from edgefr.serving.serve import origins_of, serve
from edgefr.simulation.runs.device_users import users_of_class
from edgefr.simulation.runs.upload_trust import Collecting
from edgefr.studies.reproductions.runs import IDEAL_FLEET
from privacy.errors import InputError
from tests.cli.commands import edgefr, refused
from tests.closeness import assert_same
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.test_same_as_simulator import compare_shared
from tests.remote.worlds import CLASS, FEDMF, ROUNDS, Told, Twins, killable, serving, session, take_part

OTHER = "phone_sd680"
BOTH = [CLASS, OTHER]
FLEET = {"fleet": str({**IDEAL_FLEET, "share": {CLASS: 0.5, OTHER: 0.5}}).replace("None", "null")}


@cache
def mixed() -> Twins:
    """FedMF on laptops and phones; its folders are only read."""
    twins = Twins.of(FEDMF | FLEET, worlds.kept())
    held = [open_bundle(twins.bundle_of(user)).manifest for user in twins.users]
    assert {found.device_class for found in held} == set(BOTH)
    assert len({found.bundle_id for found in held}) == 2
    return twins


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return mixed().own(tmp_path)


def test_devices_of_two_classes_end_where_the_simulator_does(twins: Twins, tmp_path: Path) -> None:
    """All classes that can learn are served where none is named."""
    with serving(twins.begun, tmp_path / "served", classes=None) as (url, future):
        counts = take_part(twins, url, tmp_path / "states", list(twins.users))
        result = future.result(60)
    assert {user: found.taken for user, found in counts.items()} == dict.fromkeys(twins.users, ROUNDS)
    said = result.summary["classes"]
    assert said.keys() == set(BOTH)
    assert sum(one["devices"] for one in said.values()) == len(twins.users)
    assert min(one["devices"] for one in said.values()) > 0
    compare_shared(twins, {name: value.numpy() for name, value in result.shared.items()})
    own = [open_device(twins.bundle_of(user), tmp_path / "states" / user) for user in twins.users]
    assert_same(np.stack([device.scores() for device in own]), twins.simulated_scores())
    opened = [line.bundle for line, _ in twins.begun.lineage.rounds]
    assert opened == [together(one["bundle"] for one in said.values())] * ROUNDS
    assert opened[0] not in [one["bundle"] for one in said.values()]


def test_one_class_of_several_is_rehearsed(twins: Twins, tmp_path: Path) -> None:
    """Its copy's bundle carries the users of that class alone; those of the others are no fault."""
    found = rehearse(twins.begun, OTHER, 1, 1, timeout_s=12.0, min_answers=1, out=tmp_path / "out").summary
    assert found["simulated"]["answers"] == found["happened"]["answers"] == [1]
    assert found["largest_difference"] < 1e-5
    (client,) = found["clients"]
    assert client["client"] in users_of_class(twins.begun, OTHER)


def test_devices_of_two_classes_are_in_one_sum(twins: Twins, tmp_path: Path) -> None:
    sealed = Collecting(sealed=True)
    result = session(twins, tmp_path / "states", out=tmp_path / "served", classes=BOTH, collecting=sealed)
    assert (result.summary["missing"], result.summary["given_up"]) == ([0] * ROUNDS, {})
    simulated = twins.simulated.read_tensors("model")
    for name, value in result.shared.items():
        np.testing.assert_allclose(value.numpy(), simulated[f"shared.{name}"].numpy(), rtol=0, atol=1e-4)


def test_a_server_of_two_classes_that_was_killed_goes_on_with_their_answers(twins: Twins, tmp_path: Path) -> None:
    with killable(twins, tmp_path / "states", ",".join(BOTH)) as told:
        assert told({"point": "an answer", "how": "after", "call": 9, "rounds": ROUNDS}) == -9
        assert told({"rounds": ROUNDS - 1}) == 0
    assert [closed is not None and closed.burnt for _, closed in twins.begun.lineage.rounds] == [False] * ROUNDS
    compare_shared(twins, load_file(twins.begun.path / "served" / "shared.safetensors"))


def test_a_round_that_other_classes_were_asked_for_is_given_up(twins: Twins, tmp_path: Path) -> None:
    with closing(Told(twins.begun, ",".join(BOTH))) as told:
        assert told({"point": "a round offered", "how": "after", "call": 1, "rounds": 1}) == -9
    with pytest.raises(InputError, match="nothing was published"):
        serve(twins.begun, CLASS, 1, timeout_s=0.1, min_answers=1, out=tmp_path / "served", ready=lambda url: None)
    (first, closed), (second, _) = twins.begun.lineage.rounds
    assert closed is not None
    assert closed.burnt
    assert (first.bundle, second.bundle) == (
        origins_of(twins.begun, BOTH).bundle,
        origins_of(twins.begun, CLASS).bundle,
    )


def test_a_device_with_the_bundle_of_another_class_learns_nothing_for_it(twins: Twins, tmp_path: Path) -> None:
    user = next(user for user in twins.users if twins.bundle_of(user).name == OTHER)
    with serving(twins.begun, tmp_path / "served", 1, classes=BOTH, timeout_s=1.0, min_answers=1) as (url, future):
        worlds.known(twins.begun, tmp_path / "state", user)
        device = open_device(twins.bundle, tmp_path / "state")
        task = Server(url, worlds.known(twins.begun, tmp_path / "state", user)).task(0, 1 << 20)
        assert task is not None
        assert task.bundle == open_bundle(twins.bundle_of(user)).manifest.bundle_id
        with pytest.raises(InputError, match="takes this device to hold bundle"):
            join(device, url, twins.items(user))
        assert (device.status()["releases"], device.status()["interactions"]) == (0, 0)
        with pytest.raises(InputError, match="nothing was published"):
            future.result(60)


def test_classes_that_cannot_be_served_together_are_refused(twins: Twins, tmp_path: Path) -> None:
    for classes, words in (
        ([CLASS, CLASS], "names each class of devices once"),
        ([], "names each class of devices once"),
        ([CLASS, "laptop"], "unknown device class 'laptop'"),
    ):
        with pytest.raises(InputError, match=words):
            serve(twins.begun, classes, 1, out=tmp_path / "new")
    found = origins_of(twins.begun, BOTH).classes
    other = replace(found[OTHER], learning=found[OTHER].learning.model_copy(update={"seed": 1}))
    with pytest.raises(InputError, match="do not learn alike"):
        Origins({CLASS: found[CLASS], OTHER: other})
    with pytest.raises(InputError, match="devices of two classes"):
        Origins({CLASS: found[CLASS], OTHER: replace(found[OTHER], users=found[CLASS].users)})
    shared = {name: value.clone() for name, value in twins.begun.read_tensors("model").items()}
    shared = {name.removeprefix("shared."): value for name, value in shared.items() if name.startswith("shared.")}
    shared["item"][3] += 2.0**-12
    with pytest.raises(InputError, match=f"class {CLASS}: the bundle's item is not the run's, or in fewer bits"):
        origins_of(twins.begun, BOTH).check(shared)


def test_a_rehearsal_is_of_one_class(twins: Twins, tmp_path: Path) -> None:
    asked = ("serve", twins.begun.path, "--rounds", "1", "--rehearse", "2")
    for more in ((), ("--bundle-class", CLASS, "--bundle-class", OTHER)):
        done = edgefr(*asked, *more, cache=tmp_path)
        assert "one class rehearse together" in refused(done.returncode, done.stdout, done.stderr)


def test_where_no_class_can_learn_none_is_served(twins: Twins, tmp_path: Path) -> None:
    shutil.rmtree(twins.begun.path / "bundles" / OTHER)
    assert list(origins_of(twins.begun, None).classes) == [CLASS]
    with pytest.raises(InputError, match=r"no device of a user of .* can learn"):
        origins_of(twins.begun, None, clients=[])
