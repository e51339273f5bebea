"""A round that waits says how many answers it has and needs; devices say which round they are in."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge.remote import TrafficCounts
from edgefr.cli.app import app
from edgefr.config.progress import logged
from edgefr.config.sheet import plainly
from edgefr.serving.round_status import awaited
from tests.remote.test_buffered import Alone
from tests.remote.test_sealing import USERS, VECTORS, World
from tests.remote.worlds import fedmf, known, serving, take_part


def test_a_server_says_what_its_open_round_waits_for(tmp_path: Path) -> None:
    twins, told, file = fedmf().own(tmp_path), [], io.StringIO()

    def progress(*said: object) -> None:
        told.append(said)
        report(*said)  # type: ignore[arg-type]

    with (
        logged(file, first=0.05) as report,
        serving(twins.begun, tmp_path / "served", 1, progress=progress) as (url, future),
    ):
        while "answers" not in file.getvalue():
            threading.Event().wait(0.05)
        take_part(twins, url, tmp_path / "states", list(twins.users))
        future.result(60)
    assert "answers 0/6: round 1, 3 needed\n" in file.getvalue()
    counts = [said[1] for said in told if said[0] == "answers"]
    assert counts[0] == 0
    assert counts == sorted(set(counts)), "each count is told once, however often devices ask"
    assert {said[2:] for said in told if said[0] == "answers"} == {(6, "round 1, 3 needed")}


def test_a_sum_under_masks_says_which_step_it_waits_in() -> None:
    world, told = World(), []
    inner = world.round.collect
    world.round.collect = lambda timeout_s: inner(timeout_s, lambda *said: told.append(said))  # type: ignore[method-assign,assignment]
    assert world.collected(VECTORS) is not None
    assert told[0] == (0, len(USERS), " or more, step keys of a secure sum")
    assert {of for _, of, _ in told} == {len(USERS)}


def test_a_round_that_waits_for_nobody_says_who_is_at_work() -> None:
    alone = Alone()
    leader = alone.open(5)
    for device in "abc":
        assert alone.asks(device, 0)
        alone.broker.submit(device, 5, alone.release(5))
    leader.join(10)
    assert alone.told[0] == (0, 3, ", 0 at work")
    assert (0, 3, ", 1 at work") in alone.told


def test_what_hears_of_it_holds_no_lock() -> None:
    changed, there, free = threading.Condition(), [], []

    def tell(count: int) -> None:
        found = threading.Thread(target=lambda: free.append(changed.acquire(timeout=5)) or changed.release())
        found.start()
        found.join()
        there.append(count)

    awaited(changed, lambda: len(there) > 2, lambda: len(there), 10.0, tell)
    assert (there, free) == ([0, 1, 2], [True] * 3)


def test_a_device_says_which_round_it_is_in(tmp_path: Path) -> None:
    twins, heard = fedmf().own(tmp_path), []
    users = list(twins.users)
    with serving(twins.begun, tmp_path / "served", 2) as (url, future):
        take_part(twins, url, tmp_path / "states", users, progress=lambda *said: heard.append(said))
        future.result(60)
    for number in (1, 2):
        assert heard.count((f"round {number}", 0, 1, "asked, learning and sending")) == len(users)
        assert heard.count((f"round {number}", 1, 1, "answered, waiting for the next")) == len(users)


@pytest.mark.parametrize(("done", "asked"), [(TrafficCounts(), False), (TrafficCounts(late=1), True)])
def test_a_device_that_came_after_the_last_round_says_so(
    done: TrafficCounts, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = fedmf().own(tmp_path)
    user = next(iter(twins.users))
    known(twins.begun, tmp_path / "state", user)
    (tmp_path / "own.txt").write_text("\n".join(twins.items(user)))
    monkeypatch.setattr("edge.remote.join", lambda *given, **options: done)
    given = ["--state", str(tmp_path / "state"), "--url", "http://127.0.0.1:1"]
    given += ["--interactions", str(tmp_path / "own.txt")]
    found = CliRunner().invoke(app, ["device", "join", str(twins.bundle), *given])
    assert found.exit_code == 0, found.output
    assert ("the server has no more rounds" in found.output) != asked


def test_tables_hold_no_raw_values() -> None:
    """As a summary of `edgefr serve` has them."""
    classes = {"laptop_x86": {"bundle": "0b54bee1" * 8, "devices": 12}, "tv": {}}
    assert plainly(classes) == "laptop_x86 (bundle 0b54bee10b54bee1...; devices 12); tv none"
    assert [plainly(value) for value in (1.3858218423083066, 12345, True, [0, 1], [], None, "inf")] == [
        *("1.386", "12,345", "yes", "0, 1", "none", "none", "inf")
    ]
