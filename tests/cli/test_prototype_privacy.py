"""Runs whose clients send prototypes, from the command line: what is counted, printed and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgefr
from privacy.accounting import composed
from privacy.guarantee import Event
from tests.cli.conftest import Cli
from tests.visits import USERS, write_visits

SMALL = ("data=retailrocket", "method=fcucr", "rounds=3", "model.dim=8", "model.length=5", "model.lr=0.01")
TINY = (*SMALL, "engine.shard_size=8", "aggregation.weights=uniform", "evaluation.full_ranking_users=0")
CALM = "fleet={dropout: 0, availability: null, battery: null, share: {laptop_x86: 1.0}, rounds: {over_select: 1.0}}"
QUIET = "model.asks_when_recommending=false"
LOCAL = ("privacy.trust=local", "privacy.clip=1", "privacy.mechanism=gaussian", "privacy.sigma=8", QUIET)
NOISED = Event("discrete-gaussian", multiplier=4.0)
BOTH = "server, other clients (through fused answers)"


def privacy_of(folder: Path, *more: str) -> dict[str, Any]:
    experiment = edgefr.load_experiment(overrides=[*TINY, *more])
    data = write_visits(folder / "data")
    run = edgefr.simulate(experiment, data_dir=data, out=folder / "run", bundles=False, figures=False)
    return run.summary["privacy"]


@pytest.mark.parametrize("order", ["received", "trained"])
def test_updates_and_prototypes_are_counted_and_composed(order: str, cli: Cli, tmp_path: Path) -> None:
    more = (*LOCAL, CALM, f"model.prototypes={order}", "knowledge.interval=2", "privacy.prototype_clip=0.5")
    found = privacy_of(tmp_path, *more)
    assert [(row["recipient"], row["releases"]) for row in found["composed"]] == [("server", 3), (BOTH, 2)]
    assert found["eps_guaranteed"] == pytest.approx(composed([(NOISED, 5)], 1e-5).epsilon, rel=1e-9)
    assert found["eps_guaranteed"] == pytest.approx(found["eps_planned"], rel=1e-9)
    assert (found["prototypes"]["clip"], found["prototypes"]["std"]) == (0.5, 4.0)
    assert found["releases_per_client"]["max"] == 5
    out = cli.done("privacy", tmp_path / "run", "--json")
    assert json.loads(out)["ledger"]["eps_guaranteed"] == found["eps_guaranteed"]


def test_noise_is_found_for_an_epsilon_and_a_budget_ends_before_it_is_exceeded(tmp_path: Path) -> None:
    asked = [value for value in LOCAL if "sigma" not in value]
    found = privacy_of(tmp_path / "a", *asked, CALM, "privacy.epsilon=8")
    assert 7.99 < found["eps_guaranteed"] <= 8
    two = composed([(NOISED, 4)], 1e-5).epsilon  # rounds: two releases each
    found = privacy_of(tmp_path / "b", *LOCAL, CALM, f"privacy.budget={two + 1e-3}")
    assert found["eps_guaranteed"] == pytest.approx(two, rel=1e-9)
    assert found["sat_out"] == {"clients": USERS, "times": USERS}


def test_without_a_mechanism_prototypes_and_their_readers_are_named(cli: Cli, tmp_path: Path) -> None:
    found = privacy_of(tmp_path, "model.receiver_noise=0.1")
    assert "a prototype of 8 values as it is, one more for every recommendation" in found["release"]
    assert found["recipients"] == "other clients (through fused answers), server"
    assert (found["eps_guaranteed"], found["eps_nominal"]) == ("inf", "inf")
    assert any("noise on received prototypes: that protects nothing" in line for line in found["not_covered"])
    code, out, _ = cli("audit", tmp_path / "run", "--attacks", "sign-split,membership", "--json")
    report = json.loads(out)
    assert (code, {row["note"] for row in report["attacks"]}) == (
        0,
        {"it is about sets of items, and sasrec reads sessions"},
    )
    assert report["verdict"].startswith("nothing is promised")
    text = " ".join(cli("privacy", tmp_path / "run")[1].replace("│", " ").split())
    assert "a prototype of 8 values as it is" in text


def test_the_papers_noise_runs_and_prints_its_epsilon(tmp_path: Path) -> None:
    paper = ("privacy.mechanism=paper-laplace", "privacy.trust=local", f"privacy.scale={0.6 / 2**0.5!r}")
    found = privacy_of(tmp_path, *paper)
    assert found["eps_nominal"] == pytest.approx(8.07, abs=5e-3)
    assert found["eps_guaranteed"] == "inf"
    assert found["prototypes"]["mechanism"] == "none"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((*LOCAL, "privacy.trust=central"), "privacy.trust: the server sees single prototypes, which noise on a sum"),
        ((*LOCAL, "model.asks_when_recommending=true"), "every recommendation would send one more prototype"),
        ((*LOCAL, "model.prototypes=trained", "model.query=next"), "model.query: one more prototype would leave"),
        ((*LOCAL, "privacy.mechanism=none", "privacy.sigma=null", "privacy.trust=central"), "single prototypes"),
        ((*LOCAL, "protocol.stream=cyclic"), "knowledge.replace: it tells the server which session comes back"),
        ((*LOCAL, "privacy.prototype_clip=0"), "privacy.prototype_clip"),
        ((*LOCAL, "privacy.prototype_clip=.inf"), "privacy.prototype_clip"),
        ((*LOCAL[:-1], "model.prototypes=none", "privacy.prototype_clip=1"), "no prototypes are sent: drop it"),
        ((QUIET, "privacy.prototype_clip=1"), "prototype_clip goes beside a clip of the update"),
        ((*LOCAL, "aggregation.weights=size"), "use uniform"),
    ],
)
def test_what_would_not_mean_what_it_prints_is_refused(
    changes: tuple[str, ...], words: str, cli: Cli, tmp_path: Path
) -> None:
    chosen = [word for value in (*TINY, *changes) for word in ("--set", value)]
    line = cli.refused("simulate", "--data-dir", write_visits(tmp_path / "data"), *chosen, "--out", tmp_path / "run")
    assert words in line
    assert any(how in line for how in ("model.prototypes=none", "use", "drop", "set", "greater than 0"))
