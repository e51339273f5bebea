"""Functions of the Python API give what the commands of the same names give."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import edgefr
from privacy.errors import InputError
from privacy.noise_key import NoiseKey
from tests import answers
from tests.cli import commands


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("functions")


@pytest.fixture(scope="module")
def run(place: Path) -> edgefr.Run:
    return edgefr.simulate(answers.experiment(), answers.fleet(), out=place / "run", bundles=False)


def told(place: Path, *arguments: str | Path) -> str:
    done = commands.edgefr(*arguments, cache=place / "cache")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_export(run: edgefr.Run, place: Path) -> None:
    ours = edgefr.export(run, place / "ours", zipped=True)
    told(place, "export", "--run", run.path, "--out", place / "theirs", "--zip")
    assert set(ours.classes["class"]) == set(answers.SHARES)
    for name in ours.classes["class"]:
        for file in sorted(path for path in (place / "ours" / name).rglob("*") if path.is_file()):
            assert file.read_bytes() == (place / "theirs" / file.relative_to(place / "ours")).read_bytes(), file
        assert (place / "ours" / f"{name}.zip").read_bytes() == (place / "theirs" / f"{name}.zip").read_bytes()
    assert answers.fits_a_screen(repr(ours)), repr(ours)


def test_audit(run: edgefr.Run, place: Path) -> None:
    ours = edgefr.audit(str(run.path), ["sign-split"], users=4)
    theirs = json.loads(told(place, "audit", run.path, "--attacks", "sign-split", "--users", "4", "--json"))
    assert theirs == json.loads(ours.path.read_text())
    measured = ("worst", "figure", "chance")  # real noise is drawn anew for every audit
    checks = [
        [{key: value for key, value in row.items() if key not in measured} for row in report.pop("checks")]
        for report in (dict(ours.report), theirs)
    ]
    assert checks[0] == checks[1]
    assert {**ours.report, "checks": []} == {**theirs, "checks": []}
    assert list(ours.attacks["attack"]) == ["sign-split"]
    assert ours.eps_lb95 is None
    assert answers.fits_a_screen(repr(ours)), repr(ours)


@pytest.mark.slow
def test_sweep(place: Path) -> None:
    experiment = place / "experiment.yaml"
    edgefr.Run(place).write_experiment(answers.experiment())
    ours = edgefr.sweep(edgefr.load_experiment(experiment), {"rounds": [1, 2]}, out=place / "ours-sweep")
    same = ("--noise-key", place / "ours-sweep" / "private" / "noise.key")
    told(place, "sweep", "--experiment", experiment, "--grid", "rounds=[1,2]", "--out", place / "theirs-sweep", *same)
    apart = ["seconds"]
    frames = [pd.read_csv(place / f"{who}-sweep" / "runs.csv").drop(columns=apart) for who in ("ours", "theirs")]
    pd.testing.assert_frame_equal(*frames)
    assert list(ours.runs["rounds"]) == ["1", "2"]
    assert [edgefr.Run.open(folder).experiment.rounds for folder in ours.runs["folder"]] == [1, 2]
    assert ours.failures == {}
    assert (place / "ours-sweep" / "sweep.csv").read_text() == (place / "theirs-sweep" / "sweep.csv").read_text()
    assert list(ours.tables["sweep"]["rounds"]) == ["1", "2"]
    assert answers.fits_a_screen(repr(ours)), repr(ours)
    other = place / "other.key"
    NoiseKey.new().write(other)
    with pytest.raises(InputError, match=r"draws its noise by another key, .*: leave the noise key out"):
        edgefr.sweep(answers.experiment(), {"rounds": [1, 2]}, resume=place / "ours-sweep", noise_key=other)
    again = edgefr.sweep(answers.experiment(), {"rounds": [1, 2]}, resume=place / "ours-sweep")
    pd.testing.assert_frame_equal(again.runs.drop(columns=apart), ours.runs.drop(columns=apart))


def test_calibrate_and_reproduce_are_refused_as_the_commands_are(place: Path) -> None:
    calls = {
        "has no bundles": (lambda: edgefr.calibrate(place / "nothing"), ("calibrate", place / "nothing")),
        "unknown data set of F3CRec": (
            lambda: edgefr.reproduce("f3crec", data=["demo"]),
            ("reproduce", "f3crec", "--data", "demo"),
        ),
    }
    for said, (call, arguments) in calls.items():
        with pytest.raises(edgefr.InputError, match=said) as caught:
            call()
        done = commands.edgefr(*arguments, cache=place / "cache")
        assert commands.refused(done.returncode, done.stdout, done.stderr) == f"error: {caught.value}"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: edgefr.reproduce("f4crec"), "unknown paper 'f4crec'; did you mean 'f3crec'"),
        (lambda: edgefr.reproduce("f3crec", ["table-9"]), "unknown exhibit of F3CRec 'table-9'"),
        (lambda: edgefr.reproduce("f3crec", fidelity="mine"), "unknown fidelity 'mine'"),
        (lambda: edgefr.reproduce("f3crec", stream="cyclic"), "unknown stream of F3CRec 'cyclic'"),
        (lambda: edgefr.reproduce("f3crec", seeds=0), "seeds is a whole number of at least 1"),
        (lambda: edgefr.sweep(answers.experiment()), "there is nothing to sweep over"),
        (lambda: edgefr.sweep(answers.experiment(), {"rounds": []}), "--grid rounds: the list is empty"),
        (lambda: edgefr.sweep(answers.experiment(), {"rounds": [1, 1]}), "1 is given twice"),
        (lambda: edgefr.sweep(answers.experiment(), {"rounds": 1}), "sweep: grid should be"),
        (lambda: edgefr.sweep(answers.experiment(), {"roundz": [1]}), "unknown key 'roundz'"),
        (lambda: edgefr.sweep(answers.experiment(), {"rounds": [1]}, workers=0), "workers is a whole number"),
        (lambda: edgefr.audit("nowhere"), "nowhere is not a run folder"),
        (lambda: edgefr.export("nowhere"), "nowhere is not a run folder"),
        (lambda: edgefr.calibrate("nowhere", timeout_s=0), "timeout_s is at least 1 second"),
    ],
)
def test_what_is_wrong_is_one_line(call, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(edgefr.InputError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)
