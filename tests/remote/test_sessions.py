"""Runs over sessions: in every round a device meets the next session of its user, and ends where the simulator does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edge.connection import Patience
from edge.device import Device
from edge.interaction_file import read_stream
from edge.remote import Own, TrafficCounts, join
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.worlds import ROUNDS, Twins, known, serving

USERS, SESSIONS, DAY = 6, 6, 86_400
QUICK = Patience(tries=3, pause_s=0.05)
OVER_SESSIONS = {
    "method": "fcucr",
    "model.prototypes": "none",
    "model.dim": 4,
    "model.hidden": 8,
    "model.length": 6,
    "model.lr": 0.01,
    "local_epochs": 2,
    "batch_size": None,
    "protocol.negatives": 10,
    "evaluation.k": "[10]",
    **{f"data_options.{name}": None for name in ("users", "items", "interactions")},
}
OVER_SESSIONS_OF_SETS = {"method": "fedmf", "protocol.name": "sessions"}


@cache
def _world() -> Twins:
    """FCUCR without prototypes, of users who have a session a day; its folders are only read."""
    folder, draw = worlds.kept(), np.random.default_rng(19)
    rows = ["user,item,timestamp"]
    for user in range(USERS):
        for session in range(SESSIONS):
            for place, item in enumerate(draw.choice(40, 5, replace=False)):
                rows.append(f"u{user},i{item:02},{1_700_000_000 + DAY * session + user + 60 * place}")
    (folder / "own.csv").write_text("\n".join(rows) + "\n")
    return Twins.of(OVER_SESSIONS | {"data": str(folder / "own.csv")}, folder)


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return _world().own(tmp_path)


def stream(run: Run, user: int) -> tuple[list[str], list[int]]:
    """A user's training sessions, end to end: items and times."""
    sessions, ids = prepare(run.experiment, None, "cpu").sessions, open_model(run).model.names.items
    assert sessions is not None
    numbers = sessions.train[user]
    assert len(numbers) >= ROUNDS
    items = [ids[item] for number in numbers for item in sessions.items[number]]
    return items, [int(time) for number in numbers for time in sessions.times[number]]


def before_anything(twins: Twins, state: Path, user: str) -> Device:
    """A simulated user's device before its first session; the bundle with users brings the newest one."""
    made = not state.exists() or not list(state.glob("state*"))
    device = open_device(twins.bundle, state, user=user)
    if made:
        found = device.state
        found.put("session", {"items": np.empty(0, np.int64), "times": np.empty(0, np.int64)})
        device.store.write(found)
    return device


def take_part(twins: Twins, url: str, states: Path) -> dict[str, TrafficCounts]:
    users = open_model(twins.begun).model.names.users

    def one(user: str) -> TrafficCounts:
        known(twins.begun, states / user, user)
        device = before_anything(twins, states / user, user)
        return join(device, url, *stream(twins.begun, users.index(user)), patience=QUICK)

    with ThreadPoolExecutor(len(users)) as pool:
        return dict(zip(users, pool.map(one, users), strict=True))


def test_devices_meet_session_after_session_and_end_where_the_simulator_does(twins: Twins, tmp_path: Path) -> None:
    """Three rounds in two sittings of server and devices: what was met is not met again."""
    for rounds in (1, 2):
        with serving(twins.begun, None, rounds) as (url, future):  # type: ignore[arg-type]
            counts = take_part(twins, url, tmp_path / "states")
            result = future.result(60)
        assert {found.taken for found in counts.values()} == {rounds}
    simulated, first = (run.read_tensors("model") for run in (twins.simulated, twins.begun))
    found = {f"shared.{name}": value.numpy() for name, value in result.shared.items()}
    users = open_model(twins.begun).model.names.users
    states = [open_device(twins.bundle, tmp_path / "states" / user, user=user).state for user in users]
    own = [name for name in simulated if name.startswith("private.")]
    assert own, "nobody has an MLP of the own"
    found |= {name: np.stack([state.tensors[name] for state in states]) for name in own}
    moved = {name: float((simulated[name] - first[name]).abs().max()) for name in found}
    assert min(moved["shared.item"], max(moved[name] for name in own)) > 1e-3
    for name, value in found.items():
        np.testing.assert_allclose(value, simulated[name].numpy(), rtol=0, atol=1e-4, err_msg=name)


def test_a_device_takes_up_a_session_a_round_and_none_twice(twins: Twins, tmp_path: Path) -> None:
    user = open_model(twins.begun).model.names.users[0]
    device, (items, times) = before_anything(twins, tmp_path / user, user), stream(twins.begun, 0)
    own = Own(items, times)
    assert own.of_round(device, 1) == (items[:5], times[:5])
    device.learn(items[:3], times[:3])
    assert own.of_round(device, 1) == ([], []), "it has learned in this round"
    assert own.of_round(device, 2) == (items[3:5], times[3:5]), "its session goes on"
    device.practise(items[3:5], times[3:5])
    assert own.of_round(device, 2) == (items[5:10], times[5:10])
    device.practise(items[-5:], times[-5:])
    assert own.of_round(device, 3) == ([], []), "the last one is met again"
    for wrong in (times[:-1], times[::-1]):
        with pytest.raises(InputError, match="one time for each"):
            Own(items, wrong).of_round(device, 3)
    plain = worlds.fedmf()
    who = next(iter(plain.users))
    with pytest.raises(InputError, match="reads no sessions"):
        Own(["i1"], [1]).of_round(open_device(plain.bundle, tmp_path / "plain", user=who), 1)


def test_a_file_says_when_or_does_not(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    for text, wanted in (
        ("item\ttime\ni1\t100\ni2\t160\n", (["i1", "i2"], [100, 160])),
        ("i1\t100\n", (["i1"], [100])),
        ("item\ni1\ni2\n", (["i1", "i2"], None)),
        ("", ([], None)),
    ):
        path.write_text(text)
        assert read_stream(path) == wanted
    for text in ("i1\t100\ni2\n", "i1\tnow\n", "i1\t-5\n", "i1\t1e3\n"):
        path.write_text(text)
        with pytest.raises(InputError, match="without a time"):
            read_stream(path)


def test_what_devices_cannot_do_over_sessions_is_refused(twins: Twins) -> None:
    experiment = twins.begun.experiment
    entry, protocol = experiment.protocol.entry, experiment.protocol
    assert entry.unserved(experiment) is None
    cyclic = experiment.model_copy(update={"protocol": protocol.model_copy(update={"stream": "cyclic"})})
    assert "protocol.stream=one-pass" in str(entry.unserved(cyclic))
    of_sets = worlds.experiment_of(OVER_SESSIONS_OF_SETS, 0)
    assert "use a method that reads sessions" in str(of_sets.protocol.entry.unserved(of_sets))
