"""The first commands of a newcomer: options in place of settings, and lists of methods and data sets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import edgefr
from edgefr.cli.methods import protocols_of
from edgefr.cli.output import show_lines
from edgefr.data.datasets import GIVEN, READERS
from edgefr.data.protocol import PROTOCOLS
from edgefr.experiment.method import METHODS
from tests.cli.conftest import Cli


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Write a file of ratings with the usual names of columns."""
    draw = np.random.default_rng(0)
    rows = [(user, item, 1_600_000_000 + at) for user in range(40) for at, item in enumerate(draw.permutation(60)[:9])]
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,time\n" + "".join(f"u{user},i{item},{time}\n" for user, item, time in rows))
    return path


def ran(cli: Cli, *arguments: str | Path, out: Path) -> tuple[edgefr.Run, str]:
    """A run that is done, and what its command said on stderr."""
    code, _, err = cli("simulate", *arguments, "--set", "protocol.negatives=20", "--no-bundles", "--out", out)
    assert code == 0, err
    return edgefr.Run.open(out), err


@pytest.mark.usefixtures("inside")
def test_one_line_runs_a_method_on_a_file_with_an_epsilon(cli: Cli, ratings: Path, tmp_path: Path) -> None:
    run, err = ran(cli, "--method", "fedmf", "--data", ratings, "--rounds", "2", "--epsilon", "8", out=tmp_path / "run")
    found = run.experiment
    assert (found.method, found.rounds, found.privacy.mechanism, found.privacy.clip) == ("fedmf", 2, "gaussian", 1.0)
    assert found.aggregation.server_lr == "auto"
    assert 7 < run.summary["privacy"]["eps_guaranteed"] <= 8
    assert "epsilon 8 for each client: gaussian noise, central trust, clip 1, aggregation.server_lr=auto" in err


