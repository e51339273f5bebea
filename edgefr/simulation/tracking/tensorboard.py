"""TensorBoard reads the events that a run writes into its own folder: `tensorboard --logdir runs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgefr.simulation.tracking.tracker import TRACKERS, Log, Tracker, Values

if TYPE_CHECKING:
    from edgefr.simulation.runs.run import Run

FOLDER = "tensorboard"


class Events(Log):
    """These events are written to files in the run's folder."""

    def __init__(self, writer: Any) -> None:
        self._writer, self._step = writer, 0

    def values(self, step: int, values: Values) -> None:
        self._step = step
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def end(self, values: Values, finished: bool) -> None:
        self.values(self._step, values)
        self._writer.close()


class TensorBoard(Tracker):
    """TensorBoard shows curves of one run, or of many beside each other."""

    name = "tensorboard"
    extra = "tensorboard"

    def check(self) -> None:
        import torch.utils.tensorboard  # noqa: F401

    def open(self, run: Run, settings: Mapping[str, str | float | bool]) -> Events:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(run.path / FOLDER))
        rows = "\n".join(f"| {name} | {value} |" for name, value in settings.items())
        writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        return Events(writer)


TRACKERS.register(TensorBoard())
