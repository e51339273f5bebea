"""After leave-one-out the last round's model is tested, or the best on validation items: whichever was asked for."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

import edgefr
from edge.sampling import Sampler
from edgefr.data.splits.split import Split
from edgefr.metrics.settings import EvaluationSection
from edgefr.simulation.loop import Training, measure
from edgefr.simulation.stages.leave_one_out import Rounds
from edgefr.simulation.stages.stage import Position
from privacy.errors import InputError

SMALL = [
    *("method=pfedrec", "model.dim=6", "model.lr=1.0", "protocol.negatives=30", "evaluation.k=[5, 15]"),
    *("data_options={users: 60, items: 120, interactions: 16}", "clients_per_round=0.6"),
]


def ran(folder: Path, *overrides: str) -> tuple[dict[str, Any], Any]:
    run = edgefr.simulate(edgefr.load_experiment(overrides=[*SMALL, *overrides]), out=folder, bundles=False, page=False)
    return dict(run.summary), run.metrics


@pytest.mark.parametrize(("metric", "whole"), [("HR", "HR@5"), ("NDCG", "NDCG@5"), ("NDCG@15", "NDCG@15")])
@pytest.mark.parametrize("tables", ["server", "own"])
def test_the_best_round_is_tested_as_if_the_run_had_ended_with_it(
    metric: str, whole: str, tables: str, tmp_path: Path
) -> None:
    asked = ["evaluation.keep=best", f"evaluation.judged_by={metric}", f"evaluation.tables={tables}"]
    kept, curve = ran(tmp_path / "kept", "rounds=7", *asked)
    points = curve[(curve["round"] > 0) & (curve["metric"] == whole) & (curve["which"] == "valid")]
    best = points[points["value"] == points["value"].max()]["round"].max()  # of equal ones the latest
    assert kept["blocks"][0]["best_round"] == best
    assert kept["blocks"][0]["validation"] == points["value"].max()
    short, _ = ran(tmp_path / "short", f"rounds={int(best)}", "evaluation.keep=last", f"evaluation.tables={tables}")
    assert kept["metrics"] == short["metrics"]
    assert kept["metrics_full_ranking"] == short["metrics_full_ranking"]
    if best < 7:
        last, _ = ran(tmp_path / "last", "rounds=7", "evaluation.keep=last", f"evaluation.tables={tables}")
        assert last["metrics"] != kept["metrics"]
        assert "best_round" not in last["blocks"][0]


@pytest.mark.parametrize("metric", ["HR@5", "NDCG@5", "Recall@15"])
def test_a_central_reference_is_judged_by_what_was_asked(metric: str, tmp_path: Path) -> None:
    epochs = ["method=mf", "model.dim=4", "model.epochs=12", "model.patience=12", f"evaluation.judged_by={metric}"]
    experiment = edgefr.load_experiment(overrides=[*SMALL[3:5], *epochs])
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False)
    points = run.metrics[(run.metrics["round"] > 0) & (run.metrics["which"] == "valid")]
    curve = points[points["metric"] == metric].groupby("round")["value"].first()
    assert run.summary["central"]["turns"][0]["best_epoch"] == curve.idxmax(), "the first of equals"


@pytest.mark.parametrize("metric", ["NDCG@7", "MRR", "HR@", "@5", ""])
def test_rounds_are_judged_by_what_is_measured(metric: str) -> None:
    with pytest.raises(InputError, match=r"unknown metric of evaluation.judged_by .*HR@5"):
        edgefr.load_experiment(
            overrides=["evaluation.k=[5]", "evaluation.keep=best", f"evaluation.judged_by='{metric}'"]
        )


def test_the_last_round_is_judged_by_nothing() -> None:
    with pytest.raises(InputError, match=r"judged_by: belongs to runs that keep their best .*evaluation.keep=best"):
        edgefr.load_experiment(overrides=["method=fedmf", "evaluation.keep=last", "evaluation.judged_by=HR"])


@pytest.mark.parametrize(
    ("asked", "best", "patience"),
    [
        ([], True, 30),
        (["evaluation.every=50"], True, 50),
        (["evaluation.patience=7"], True, 7),
        (["evaluation.keep=best"], True, math.inf),
        (["evaluation.keep=best", "evaluation.patience=7"], True, 7),
        (["evaluation.keep=last"], False, math.inf),
        (["fidelity=paper", "method=transfr"], False, math.inf),
        (["privacy.mechanism=gaussian", "privacy.clip=1", "privacy.sigma=1"], False, math.inf),
        (["privacy.examples={clip: 1.0, sigma: 1.0}"], False, math.inf),
        (["method=ease"], False, math.inf),
        (["protocol.name=blocks"], False, math.inf),
        (["method=transfr", "protocol={name: cross-domain, source: books, target: films}"], False, math.inf),
    ],
)
def test_the_best_round_is_kept_where_nobody_asked_and_no_noise_would_have_to_hide_the_choice(
    asked: list[str], best: bool, patience: float
) -> None:
    experiment = edgefr.load_experiment(overrides=["method=fedmf", *asked])
    assert (experiment.keeps_best, experiment.patience) == (best, patience)


def test_a_run_ends_when_validation_has_not_been_better_for_so_long(tmp_path: Path) -> None:
    """Its clock, its curve and its model are those of the rounds that were done."""
    early, curve = ran(tmp_path / "early", "rounds=60", "evaluation.patience=3")
    done, best = (early["blocks"][0][name] for name in ("rounds", "best_round"))
    assert done == best + 3 < 60
    assert early["fleet"]["rounds"] == done == curve["round"].max()
    short, _ = ran(tmp_path / "short", f"rounds={best}", "evaluation.keep=last")
    assert early["metrics"] == short["metrics"]
    whole, _ = ran(tmp_path / "whole", f"rounds={done}", "evaluation.keep=last")
    assert early["fleet"]["virtual_hours"] == whole["fleet"]["virtual_hours"]


@pytest.mark.parametrize("asked", ["fidelity=paper", "evaluation.keep=last"])
def test_patience_is_of_runs_that_keep_their_best_round(asked: str) -> None:
    with pytest.raises(InputError, match=r"evaluation.patience: belongs to runs that keep their best round"):
        edgefr.load_experiment(overrides=["method=transfr", asked, "evaluation.patience=3"])


def test_of_rounds_that_validate_alike_the_latest_is_kept_after_leave_one_out() -> None:
    run = SimpleNamespace(
        stage=Rounds(cast(Split, None), 9, judge="NDCG@10"),
        position=Position(round=4, best=0.5, best_round=2),
        experiment=SimpleNamespace(evaluation=EvaluationSection()),
        federation=SimpleNamespace(program=None),
        best=None,
    )
    for value, best in ((0.4, 2), (0.5, 4)):
        stage = Mock(wraps=run.stage, keeps_best=True, latest_of_equals=run.stage.latest_of_equals)
        stage.over.return_value, stage.validate.return_value = False, {"NDCG@10": value}
        stage.model.return_value = Mock()
        run.stage, kept = stage, run.stage
        measure(cast(Training, run))
        run.stage = kept
        assert run.position.best_round == best
    first = Mock(keeps_best=True, latest_of_equals=False, value=lambda found: 0.5)
    run.stage, run.position = first, Position(round=6, best=0.5, best_round=2)
    measure(cast(Training, run))
    assert run.position.best_round == 2


def test_released_pfedrec_says_what_training_knew(tmp_path: Path) -> None:
    summary, _ = ran(tmp_path / "released", "fidelity=released", "rounds=2")
    assert "training knew which items are held out" in summary["protocol"]
    clean, _ = ran(tmp_path / "clean", "fidelity=released", "rounds=2", "protocol.negatives_avoid_held_out=false")
    assert "training knew" not in clean["protocol"]
    assert summary["metrics"] != clean["metrics"]


def test_whatever_draws_negatives_avoids_what_the_protocol_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedRecon draws in rounds, when its users' vectors are rebuilt for a measurement, and in local training."""
    known, make = [], Sampler.__init__

    def noting(self: Sampler, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        known.append(named["avoid"] is not None)

    monkeypatch.setattr(Sampler, "__init__", noting)
    for leaks in ("true", "false"):
        known.clear()
        asked = ["method=fedrecon", *SMALL[1:2], *SMALL[3:], "rounds=2", f"protocol.negatives_avoid_held_out={leaks}"]
        experiment = edgefr.load_experiment(overrides=asked)
        edgefr.simulate(experiment, out=tmp_path / leaks, bundles=False, page=False)
        assert set(known) == {leaks == "true"}
        assert len(known) > 2, "rounds, and what is rebuilt"


@pytest.mark.parametrize(
    ("settings", "ranking", "users"),
    [
        ([], "full", 1000),
        (["evaluation.curve_users=9"], "full", 9),
        (["evaluation.full_ranking_users=0"], "sampled", 5000),
        (["evaluation.full_ranking_users=0", "evaluation.curve_ranking=full"], "full", 5000),
        (["evaluation.curve_ranking=sampled"], "sampled", 5000),
        (["fidelity=paper"], "sampled", 5000),
        (["protocol={name: cross-domain, source: books, target: films}"], "full", 1000),
        (["protocol.name=holdout"], "sampled", 5000),
        (["method=sasrec"], "sampled", 5000),
    ],
)
def test_a_curve_is_ranked_as_the_test_is_unless_something_else_is_said(
    settings: list[str], ranking: str, users: int
) -> None:
    found = edgefr.load_experiment(overrides=["method=fedmf", *settings]).measured
    assert (found.curve_ranking, found.curve_users) == (ranking, users)


def test_a_curve_in_full_asks_users_also_where_the_test_asks_none(tmp_path: Path) -> None:
    nobody = ("rounds=2", "evaluation.full_ranking_users=0", "evaluation.curve_ranking=full")
    summary, rows = ran(tmp_path / "run", *nobody)
    curve = rows[(rows["which"] == "valid") & (rows["metric"] == "NDCG@5")]
    assert set(curve["ranking"]) == {"full"}
    assert curve["users"].min() > 50
    assert curve["value"].notna().all()
    assert summary["validated"] == "full ranking"