def test_options_go_over_the_file_and_keep_its_noise(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("method: fedmf\nrounds: 9\nprivacy: {mechanism: laplace, clip: 0.5, epsilon: 3}\n")
    found = edgefr.load_experiment(file, method="pfedrec", rounds=4, epsilon=2.0, clients_per_round=7)
    assert (found.method, found.rounds, found.clients_per_round) == ("pfedrec", 4, 7)
    assert (found.privacy.mechanism, found.privacy.clip) == ("laplace", 0.5)
    assert found.privacy.model_dump()["epsilon"] == 2.0
    assert edgefr.load_experiment(file, clip=0.25).privacy.clip == 0.25


@pytest.mark.parametrize(
    ("changes", "server_lr", "mechanism"),
    [
        (["method=fedmf"], "auto", "gaussian"),
        (["method=fedmf", "aggregation.server_lr=3.0"], 3.0, "gaussian"),
        (["method=fedmf", "privacy.mechanism=discrete-gaussian"], "auto", "discrete-gaussian"),
        (["method=transfr"], 1.0, "gaussian"),  # its server steps by Adam, at a rate of its own
    ],
)
def test_an_epsilon_chooses_what_is_left_open(changes: list[str], server_lr: Any, mechanism: str) -> None:
    found = edgefr.load_experiment(overrides=changes, epsilon=8.0)
    assert (found.aggregation.server_lr, found.privacy.mechanism) == (server_lr, mechanism)
    assert found.privacy.clip == 1.0


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--rounds", "20", "--set", "rounds=3"], ["--rounds 20 and --set rounds=3 set the same field, rounds"]),
        (["--epsilon", "8", "--set", "privacy={epsilon: 1}"], ["--epsilon 8.0", "the same field, privacy.epsilon"]),
        (["--data", "demo", "--set", "data=ml-100k"], ["--data demo and --set data=ml-100k", "keep one"]),
        (["--epsilon", "8", "--set", "privacy.mechanism=none"], ["epsilon belongs to", "and mechanism is none"]),
        (["--epsilon", "0"], ["--epsilon: privacy.epsilon: ", "greater than 0"]),
        (["--method", "trasnfr"], ["--method: ", "did you mean 'transfr'"]),
        (["--clients-per-round", "2.5"], ["--clients-per-round: ", "a whole number of clients"]),
        (["--resume", "nowhere", "--rounds", "3"], ["--rounds cannot change a run that is resumed"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_what_cannot_be_is_one_line(arguments: list[str], parts: list[str], cli: Cli, tmp_path: Path) -> None:
    line = cli.refused("simulate", *arguments, "--out", tmp_path / "run")
    assert [part for part in parts if part not in line] == [], line
    assert list(tmp_path.iterdir()) == []


def test_python_runs_a_method_on_a_frame_or_a_file(
    ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run has a folder of its own, and the same data in another form give the same model."""
    monkeypatch.chdir(tmp_path)
    few = edgefr.load_experiment(overrides=["protocol.negatives=20"])
    frame = pd.read_csv(ratings)
    asked: dict[str, Any] = {"method": "fedmf", "rounds": 2, "bundles": False, "page": False}
    one = edgefr.simulate(few, data=frame, **asked)
    other = edgefr.simulate(few, data=ratings, **asked)
    third = edgefr.simulate(edgefr.load_experiment(few, method="fedmf"), data=edgefr.Dataset.from_frame(frame), **asked)
    assert [run.path for run in (one, other, third)] == [Path("runs/demo"), Path("runs/demo-2"), Path("runs/demo-3")]
    assert one.summary["metrics"] == other.summary["metrics"] == third.summary["metrics"]
    assert (one.experiment.method, one.experiment.rounds) == ("fedmf", 2)


def test_python_refuses_in_one_line(tmp_path: Path) -> None:
    for wrong, said in (
        ({"method": "fedfm"}, "did you mean 'fedmf'"),
        ({"data": 3}, "data frame"),
        ({"rounds": "x"}, "rounds should be"),
        ({"epsilon": 0.0}, "greater than 0"),
    ):
        with pytest.raises(edgefr.InputError, match=said):
            edgefr.simulate(out=tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def listed(out: str) -> dict[str, list[str]]:
    """The lines of `edgefr methods` by method, cut into their columns."""
    return {cells[0]: cells for cells in (line.split("  ") for line in out.splitlines()[1:-1])}


def test_every_method_has_a_line_of_what_it_needs_and_ships(cli: Cli) -> None:
    found = {
        name: [cell.strip() for cell in cells if cell.strip()] for name, cells in listed(cli.done("methods")).items()
    }
    assert list(found) == list(METHODS)
    assert found["fedmf"][1:4] == ["items", "bundle", "leave-one-out cross-domain blocks sessions holdout"]
    assert found["transfr"][1:3] == ["texts", "bundle"]
    assert found["fcucr"][1:4] == ["sessions", "bundle", "sessions"]
    assert found["fedcar"][1:4] == ["sequence", "bundle", "leave-one-out cross-domain blocks holdout"]
    assert found["fedrap"][1:3] == ["items", "-"]
    assert found["ease"][1:3] == ["items", "-"]
    assert found["emcdr"][1:4] == ["2 domains", "-", "cross-domain"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_runs_over_the_protocols_of_its_line_and_over_no_other(name: str) -> None:
    told = list(protocols_of(METHODS[name]))
    for protocol in PROTOCOLS:
        asked = [f"method={name}", f"protocol.name={protocol}"]
        if protocol == "cross-domain":
            asked += ["protocol.source=books", "protocol.target=films"]
        if protocol in told:
            edgefr.load_experiment(overrides=asked)
        else:
            with pytest.raises(edgefr.InputError, match=r"protocol|strategy"):
                edgefr.load_experiment(overrides=asked)
    assert told[0] == (
        METHODS["emcdr"].protocol if METHODS[name].across else edgefr.load_experiment(method=name).protocol.name
    )


def test_a_method_of_ones_own_is_listed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine_too.py").write_text(
        "from dataclasses import replace\nimport edgefr\nfrom edgefr.experiment.method import METHODS\n"
        "edgefr.register(replace(METHODS['fedmf'], name='mine-too', paper='Mine'))\n"
    )
    out = cli.done("methods", "--plugin", tmp_path / "mine_too.py")
    METHODS.unregister("mine-too")
    assert any(line.startswith("mine-too ") and line.endswith("  Mine") for line in out.splitlines())


def test_data_sets_are_listed_with_those_that_are_found(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ml-100k").mkdir()
    for name in ("hetrec2011-lastfm-2k.zip", "xing-sessions.parquet", "amazon-video.zip", "Gowalla_totalCheckins.txt"):
        (tmp_path / name).touch()
    out = cli.done("data", "--data-dir", tmp_path)
    found = {name: there for name, there, *_ in map(str.split, out.replace("data set", "name", 1).splitlines()[1:])}
    assert {name for name, there in found.items() if there == "yes"} == {
        *("ml-100k", "lastfm-2k", "xing", "amazon-video", "gowalla")
    }
    assert (found["demo"], found["ml-1m"]) == ("made", "-")
    assert {name for name in READERS if name != GIVEN} <= set(found)
    assert "--set is for a data set" in cli.refused("data", "--set", "data_options.positive=4")


def test_lists_import_no_torch_and_no_pandas() -> None:
    """What a newcomer asks first answers at once."""
    code = "import sys; from edgefr.cli.app import app; app(['{0}'], standalone_mode=False); "
    code += "print([m for m in ('torch', 'pandas', 'pyarrow', 'scipy', 'numba', 'matplotlib') if m in sys.modules])"
    for command in ("data", "methods"):
        made = subprocess.run([sys.executable, "-c", code.format(command)], capture_output=True, text=True, check=True)
        assert made.stdout.splitlines()[-1] == "[]", command


@pytest.mark.parametrize("width", [60, 80, 400])
def test_a_list_in_a_terminal_names_the_columns_that_it_cuts(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    show_lines([("name", "about", "paper"), ("one", "a" * 40, "b" * 60)], "a note")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert all(len(line) <= width for line in lines)
    cut = [line for line in lines if line.startswith("cut at this width: paper.")]
    assert len(cut) == (width < 120)
    assert any(line.endswith("bb…") for line in lines) == (width < 120)
    assert any(line.endswith("b" * 60) for line in lines) == (width > 120)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epsilon", "8", "--grid", "privacy.epsilon=[8,inf]"], "--grid privacy.epsilon=[8,inf] set the same field"),
        (["--method", "fcf", "--set", "method=fedmf"], "--method fcf and --set method=fedmf set the same field"),
    ],
)
def test_a_sweep_takes_the_options_of_simulate_once(arguments: list[str], said: str, cli: Cli, tmp_path: Path) -> None:
    assert said in cli.refused("sweep", *arguments, "--out", tmp_path / "sweep")


def test_a_run_on_a_file_is_named_after_it() -> None:
    assert edgefr.load_experiment(data="my ratings.csv", method="fedmf").name == "my-ratings"
    assert edgefr.load_experiment(data="my ratings.csv", method="fedmf", name="mine").name == "mine"
    assert edgefr.load_experiment(data="ml-100k").name == "demo"


def test_export_takes_its_run_as_other_commands_do(cli: Cli) -> None:
    assert "nowhere is not a run folder" in cli.refused("export", "nowhere")
    assert "nowhere is not a run folder" in cli.refused("export", "--run", "nowhere")
    for wrong in ([], ["nowhere", "--run", "nowhere"]):
        assert "edgefr export RUN" in cli.refused("export", *wrong)
