"""Devices and servers say in words how rounds stand, and their tables hold no raw values."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge.remote import TrafficCounts
from edgefr.cli.app import app
from edgefr.config.sheet import plainly
from tests.remote import worlds
from tests.remote.worlds import serving, take_part


def test_a_device_says_which_round_it_is_in(tmp_path: Path) -> None:
    twins, heard = worlds.fedmf().own(tmp_path), []
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
    twins = worlds.fedmf().own(tmp_path)
    user = next(iter(twins.users))
    worlds.known(twins.begun, tmp_path / "state", user)
    (tmp_path / "own.txt").write_text("\n".join(twins.items(user)))
    monkeypatch.setattr("edge.remote.join", lambda *given, **options: done)
    given = ["--state", str(tmp_path / "state"), "--url", "http://127.0.0.1:1"]
    given += ["--interactions", str(tmp_path / "own.txt")]
    found = CliRunner().invoke(app, ["device", "join", str(twins.bundle), *given])
    assert found.exit_code == 0, found.output
    assert ("the server has no further round" in found.output) != asked


def test_tables_hold_no_raw_values() -> None:
    """As a summary of `edgefr serve` has them."""
    classes = {"laptop_x86": {"bundle": "0b54bee1" * 8, "devices": 12}, "tv": {}}
    assert plainly(classes) == "laptop_x86 (bundle 0b54bee10b54bee1...; devices 12); tv none"
    assert [plainly(value) for value in (1.3858218423083066, 12345, True, [0, 1], [], None, "inf")] == [
        *("1.386", "12,345", "yes", "0, 1", "none", "none", "inf")
    ]
