"""`sweep --privacy`: equal budgets at every epsilon, tuned beside as given, attacked, and gone on with after a kill."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edgefr.studies.sweeps.run
import edgefr.studies.tradeoffs.run
import edgefr.studies.tuning.run
from edgefr.studies.pages import write_report
from edgefr.studies.sweeps.report import table
from edgefr.studies.sweeps.results import results
from edgefr.studies.sweeps.sweep import sweep
from edgefr.studies.sweeps.tradeoff import comparables
from edgefr.studies.tradeoffs.page import _proved, headline, usable
from edgefr.studies.tradeoffs.plan import TradeoffPlan
from edgefr.studies.tradeoffs.points import Tradeoff, TradeoffPoint, most_right
from privacy.errors import InputError
from tests.cli.commands import edgefr as command
from tests.sweep.conftest import EXPERIMENT
from tests.sweep.summaries import entry, summary
from tests.tune.test_tune import at_once

EPSILONS = ["1", "2", "4", "8", "inf", "none"]
ASKED: dict[str, Any] = {"tradeoff": True, "trials": 2, "seeds": 2, "overrides": ["rounds=3"]}


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Trials, runs and attacks are made in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EDGEFR_DATA", raising=False)
        patch.setenv("OMP_NUM_THREADS", "1")
        for module in (edgefr.studies.tuning.run, edgefr.studies.sweeps.run, edgefr.studies.tradeoffs.run):
            patch.setattr(module, "run_jobs", at_once)
        yield


@pytest.fixture(scope="module")
def made(here: None, place: Path, tiny: Path) -> Path:
    """A trade-off of two trials and two seeds, of an experiment with a clip of its own."""
    assert sweep(tiny, **ASKED, out=place / "made").failures == {}
    return place / "made"


@pytest.fixture
def done(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(made, tmp_path / "out"))


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_epsilon_has_the_same_budget_of_trials_on_validation_alone(made: Path):
    found = sorted(made.glob("tuning*/privacy*/trials/*/trial.json"))
    assert len(found) == len(EPSILONS) * 2
    per_point: dict[str, list[dict[str, Any]]] = {}
    for path in found:
        per_point.setdefault(path.parents[2].name, []).append(json.loads(path.read_text()))
    assert sorted(per_point) == sorted(f"privacy.epsilon={value}" for value in EPSILONS)
    for trials in per_point.values():
        assert [one["on"] for one in trials] == ["validation items"] * 2
        assert {run["seed"] for one in trials for run in one["runs"]} == {1000}
        assert {one["ranking"] for one in trials} == {"full"}
    rules = [json.loads((made / name / "tuning.json").read_text()) for name in ("tuning", "tuning-not-private")]
    assert [(one["trials"], one["seeds"], one["reported"]) for one in rules] == [(2, [1000], [0, 1])] * 2


def test_the_best_trial_is_run_with_the_seeds_of_results_and_its_settings(made: Path):
    rows = [row for row in records(made / "runs.csv") if row["best"] == "True"]
    assert [(row["privacy.epsilon"], row["seed"]) for row in rows] == [(e, s) for e in EPSILONS for s in "01"]
    for row in rows:
        name = next(iter(made.glob(f"tuning*/privacy.epsilon={row['privacy.epsilon']}")))
        trials = [json.loads(path.read_text()) for path in name.rglob("trial.json")]
        best = max(trials, key=lambda one: (one["value"], -one["number"]))
        assert int(row["trial"]) == best["number"]
        experiment = json.loads((made / row["folder"] / "summary.json").read_text())
        assert experiment["rounds"] == 3, "what is set by hand is held"
        if row["privacy.epsilon"] not in ("inf", "none"):
            bound = experiment["privacy"]["clip"]["bound"]
            assert bound == best["values"]["privacy.clip"]
            assert 0.9 * float(row["privacy.epsilon"]) < experiment["privacy"]["eps_guaranteed"]
            assert experiment["privacy"]["eps_guaranteed"] <= float(row["privacy.epsilon"])


def test_the_experiments_own_clip_stands_beside_and_is_not_mixed_in(made: Path):
    rows = records(made / "tradeoff.csv")
    assert [(row["privacy.epsilon"], row["as_given"], row["seeds"]) for row in rows] == [
        *((value, "False", "2") for value in EPSILONS),
        *((value, "True", "2") for value in EPSILONS[:-1]),
    ]
    given = [row for row in records(made / "runs.csv") if row["trial"] == "-1"]
    assert {row["best"] for row in given} == {"False"}
    for row in given:
        assert json.loads((made / row["folder"] / "summary.json").read_text())["privacy"]["clip"]["bound"] == 0.5


def test_one_run_of_every_point_was_attacked(made: Path):
    found = [path.parent.relative_to(made) for path in made.rglob("audit.json")]
    assert sorted(path.parts[1] for path in found) == sorted(f"privacy.epsilon={value}" for value in EPSILONS)
    assert {path.name for path in found} == {"seed-0"}
    report = json.loads((made / found[0] / "audit.json").read_text())
    assert {"membership", "sign-split", "game"} <= {row["attack"] for row in report["attacks"]}


def test_the_page_answers_first_and_is_made_again(made: Path, tmp_path: Path):
    page = (made / "report.html").read_text()
    parts = [
        *("What does privacy cost?", "What does epsilon mean, and what did attackers achieve?"),
        *("What does the guarantee cover?", "What would it cost to run, and to tune?", "How to reproduce this run"),
    ]
    places = [page.index(f">{part}") for part in parts]
    assert places == sorted(places)
    for words in (
        *("At epsilon 8, fedmf keeps", "user level", "at most 73 % sure", "is trusted to add the noise to the sum"),
        *(
            "would have cost epsilon",
            "as given",
            "edgefr sweep",
            "--privacy --trials 2",
            "Who is protected against whom",
        ),
    ):
        assert words in page, words
    assert "http://" not in page
    assert "src=" not in page.replace("img-src", "")
    assert write_report([made], tmp_path / "again.html").read_text() == page


def test_what_was_killed_goes_on_and_nothing_is_made_twice(done: Path, tiny: Path):
    before = {name: (done / name).read_bytes() for name in ("tradeoff.csv", "tradeoff.md", "report.html")}
    gone = done / "runs" / "privacy.epsilon=8"
    seed = next(gone.glob("trial-*/seed-1"))
    shutil.rmtree(seed)
    audit = next(gone.glob("trial-*/seed-0")) / "audit.json"
    audit.unlink()
    for name in ("runs.csv", *before):
        (done / name).unlink()
    kept = {path: path.stat().st_mtime_ns for name in ("summary.json", "audit.json") for path in done.rglob(name)}
    sweep(tiny, **ASKED, resume=done)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert audit.is_file()
    assert (seed / "summary.json").is_file()
    for name in ("tradeoff.csv", "tradeoff.md"):
        assert (done / name).read_bytes() == before[name], name
    with pytest.raises(InputError, match="begun by another command"):
        sweep(tiny, **{**ASKED, "trials": 3}, resume=done)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"grid": ["rounds=[1,2]"]}, "--privacy plans and searches by itself: omit --grid"),
        ({"search": 3}, "omit --search"),
        ({"overrides": ["privacy.epsilon=8"]}, r"plans its own privacy\.epsilon; omit it"),
        ({"overrides": ["privacy.clipp=8"]}, "clipp"),
        ({"tradeoff": False, "grid": ["rounds=[1,2]"], "trials": 3}, "--trials are those of --privacy"),
    ],
)
def test_what_would_do_nothing_is_refused_before_anything(
    asked: dict[str, Any], words: str, tiny: Path, tmp_path: Path
):
    with pytest.raises(InputError, match=words):
        sweep(tiny, **{"tradeoff": True, **asked}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_rate_that_goes_with_the_clip_is_left_out_where_there_is_none(by_hand: bool, tiny: Path, tmp_path: Path):
    file = tmp_path / "auto.yaml"
    file.write_text(EXPERIMENT + ("" if by_hand else "aggregation: {server_lr: auto}\n"))
    plan = TradeoffPlan(base=file, changes=["aggregation.server_lr=auto"] if by_hand else [])
    rates = [plan.experiment(point, 0).aggregation.server_lr for point in plan.points]
    assert rates == ["auto"] * 5 + [1.0]
    assert "aggregation.server_lr" in {r.field for r in plan.spaces[plan.points[-1].name].ranges}
    searched = {r.field for r in plan.spaces[plan.points[0].name].ranges}
    assert ("clip x server_lr" in searched) != by_hand
    assert "aggregation.server_lr" not in searched


def test_a_curve_of_rates_is_bounded_by_the_guarantee():
    """The trapezoids under min(1, e^eps x + delta, 1 - e^-eps (1 - delta - x)), counted here by brute force."""
    for epsilon, delta in ((0.5, 0.0), (1.0, 1e-5), (3.0, 0.01), (8.0, 1e-5)):
        steps = 200_000
        curve = [
            min(1.0, math.exp(epsilon) * x + delta, 1 - math.exp(-epsilon) * (1 - delta - x))
            for x in (at / steps for at in range(steps + 1))
        ]
        area = (sum(curve) - (curve[0] + curve[-1]) / 2) / steps
        assert most_right(epsilon, delta) == pytest.approx(area, abs=1e-4)


def point(epsilon: float | None, *found: float, won: bool = False) -> TradeoffPoint:
    guaranteed = "inf" if epsilon is None or math.isinf(epsilon) else epsilon
    runs = [entry({"privacy.epsilon": epsilon}, at, told(value, guaranteed, won)) for at, value in enumerate(found)]
    return TradeoffPoint(results(runs)[0], epsilon, {}, None)


def told(value: float, guaranteed: float | str, won: bool) -> dict[str, Any]:
    return summary(value, guaranteed, won=won) | {"level": "user level", "method": "fedmf", "ranked": "full ranking"}


def tradeoff(*points: TradeoffPoint) -> Tradeoff:
    return Tradeoff(comparables([one.result for one in points])[0], points, ())


def test_a_page_says_no_usable_point_and_what_is_kept():
    none = tradeoff(point(1.0, 0.1, 0.1), point(8.0, 0.2, 0.2), point(math.inf, 0.3, 0.3), point(None, 0.4, 0.4))
    assert usable(none).startswith("There is no usable point, after tuning")
    assert headline(none).startswith(
        "At epsilon 8, fedmf keeps 50% of the NDCG@10 (full ranking) of its best without noise (0.2000 of 0.4000), and "
        "is not clearly better than popularity (0.2500)."
    )
    bare = tradeoff(point(8.0, 0.2, 0.2), point(None, 0.4, 0.4, won=True))
    assert "no usable point with a guarantee, after tuning" in usable(bare)
    good = tradeoff(point(4.0, 0.3, 0.3, won=True), point(8.0, 0.3, 0.3, won=True), point(None, 0.4, 0.4, won=True))
    assert usable(good).endswith("helped in every run is 4.")
    assert "and is clearly better than popularity" in headline(good)
    assert good.points[0].half("NDCG@10") == 0.0
    assert point(1.0, 0.1, 0.3).half("NDCG@10") == pytest.approx(12.7062 * 0.141421 / 2**0.5, rel=1e-4)


def test_an_interaction_between_two_histories_is_two_steps_from_each_other():
    found = point(1.0, 0.1)
    found.result.summaries()[0]["privacy"] |= {"delta": 0.0, "unit": "client", "adjacency": "zero-out"}
    assert found.most_right({"unit": "client"}) == pytest.approx(most_right(1.0, 0.0))
    assert found.most_right({"unit": "interaction"}) == pytest.approx(most_right(2.0, 0.0))
    assert found.most_right({"unit": "item of a client"}) is None


def test_an_epsilon_that_is_proved_is_of_the_sweeps_level():
    found = point(1.0, 0.1)
    found.result.summaries()[0]["privacy"]["unit"] = "client"
    proved = {"game": ("client", 0.2), "game-steps": ("interaction", 9.0)}
    rows = {name: {"unit": of, "eps_corrected": least, "claimed": 1.0} for name, (of, least) in proved.items()}
    assert _proved(replace(found, attacks=rows)) == "≥ 0.2 of 1"
    assert _proved(found) == "–"


def test_levels_stand_side_by_side_by_their_names_and_are_not_compared():
    user, other = summary(0.3, 8.0), summary(0.2, "inf")
    user["privacy"]["clip"] = {"bound": 1.0}
    other["privacy"] |= {"examples": {"eps_guaranteed": 4.0, "eps_nominal": 1.0}, "clip": {"bound": None}}
    found = results([entry({"privacy.clip": 1}, 0, user), entry({"privacy.clip": None}, 0, other)])
    assert [row["level"] for row in table(found).sheets[0].rows] == ["user level", "interaction level"]
    assert [group.title.rsplit(", ")[-1] for group in comparables(found)] == ["user level", "interaction level"]
    assert [one.epsilon("guaranteed") for one in found] == [8.0, 4.0]
    assert "level" not in table(found[:1]).sheets[0].rows[0]


@pytest.mark.slow
def test_the_command_is_one_flag_and_its_screen_has_80_columns(cache: Path, tmp_path: Path):
    (tmp_path / "tiny.yaml").write_text(EXPERIMENT.replace("privacy: {mechanism: gaussian, clip: 0.5}\n", ""))
    asked = ("--privacy", "--trials", "1", "--workers", "2", "--set", "rounds=2")
    ended = command("sweep", "--experiment", tmp_path / "tiny.yaml", *asked, "--out", tmp_path / "out", cache=cache)
    assert ended.returncode == 0, ended.stderr
    assert max(map(len, ended.stdout.splitlines())) <= max(80, len(f"wrote {tmp_path}/out/figures/tradeoff.png"))
    for words in ("utility at user level", "which", "tuning", "At epsilon 8, fedmf keeps"):
        assert words in ended.stdout, words
    assert (tmp_path / "out" / "report.html").is_file()
    again = command("report", tmp_path / "out", cache=cache)
    assert again.returncode == 0, again.stderr
