"""Runs whose clients come apart and whose noise is correlated: who takes part, what is charged, what is left."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import edgefr
from edgefr.simulation.runs.saved_model import open_model
from privacy.correlated_noise import coefficients
from privacy.errors import InputError
from privacy.report_rows import render
from tests.cli.commands import ROOT

SMALL = ("method=fedmf", "model.dim=4", "rounds=12", "clients_per_round=12", "evaluation.every=100")
DATA = ("data_options.users=200", "data_options.items=160", "data_options.interactions=12")
CLIP = ("privacy.mechanism=gaussian", "privacy.clip=1", "privacy.sigma=2")
NOISE = (*CLIP, "privacy.apart=5", "privacy.correlated=true")
CALM = ("fleet.share={minipc_n100: 1.0}",)


def run(tmp_path: Path, *more: str) -> edgefr.Run:
    experiment = edgefr.load_experiment(overrides=[*SMALL, *DATA, *NOISE, *more])
    return edgefr.simulate(experiment, ROOT / "devices.yaml", out=tmp_path / "run", bundles=False)


def rounds_of(folder: Path) -> dict[int, list[int]]:
    """In which rounds each client began to work."""
    out: dict[int, list[int]] = {}
    for event in map(json.loads, (folder / "events.jsonl").read_text().splitlines()):
        if event["client"] is not None and event["kind"] != "refused":
            out.setdefault(event["client"], []).append(event["round"])
    return {client: sorted(set(numbers)) for client, numbers in out.items()}


def test_nobody_works_twice_in_five_rounds_and_is_charged_for_more(tmp_path: Path) -> None:
    found = run(tmp_path)
    came = rounds_of(found.path)
    assert len(came) > 40
    assert max(len(numbers) for numbers in came.values()) > 1
    assert all(np.diff(numbers).min(initial=99) >= 5 for numbers in came.values())
    privacy = found.summary["privacy"]
    assert privacy["releases_per_client"]["max"] <= 3  # 12 rounds, one in five
    assert privacy["eps_guaranteed"] <= privacy["eps_planned"]
    assert (privacy["apart"], privacy["correlated_over"]) == (5, 5)
    rows = dict(render(privacy))
    assert rows["Rounds / releases per client"].startswith("12, a client in 1 of any 5 in a row / max ")
    assert "before what it takes back of 4 rounds" in rows["Noise / sampler"]
    (game,) = edgefr.audit(found, ["game"]).report["attacks"]
    assert game["releases"] == 3
    assert game["eps_lb95"] < game["claimed"]
    (row,) = privacy["composed"]
    assert row["multiplier"] == pytest.approx(2 / math.hypot(1.49897, math.sqrt(2) / 20), rel=1e-3)


def test_a_model_that_learns_nothing_has_the_noise_of_the_matrices(tmp_path: Path) -> None:
    """Where a round comes to nothing, its row and column go from C."""
    rounds = 60
    still = ("model.lr=1e-9", "model.item_lr=1e-9", "model.dim=32", f"rounds={rounds}", "model.init_scale=1e-9")
    found = run(tmp_path, *still, *CALM)
    events = map(json.loads, (found.path / "events.jsonl").read_text().splitlines())
    counted = [event["round"] - 1 for event in events if event["kind"] == "closed" and event["outcomes"].get("ok")]
    assert len(counted) > 40
    whole = sum(np.diag(np.full(rounds - j, x), -j) for j, x in enumerate(coefficients(5)))
    left = np.linalg.norm(np.ones(len(counted)) @ np.linalg.inv(whole[np.ix_(counted, counted)]))
    table = open_model(found).model.shared["item"].numpy()
    assert table.std() == pytest.approx(left * 2 / 12, rel=0.04)
    assert left < 0.7 * math.sqrt(len(counted))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("fleet.rounds.policy=async",), r"privacy\.apart needs rounds that end before the next begins"),
        (("clients_per_round=41",), r"of 200 clients that come once in any 5 rounds, 40 can be in a cohort, not 41"),
    ],
)
def test_what_cannot_be_kept_apart_is_refused(tmp_path: Path, more: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(tmp_path, *more)
