"""MLflow keeps runs where `MLFLOW_TRACKING_URI` says, else in `mlflow.db` in the working folder."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgefr.simulation.tracking.tracker import TRACKERS, Log, Tracker, Values

if TYPE_CHECKING:
    from edgefr.simulation.runs.run import Run

LONGEST = 500
"""Characters of a parameter that any MLflow server takes."""


class MlflowRun(Log):
    """This is a run at MLflow."""

    def __init__(self, client: Any, number: str) -> None:
        self._client, self._number, self._step = client, number, 0

    def values(self, step: int, values: Values) -> None:
        from mlflow.entities import Metric

        self._step, now = step, int(time.time() * 1000)
        metrics = [Metric(_name(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._number, metrics=metrics)

    def end(self, values: Values, finished: bool) -> None:
        if values:
            self.values(self._step, values)
        self._client.set_terminated(self._number, "FINISHED" if finished else "FAILED")


class MLflow(Tracker):
    """MLflow compares runs by their settings and metrics; a run's folder is named in the tag `edgefr.run`."""

    name = "mlflow"
    extra = "mlflow"

    def check(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is told to anybody but the tracker
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        import mlflow.tracking  # noqa: F401

    def open(self, run: Run, settings: Mapping[str, str | float | bool]) -> MlflowRun:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        client, name = MlflowClient(), str(settings["name"])
        known = client.get_experiment_by_name(name)
        number = client.create_experiment(name) if known is None else known.experiment_id
        tags = {"edgefr.run": str(run.path), "mlflow.runName": run.path.name}
        made = client.create_run(number, tags=tags).info.run_id
        client.log_batch(made, params=[Param(_name(key), str(value)[:LONGEST]) for key, value in settings.items()])
        return MlflowRun(client, made)


def _name(name: str) -> str:
    """Return a name as MLflow takes it.

    >>> _name("test NDCG@10, full ranking")
    'test NDCG at 10 full ranking'
    """
    return name.replace("@", " at ").replace(",", "")


TRACKERS.register(MLflow())
