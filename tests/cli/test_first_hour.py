"""The first commands of a newcomer: options in place of settings, and lists of methods and data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
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
