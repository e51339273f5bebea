"""One trial: when it ends, and that it looks at no test item."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import edgefr.simulation.evaluation.measure
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.studies.sweeps.search import Trial
from edgefr.studies.tuning import trial as trials
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.trial import TrialJob, Watched, _Enough, bars
from privacy.errors import InputError

SMALL = [
    "method=fedmf",
    "model.dim=4",
    "rounds=4",
    "data_options={users: 60, items: 160, interactions: 12}",
    "evaluation.curve_ranking=full",
]


SESSIONS = [
    "method=gru4rec",
    "model.dim=4",
    "model.length=8",
    "protocol={name: sessions, gap_minutes: 40000, negatives: 20}",
    *SMALL[2:],
]


def followed(watched: Watched, values: list[float]) -> list[int]:
    """The rounds that a trial comes to whose values are these, measured every 5 rounds."""
    done = []
    for number, value in enumerate(values, 1):
        done.append(5 * number)
        try:
            watched.take(5 * number, value)
        except _Enough:
            break
    return done


@pytest.mark.parametrize(
    ("rules", "bars_at", "values", "rounds", "why"),
    [
        (Rules(patience=10), {}, [0.1, 0.3, 0.2, 0.2, 0.9], [5, 10, 15, 20], trials.NO_BETTER),
        (Rules(), {10: 0.25}, [0.1, 0.2, 0.9], [5, 10], trials.BELOW),
        (Rules(), {10: 0.25}, [0.3, 0.1, 0.2], [5, 10, 15], trials.ALL),  # its best so far counts; once
    ],
)
def test_a_trial_ends_when_it_is_not_better_for_long_or_below_the_bar(
    rules: Rules, bars_at: dict[int, float], values: list[float], rounds: list[int], why: str
) -> None:
    watched = Watched(rules, bars_at)
    assert followed(watched, values) == rounds
    assert watched.ended == why
    assert trials.best(watched.points)[1] == max(values[: len(rounds)])


def test_bars_are_medians_of_who_got_so_far() -> None:
    curves = [[[5, 0.1], [10, 0.3]], [[5, 0.2], [10, 0.1]], [[5, 0.7]], [[5, None], [10, None]]]
    records = [{"runs": [{"curve": curve}]} for curve in curves] + [{"runs": []}]
    assert bars(records, (5, 10)) == {5: 0.2, 10: 0.25}
    assert bars([], (5,)) == {}


@pytest.fixture(params=[SMALL, SESSIONS], ids=["leave-one-out", "sessions"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> TrialJob:
    experiments = [load_experiment(overrides=request.param, seed=seed) for seed in (1000, 1001)]
    fleet = load_fleet("devices.yaml")
    return TrialJob(Trial(3, {"model.lr": 1.0}), experiments, fleet, Rules(), (), tmp_path / "trial")


def test_a_trial_writes_what_validation_said_and_nothing_else(job: TrialJob) -> None:
    value = trials.make(job, None)
    assert [path.name for path in job.out.iterdir()] == [trials.RECORD.name]
    found = trials.read(job.out)
    assert trials.value_of(found) == value > 0
    assert [run["seed"] for run in found["runs"]] == [1000, 1001]
    assert [[number for number, _ in run["curve"]] for run in found["runs"]] == [[1, 2, 3, 4]] * 2
    assert value == sum(max(v for _, v in run["curve"]) for run in found["runs"]) / 2
    assert (found["number"], found["on"], found["ranking"]) == (3, "validation items", "full")


def test_no_test_item_is_ranked(job: TrialJob, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    rank = edgefr.simulation.evaluation.measure.evaluate

    def seen(score, split, which, ranking, users):  # type: ignore[no-untyped-def]
        asked.append(which)
        return rank(score, split, which, ranking, users=users)

    monkeypatch.setattr(edgefr.simulation.evaluation.measure, "evaluate", seen)
    trials.make(job, None)
    assert set(asked) == {"valid"}


def test_a_damaged_record_is_said_and_a_missing_one_is_none(tmp_path: Path) -> None:
    assert trials.read(tmp_path) is None
    (tmp_path / trials.RECORD.name).write_text(json.dumps({"schema": "other"}))
    with pytest.raises(InputError, match="of schema other; remove it"):
        trials.read(tmp_path)
