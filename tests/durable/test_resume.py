"""`edgefr simulate --resume`: what it goes on with, what it refuses, and what may change on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edgefr
from edgefr.simulation.simulate import resume
from privacy.errors import InputError
from privacy.noise_key import NoiseKey
from tests.cli.commands import ROOT, environment, refused, without_progress
from tests.cli.conftest import Cli
from tests.durable import runs
from tests.durable.conftest import command


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def saved(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("checkpoint/*round-*"))


def damage(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_broken_run_goes_on_and_keeps_its_checkpoints(broken: Path, whole: Path, cli: Cli) -> None:
    (broken / ".summary.json.abc.part").write_text("{")
    (broken / "checkpoint" / ".round-00000009.part").mkdir()
    code, out, err = cli("simulate", "--no-bundles", "--resume", broken)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith(f"run: {broken}")
    assert runs.differences(broken, runs.result(whole)) == []
    assert saved(broken) == saved(whole) == ["round-00000003", "round-00000004"]
    before = tree(broken)
    line = refused(*cli("simulate", "--resume", broken))
    assert line == f"error: the run in {broken} is finished; nothing is left to do"
    assert tree(broken) == before


def test_checkpoints_can_be_had_more_seldom_from_then_on(broken: Path, whole: Path, cli: Cli) -> None:
    shutil.rmtree(broken / "checkpoint" / "round-00000003")
    code, _, err = cli("simulate", "--no-bundles", "--checkpoint-every", "3", "--resume", broken)
    assert (code, err) == (0, "")
    assert saved(broken) == ["round-00000003"], "from its beginning, and no checkpoint of rounds 1, 2 and 4"
    assert runs.differences(broken, runs.result(whole)) == []


def test_what_is_no_run_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "devices.yaml").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    before = tree(tmp_path)
    for name, start in (
        ("missing", f"--out {tmp_path / 'missing'}"),
        ("empty", f"--out {tmp_path / 'empty'}"),
        ("notes", "another --out"),
        ("file", "another --out"),
    ):
        line = refused(*cli("simulate", "--resume", tmp_path / name))
        assert line.endswith(f"{name} holds no run to continue (no experiment.yaml); start it with {start}")
    assert tree(tmp_path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "notes"]


UNCHANGED = "error: {} cannot change a run that is resumed; start another one with --out"
CHANGES = ("--experiment x.yaml", "--data demo", "--seed 0", "--seeds 2", "--set rounds=9", "--out elsewhere")
CHANGES += ("--device cpu", "--devices mine.yaml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *((change, UNCHANGED.format(change.split()[0])) for change in CHANGES),
        ("--executor inlin", "'inlin'; did you mean 'inline'?"),
        ("--workers 9999", "less than or equal to 256"),
    ],
)
def test_options_that_would_change_a_run_and_executors_that_do_not_exist_are_refused(
    change: str, words: str, broken: Path, cli: Cli
) -> None:
    before = tree(broken)
    line = refused(*cli("simulate", "--resume", broken, *change.split()))
    assert words in line
    assert change.split()[0].removeprefix("--") in line
    assert tree(broken) == before


def test_another_executor_may_finish_it(broken: Path, whole: Path, cli: Cli) -> None:
    shutil.rmtree(broken / "checkpoint" / "round-00000003")
    code, _, err = cli("simulate", "--no-bundles", "--executor", "processes", "--workers", "2", "--resume", broken)
    assert (code, err) == (0, "")
    assert edgefr.Run(broken).summary["engine"]["executor"] == "processes"
    assert runs.differences(broken, runs.result(whole)) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("experiment.yaml", "\nseed: 0\n", "\nseed: 1\n"),
        ("experiment.yaml", "users: 60", "users: 61"),
        ("devices.yaml", "  dropout: 0.1", "  dropout: 0.2"),
    ],
)
def test_checkpoints_of_another_experiment_or_fleet_are_refused(
    file: str, old: str, new: str, broken: Path, cli: Cli
) -> None:
    text = (broken / file).read_text()
    assert text.count(old) == 1
    (broken / file).write_text(text.replace(old, new))
    before = tree(broken)
    line = refused(*cli("simulate", "--no-bundles", "--resume", broken))
    assert "round-00000003 belongs to another experiment, fleet or data set; resume with the files and data" in line
    assert tree(broken) == before


@pytest.mark.parametrize("file", ["arrays.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(file: str, broken: Path, whole: Path, cli: Cli) -> None:
    shutil.copytree(whole / "checkpoint" / "round-00000004", broken / "checkpoint" / "round-00000004")
    damage(broken / "checkpoint" / "round-00000004" / file)
    code, _, err = cli("simulate", "--no-bundles", "--resume", broken)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith(f"warning: checkpoint {broken / 'checkpoint' / 'round-00000004'} is damaged")
    assert line.endswith("going on from the one before")
    assert runs.differences(broken, runs.result(whole)) == []


def test_a_log_that_lost_lines_is_said_in_one_line(broken: Path, cli: Cli) -> None:
    (broken / "events.jsonl").write_text("")
    line = refused(*cli("simulate", "--no-bundles", "--resume", broken))
    assert "events.jsonl is shorter than the run's checkpoint remembers; put it back" in line


INTERRUPTED = """
import os, signal, sys
from edgefr.simulation.runs import checkpoint
from edgefr.cli.app import main
signal.signal(signal.SIGINT, signal.default_int_handler)
real = checkpoint.write
def write(folder, rounds, *rest):
    real(folder, rounds, *rest)
    if rounds == 2:
        os.kill(os.getpid(), signal.SIGINT)
