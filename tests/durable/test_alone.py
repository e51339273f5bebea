"""A run's folder belongs to one process at a time, so what is in it is of one run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgefr.simulation.runs.layout import LOCK
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.machine import alone, hold
from tests.cli.commands import ROOT, environment


def test_a_folder_in_which_somebody_works_is_left_to_them(tmp_path: Path) -> None:
    with Run.started(tmp_path / "run") as run:
        with pytest.raises(InputError, match="another process is at work"), Run.started(run.path):
            pass
        (run.path / "experiment.yaml").write_text("{}")
        with pytest.raises(InputError, match="another process is at work"), Run.going_on(run.path):
            pass
    assert [path.name for path in run.path.iterdir()] == ["experiment.yaml"]


def test_who_finds_the_folder_empty_and_then_waits_finds_it_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(path: Path) -> int:
        monkeypatch.undo()
        with Run.started(path.parent) as first:
            (first.path / "experiment.yaml").write_text("{}")
        return alone(path)

    monkeypatch.setattr("edgefr.simulation.runs.folder.alone", late)
    with pytest.raises(InputError, match="already holds a run that did not finish"), Run.started(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / "experiment.yaml").read_text() == "{}"


def test_a_killed_process_leaves_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with Run.started(tmp_path) as run:
        assert (run.path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_deleted_holds_nobody_up_and_nobody_holds_it(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    first = hold(path)
    path.unlink()
    second = alone(path)
    with pytest.raises(BlockingIOError):
        alone(path)
    for handle in (first, second):
        os.close(handle)


def test_of_two_commands_that_begin_at_once_one_is_refused(tmp_path: Path) -> None:
    small = ["--set", "method=fedmf", "--set", "data_options.users=60", "--set", "data_options.items=160"]
    small += ["--set", "data_options.interactions=12", "--set", "protocol.negatives=20", "--no-bundles"]
    began = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "edgefr",
                "simulate",
                *small,
                "--set",
                f"rounds={rounds}",
                "--out",
                tmp_path / "run",
            ],
            cwd=ROOT,
            env=environment(tmp_path / "cache"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rounds in (2, 3)
    ]
    said = [process.communicate(timeout=300)[0] for process in began]
    assert sorted(process.returncode for process in began) == [0, 2], said
    (rounds,) = (n for n, process in zip((2, 3), began, strict=True) if process.returncode == 0)
    run = Run.open(tmp_path / "run")
    assert run.experiment.rounds == run.summary["rounds"] == rounds
