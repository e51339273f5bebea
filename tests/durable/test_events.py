"""The log of events and the record of a run: written as it happens, cut back to a checkpoint, swept after a kill."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgefr.experiment.experiment import Experiment
from edgefr.fleet import load_fleet
from edgefr.simulation.runs.event_log import EventLog
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from tests.cli.commands import ROOT

EVENTS: list[dict[str, Any]] = [{"time": n / 8, "seq": n, "kind": "lost", "client": None} for n in range(5)]
LINES = [json.dumps(event) + "\n" for event in EVENTS]
TEXT = "".join(LINES)


def test_events_can_be_read_as_soon_as_they_happen(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    assert log.flush() == 0
    assert not log.path.exists(), "nothing happened yet"
    log.append("".join(LINES[:2]))
    assert log.path.read_text() == TEXT[: log.flush()]
    log.append("")
    log.append("".join(LINES[2:]))
    assert log.path.read_text() == TEXT
    assert log.flush() == len(TEXT)
    assert EventLog(log.path).flush() == len(TEXT), "another process finds the same length"


def test_a_log_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("".join(LINES[:2]))
    kept = log.flush()
    log.append("".join(LINES[3:]))
    log.cut(kept)
    log.append("".join(LINES[2:]))
    assert log.path.read_text() == TEXT
    with open(log.path, "ab") as file:
        file.write(b'{"time": 9')  # a line that a kill cut short
    after = EventLog(log.path)
    after.cut(kept)
    after.append("".join(LINES[2:]))
    assert log.path.read_text() == TEXT
    after.cut(0)
    assert log.path.read_bytes() == b""
    EventLog(tmp_path / "new.jsonl").cut(0)
    assert (tmp_path / "new.jsonl").read_bytes() == b""


@pytest.mark.parametrize("there", [TEXT[:-1], "", None])
def test_a_log_is_never_filled_up(there: str | None, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    if there is not None:
        log.path.write_text(there)
    with pytest.raises(InputError, match=r"events.jsonl is shorter than the run's checkpoint remembers; put it back"):
        log.cut(len(TEXT))
    assert log.path.read_text() == (there or "")


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = EventLog(tmp_path / "events.jsonl")
    log.append(TEXT)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*events.jsonl: No space left on device; fix that first"):
        log.flush()
    with pytest.raises(InputError, match="cannot write /dev/full: No space left on device"):
        EventLog(Path("/dev/full")).append(TEXT)
    with pytest.raises(InputError, match=r"cannot write .*: No such file or directory"):
        EventLog(tmp_path / "nowhere" / "events.jsonl").append(TEXT)


def test_what_was_asked_for_is_taken_back_when_it_is_refused_and_kept_when_interrupted(tmp_path: Path) -> None:
    fleet = load_fleet(ROOT / "devices.yaml")
    for error, names in ((InputError, set()), (RuntimeError, set()), (KeyboardInterrupt, {"experiment", "devices"})):
        run = Run.create(tmp_path / error.__name__)
        with pytest.raises(error), run.recorded(Experiment(rounds=3), fleet):
            raise error(run.experiment.rounds)
        assert {path.stem for path in run.path.glob("*")} == names
        assert run.path.exists() == bool(names)


def test_sweeping_removes_what_was_half_written_and_nothing_else(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for name in ("checkpoint/round-00000001", "checkpoint/.round-00000002.part", "bundles/a", "a.part", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "state.json").write_text("x")
    for name in ("bundles/a/.model.onnx.x1.part", ".summary.json.x2.part", "bundles/b.part", "experiment.yaml"):
        (tmp_path / name).write_text("x")
    run.sweep()
    kept = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    folders = ("checkpoint/round-00000001", "bundles/a", "a.part", ".hidden")
    assert kept == {"experiment.yaml", "bundles/b.part", *(f"{name}/state.json" for name in folders)}
    run.forget()
    assert not (tmp_path / "experiment.yaml").exists()
    assert (tmp_path / "bundles" / "a" / "state.json").exists()