checkpoint.write = write
sys.argv = ["edgefr", *sys.argv[1:]]
main()
"""
"""The command line, which is interrupted as soon as its second checkpoint is on the disk, however fast it runs."""


def test_ctrl_c_can_be_resumed(place: Path, cache: Path, cli: Cli, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = map(str, ["simulate", *command(place, "fedmf"), "--out", out])
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *options], cwd=ROOT, env=surroundings, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert without_progress(done.stderr).splitlines() == [
        f"go on with edgefr simulate --resume {out} --no-bundles",
        "interrupted: finished work is kept, and no file is half written",
    ]
    assert saved(out) == ["round-00000001", "round-00000002"]
    assert not (out / "summary.json").exists()
    assert cli("simulate", "--no-bundles", "--resume", out)[::2] == (0, "")
    assert runs.differences(out, runs.result(whole)) == []


def test_seeds_are_resumed_by_their_common_folder(broken: Path, whole: Path, cli: Cli, tmp_path: Path) -> None:
    """Seed 0 broke off, seed 1 was killed before its experiment was written."""
    parent = tmp_path / "seeds"
    (parent / "seed-1").mkdir(parents=True)
    (parent / "seed-1" / ".experiment.yaml.abc.part").write_text("name: ti")
    for name in ("experiment.yaml", "devices.yaml"):
        shutil.copy(broken / name, parent / name)
    shutil.copy(broken / "devices.yaml", parent / "seed-1" / "devices.yaml")
    shutil.move(broken, parent / "seed-0")
    (parent / "seeds.json").write_text("{")
    assert "seeds.json" in refused(*cli("simulate", "--no-bundles", "--resume", parent))
    (parent / "seeds.json").write_text(json.dumps({"first": 0, "number": 2}))
    with pytest.raises(InputError, match="holds a run per seed"):
        resume(parent)
    code, out, err = cli("simulate", "--no-bundles", "--resume", parent)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith(f"runs: {parent}")
    assert runs.differences(parent / "seed-0", runs.result(whole)) == []
    assert edgefr.Run(parent).summary["seeds"] == [0, 1]
    assert "is finished" in refused(*cli("simulate", "--resume", parent))


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_was_stopped_before_anything_was_drawn_keeps_the_noise_it_was_given(
    seeds: int, place: Path, whole: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("edgefr.simulation.prepare.prepare", interrupted)
        assert cli("simulate", *command(place, "fedmf"), "--seeds", str(seeds), "--out", out)[0] == 130
    given = NoiseKey.read(place / "noise.key")
    assert NoiseKey.read(out / "private" / "noise.key") == given
    code, _, err = cli("simulate", "--no-bundles", "--checkpoint-every", "1", "--resume", out)
    assert (code, err) == (0, "")
    keys = [NoiseKey.read(path) for path in out.rglob("noise.key")]
    assert set(keys) == {given}
    assert len({key.of for key in keys}) == len(keys)
    assert all(key.of for key in keys)
    assert len(list(out.rglob("noise.key"))) == (1 if seeds == 1 else 1 + seeds)
    assert runs.differences(out if seeds == 1 else out / "seed-0", runs.result(whole)) == []


@pytest.mark.parametrize("kept", [False, True])
def test_who_interrupts_a_run_is_told_the_line_that_goes_on_with_it(
    kept: bool, place: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is not remembered: that it had no bundles."""
    out = tmp_path / "run"

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    asked: list[Any] = ["--experiment", place / "fedmf.yaml", "--no-bundles", "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr("edgefr.simulation.runs.saved_model.save_model", interrupted)
        code, _, err = cli("simulate", *asked, *(["--checkpoint-every", "1"] if kept else []))
    assert code == 130
    line = f"go on with edgefr simulate --resume {out} --no-bundles"
    assert line in err
    assert ("from its beginning" in err) != kept
    code, _, err = cli("simulate", *line.split()[5:])
    assert (code, err) == (0, "")
    assert not (out / "bundles").exists()


def test_without_a_whole_checkpoint_it_starts_from_the_beginning(broken: Path, whole: Path, cli: Cli) -> None:
    damage(broken / "checkpoint" / "round-00000003" / "state.json")
    code, _, err = cli("simulate", "--no-bundles", "--resume", broken)
    assert code == 0
    assert err.splitlines()[-1].endswith("is whole; starting from the beginning")
    assert runs.differences(broken, runs.result(whole)) == []


def test_data_that_cannot_be_read_leave_no_trace_of_a_new_run(place: Path, cli: Cli, tmp_path: Path) -> None:
    options: list[Any] = ["--experiment", place / "fedmf.yaml", "--set", "protocol.min_interactions=9999"]
    assert "no user" in refused(*cli("simulate", *options, "--out", tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []
