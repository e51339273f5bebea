"""Runs are told to trackers: to the real libraries, and to one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import edgefr
from edgefr.simulation.tracking.tracker import TRACKERS, Log, Tracker, of_summary
from privacy.errors import InputError
from tests.cli import commands

SMALL = ["method=fedmf", "rounds=2", "model.dim=4", "protocol.negatives=20"]
SMALL += ["data_options={users: 50, items: 110, interactions: 14}"]


def ran(out: Path, *track: str) -> edgefr.Run:
    experiment = edgefr.load_experiment(overrides=[*SMALL, "name=tracked"])
    return edgefr.simulate(
        experiment, commands.ROOT / "devices.yaml", out=out, bundles=False, page=False, track=list(track)
    )


class Kept(Log):
    """This log keeps what it is told."""

    def __init__(self, fails: bool) -> None:
        self.told: list[tuple[int, dict[str, float]]] = []
        self.ended: list[tuple[dict[str, float], bool]] = []
        self.fails = fails

    def values(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append((step, dict(values)))
        if self.fails:
            raise OSError("no network")

    def end(self, values: Mapping[str, float], finished: bool) -> None:
        self.ended.append((dict(values), finished))


class Keeping(Tracker):
    """This tracker hands out one log."""

    name = "keeping"
    extra = ""

    def __init__(self, fails: bool = False) -> None:
        self.log = Kept(fails)

    def check(self) -> None:
        """Need nothing."""

    def open(self, run: edgefr.Run, settings: Mapping[str, str | float | bool]) -> Kept:
        self.settings = dict(settings)
        return self.log


def test_a_tracker_is_told_of_every_round_and_of_the_end(tmp_path: Path) -> None:
    with TRACKERS.having(Keeping()) as keeping:
        run = ran(tmp_path / "run", "keeping")
    assert [step for step, _ in keeping.log.told] == [1, 2]
    curve = run.metrics[run.metrics["round"].notna() & (run.metrics["metric"] == "NDCG@10")]
    assert [values["main/validation NDCG@10"] for _, values in keeping.log.told] == curve[curve["round"] > 0][
        "value"
    ].tolist()
    assert keeping.settings["model.dim"] == 4
    ((values, finished),) = keeping.log.ended
    assert finished
    assert values["test NDCG@10"] == run.summary["metrics"]["NDCG@10"]


def test_a_tracker_that_fails_stops_no_run(tmp_path: Path) -> None:
    with TRACKERS.having(Keeping(fails=True)) as keeping, pytest.warns(UserWarning, match="keeping failed.*no network"):
        run = ran(tmp_path / "run", "keeping")
    assert run.summary["metrics"]
    assert len(keeping.log.told) == 1, "it gets no further reports"


def test_a_run_that_breaks_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgefr.simulation.runs.saved_model.save_model", broken)
    with TRACKERS.having(Keeping()) as keeping, pytest.raises(KeyboardInterrupt):
        ran(tmp_path / "run", "keeping")
    assert keeping.log.ended == [({}, False)]


def test_tracking_changes_no_result(tmp_path: Path) -> None:
    with TRACKERS.having(Keeping()):
        one, two = ran(tmp_path / "one", "keeping"), ran(tmp_path / "two")
    assert one.summary["metrics"] == two.summary["metrics"]


def test_names_and_libraries_are_asked_for_before_any_work(tmp_path: Path) -> None:
    class Missing(Keeping):
        name, extra = "missing", "mlflow"

        def check(self) -> None:
            raise ImportError("no module named nothing")

    with pytest.raises(InputError, match="unknown tracker 'mlfow'; did you mean 'mlflow'"):
        ran(tmp_path / "run", "mlfow")
    with TRACKERS.having(Missing()), pytest.raises(InputError, match=r"pip install 'edgefr\[mlflow\]'"):
        ran(tmp_path / "run", "missing")
    assert not (tmp_path / "run").exists()


def test_only_finite_numbers_are_told() -> None:
    summary = {"metrics": {"HR@5": 0.5, "NDCG@5": float("nan")}, "privacy": {"eps_guaranteed": "inf"}, "fleet": {}}
    assert of_summary(summary) == {"test HR@5": 0.5}


def test_tensorboard_reads_what_a_run_wrote(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = ran(tmp_path / "run", "tensorboard")
    events = accumulator.EventAccumulator(str(run.path / "tensorboard")).Reload()
    curve = events.Scalars("main/validation NDCG@10")
    assert [event.step for event in curve] == [1, 2]
    (final,) = events.Scalars("test NDCG@10")
    assert final.value == pytest.approx(run.summary["metrics"]["NDCG@10"], abs=1e-6)
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_mlflow_keeps_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run = ran(tmp_path / "run", "mlflow")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("tracked")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["model.dim"] == "4"
    assert found.data.tags["edgefr.run"] == str(run.path)
    assert found.data.metrics["test NDCG at 10"] == run.summary["metrics"]["NDCG@10"]
    steps = client.get_metric_history(found.info.run_id, "main/validation NDCG at 10")
    assert [point.step for point in steps] == [1, 2]
