"""One pass over everything that a version of a library could break, by the command line and as small as it can be.

It needs pytest alone beside edgefr with the extras `cloud`, `teacher` and `sweep`, so that `.ci/versions` can run it on
any Python with the oldest and the newest libraries. Covered: help of every command, a distilled encoder, training with
LoRA, with DP-SGD and by compiled kernels, bundles and what a device does with one, privacy, a sweep with a search, a
page of a run and of a sweep, people's own CSV, data frames, workers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import edgefr
from tests.caches import new_cache
from tests.cli import commands
from tests.devices import policy_file

Say = Callable[..., str]
SMALL = ("data_options.users=60", "data_options.items=160", "data_options.interactions=12", "rounds=2")
FLEET = ("fleet.share={laptop_x86: 1}",)
DISTILL = "encoder.distill={layers: 1, layer_map: [3], hidden: 24, steps: 2, warmup: 0, max_tokens: 16}"
TRANSFR = (*SMALL, *FLEET, DISTILL, "model={adapter: [8, 4], head: [4], local_training_epochs: 1}")
FEDMF = (*SMALL, *FLEET, "method=fedmf", "model.dim=4")
NOISE = ("privacy.mechanism=gaussian", "privacy.clip=1", "privacy.epsilon=8")


def settings(*assignments: str) -> list[str]:
    """The options that set these fields."""
    return [part for one in assignments for part in ("--set", one)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_cache(tmp_path_factory.mktemp("cache") / "edgefr")


@pytest.fixture(scope="module")
def say(cache: Path) -> Say:
    """What a command that succeeds prints."""

    def run(*arguments: str | Path) -> str:
        done = commands.edgefr(*arguments, cache=cache)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    return run


@pytest.fixture(scope="module")
def run(say: Say, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of TransFR with a distilled encoder, and its bundles."""
    out = tmp_path_factory.mktemp("smoke") / "transfr"
    assert "hybrid" in say("simulate", *settings(*TRANSFR, "export.learning=false"), "--out", out)
    return out


@pytest.fixture(scope="module")
def fedmf(say: Say, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of FedMF with noise, made by workers, and its bundles."""
    out = tmp_path_factory.mktemp("smoke") / "fedmf"
    workers = ("--executor", "processes", "--workers", "2")
    assert "epsilon" in say("simulate", *settings(*FEDMF, *NOISE), *workers, "--out", out)
    return out


def test_every_command_has_help(say: Say) -> None:
    named = re.findall(r"^│ ([a-z]+) +", say("--help"), re.MULTILINE)
    assert {"simulate", "export", "recommend", "device", "privacy", "sweep", "report"} <= set(named)
    code = f"from edgefr.cli.app import app\nfor name in {named}: app([name, '--help'], standalone_mode=False)"
    done = subprocess.run([sys.executable, "-c", code], cwd=commands.ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for name in named:
        assert re.search(rf"Usage: .*\b{name} ", done.stdout), name
    assert "--interactions" in say("device", "learn", "--help")


def test_the_installed_command_says_its_version() -> None:
    command = Path(sys.executable).with_name("edgefr")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert re.fullmatch(r"edgefr \d+\.\d+\.\d+\S*\n", done.stdout), done


def test_a_run_is_measured_and_written_down(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert 0 <= summary["metrics"]["NDCG@10"] <= 1
    assert {"chance", "popularity"} <= set(summary["references"]["main"])
    assert {"torch", "onnxruntime", "numpy"} <= set(summary["versions"])
    assert (run / "report.html").is_file()


def test_bundles_recommend_and_are_exported_again(run: Path, fedmf: Path, say: Say, tmp_path: Path) -> None:
    say("bundle", "verify", run / "bundles" / "laptop_x86", "--key", run / "publisher.pem")
    assert len(re.findall(r"│ i\d+ │", say("recommend", run / "bundles" / "laptop_x86", "--k", "3"))) == 3
    say("export", "--run", fedmf, "--out", tmp_path)
    assert (tmp_path / "laptop_x86" / "manifest.json").is_file()


def test_a_device_learns_and_an_update_leaves_it(fedmf: Path, say: Say, tmp_path: Path) -> None:
    bundle, state, out = fedmf / "bundles" / "laptop_x86", tmp_path / "state", tmp_path / "update"
    own = ("--item", "i0000003", "--item", "i0000005")
    learn = ("device", "learn", bundle, "--state", state, *own, "--policy", policy_file(tmp_path), "--out", out)
    assert "optimiser steps" in say(*learn)
    assert out.stat().st_size > 100
    assert len(re.findall(r"│ +i\d+ │", say("device", "recommend", bundle, "--state", state, "-k", "2"))) == 2


def test_privacy_is_planned_and_what_was_spent_is_told(fedmf: Path, say: Say) -> None:
    plan = ("--mechanism", "gaussian", "--epsilon", "8", "--clip", "1", "--rounds", "4", "--clients", "100")
    assert "sigma" in say("privacy", *plan)
    assert "of 60 clients" in say("privacy", fedmf)


@pytest.mark.parametrize(
    "asked",
    [
        (*TRANSFR, "model.client=lora"),
        (*FEDMF, "privacy.examples.clip=1", "privacy.examples.epsilon=8"),
        (*SMALL, *FLEET, "method=fedcar"),
        (*TRANSFR, "encoder={kind: tfidf}"),
    ],
    ids=["lora", "dp-sgd", "compiled", "tfidf"],
)
def test_what_needs_a_library_of_its_own_runs(
    asked: tuple[str, ...], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEFR_CACHE", str(cache))
    experiment = edgefr.load_experiment(overrides=list(asked))
    made = edgefr.simulate(experiment, commands.ROOT / "devices.yaml", out=tmp_path / "run", bundles=False)
    assert 0 <= made.summary["metrics"]["NDCG@10"] <= 1
    assert len(made.metrics) > 1


def test_a_sweep_searches_and_has_a_page(say: Say, tmp_path: Path) -> None:
    grid = ("--grid", "privacy.epsilon=[8, inf]", "--search", "2", "--search-space", "privacy.clip=log(0.1,1)")
    said = say("sweep", *settings(*FEDMF, *NOISE[:2]), *grid, "--out", tmp_path / "sweep")
    assert "NDCG@10" in said
    say("report", tmp_path / "sweep")
    assert "<svg" in (tmp_path / "sweep" / "report.html").read_text(encoding="utf-8")


def test_a_run_has_a_page(run: Path, say: Say) -> None:
    (run / "report.html").unlink()
    say("report", run)
    assert "</html>" in (run / "report.html").read_text(encoding="utf-8")


def test_own_ratings_are_read(say: Say, tmp_path: Path) -> None:
    rows = (f"{user},{item},{user * 100 + item}" for user in range(30) for item in range(user % 5, 20))
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n", encoding="utf-8")
    assert "30" in say("data", tmp_path / "ratings.csv")
