"""A tracker is told what a run is, of every round, and what came out; what it does with that is its own."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from edgefr.experiment.unread_settings import read_values
from privacy.errors import InputError
from privacy.table import Table

if TYPE_CHECKING:
    from edgefr.simulation.loop import Callback
    from edgefr.simulation.runs.run import Run
    from edgefr.simulation.stages.stage import Running

Values = Mapping[str, float]


class Log(ABC):
    """This is the open log of one run."""

    @abstractmethod
    def values(self, step: int, values: Values) -> None:
        """Take the values of a round, by name; `step` counts the run's rounds."""

    @abstractmethod
    def end(self, values: Values, finished: bool) -> None:
        """Take the test metrics of the finished run, and close; of a run that broke off there are none."""


class Tracker(ABC):
    """A tracker opens a log for every run. `name`: what `--track` calls it. `extra`: of edgefr, which has its library.

    `check` raises `ImportError` where that library is not installed; it is asked before any work is done.
    """

    name: str
    extra: str

    @abstractmethod
    def check(self) -> None:
        """Import what is needed."""

    @abstractmethod
    def open(self, run: Run, settings: Mapping[str, str | float | bool]) -> Log:
        """Open a log for a run whose settings are these, by dotted name."""


TRACKERS: Table[Tracker] = Table("tracker", Tracker, home="edgefr.simulation.tracking", group="edgefr.trackers")
"""Every tracker by its name."""


def trackers_of(names: Sequence[str]) -> list[Tracker]:
    """Return trackers by name. Raises `InputError` for an unknown one, and for one whose library is missing."""
    found = [TRACKERS[name] for name in dict.fromkeys(names)]
    for tracker in found:
        try:
            tracker.check()
        except ImportError as error:
            mend = f"pip install 'edgefr[{tracker.extra}]'" if tracker.extra else "install it"
            raise InputError(f"--track {tracker.name} needs a library that is missing ({error}): {mend}") from error
    return found


@contextmanager
def tracked(names: Sequence[str], run: Run) -> Iterator[list[Callback]]:
    """Open a log at every tracker for the length of a block, and return the callbacks that tell them of rounds.

    A tracker that fails is warned of and told nothing more: the run goes on.
    """
    settings = dict(_flat(read_values(run.experiment))) if names else {}
    with ExitStack() as stack:
        told = [TrackerCallback(tracker.name, tracker.open(run, settings)) for tracker in trackers_of(names)]
        for one in told:
            stack.callback(one.end, run)
        yield list(told)


class TrackerCallback:
    """This callback tells one log of every round, and of the end."""

    def __init__(self, name: str, log: Log) -> None:
        self._name, self._log, self._works = name, log, True

    def __call__(self, training: Running) -> None:
        """Pass on the values of a round that is done."""
        if self._works:
            self._safely(lambda: self._log.values(training.rounds, of_round(training)))

    def end(self, run: Run) -> None:
        """Close the log with what a finished run came to; without it where the run broke off."""
        finished = (run.path / "summary.json").is_file()
        self._safely(lambda: self._log.end(of_summary(run.summary) if finished else {}, finished))

    def _safely(self, tell: Any) -> None:
        try:
            tell()
        except Exception as error:
            self._works = False
            warnings.warn(f"tracker {self._name} failed and gets no further reports: {error}", stacklevel=2)


def of_round(training: Running) -> dict[str, float]:
    """Return the values of the round that is done: the newest point of the learning curve, and the clients' work.

    Nothing of a single client is among them.
    """
    on, counters = training.stage.task.name, training.federation.counters
    values = {f"{on}/validation {name}": value for name, value in training.curve.items()}
    values |= {"clients": float(counters.clients), "seconds training": counters.seconds}
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}


def of_summary(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return what a run came to: test metrics by ranking, what rounds cost, and what is guaranteed if anything is."""
    values = {f"test {name}": value for name, value in summary.get("metrics", {}).items()}
    values |= {f"test {name}, full ranking": v for name, v in summary.get("metrics_full_ranking", {}).items()}
    fleet = summary.get("fleet") or {}
    for name in ("seconds", "energy_j"):
        if isinstance(fleet.get(name), dict):
            values[f"round {name} p50"] = fleet[name].get("p50")
    values["eps guaranteed"] = (summary.get("privacy") or {}).get("eps_guaranteed")
    return {name: float(v) for name, v in values.items() if isinstance(v, int | float) and math.isfinite(v)}


def _flat(values: Any, name: str = "") -> Iterator[tuple[str, str | float | bool]]:
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    else:
        yield name, values if isinstance(values, str | int | float | bool) else str(values)
