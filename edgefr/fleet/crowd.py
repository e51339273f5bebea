"""The crowd knows whom rounds ask next, who is at work since when, and whose uploads wait, for policy async.

order of the round → `Queue` → at work (a heap of when each leaves) → upload waits → aggregate
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.fleet.plan import PlannedRound

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
PLANNED_AHEAD = 64  # clients whose work is planned in one call, so that asking one at a time stays cheap


@dataclass(frozen=True)
class ClientTask:
    """This is one client's work: `seconds` after `started` (virtual s), with outcome `failure`; `plan` has one row.

    `round`: in which it was asked, `version`: aggregates made by then, `serial`: its place among all tasks.
    """

    client: int
    round: int
    version: int
    serial: int
    started: float
    seconds: float
    failure: int
    plan: PlannedRound


def rows(plan: PlannedRound, index: npt.ArrayLike) -> PlannedRound:
    """Take some clients of a plan: rows `index`."""
    where = np.asarray(index)
    return PlannedRound(**{f.name: getattr(plan, f.name)[where] for f in fields(PlannedRound)})


def stacked(plans: Sequence[PlannedRound]) -> dict[str, npt.NDArray[Any]]:
    return {f.name: np.concatenate([getattr(plan, f.name) for plan in plans]) for f in fields(PlannedRound)}


class Queue:
    """A queue holds a round's clients in the order in which they are asked, each once, with plans and dropouts.

    `plan(ids)` gives a plan and when each walks away, s from its start; it takes at least `PLANNED_AHEAD` clients.
    """

    def __init__(self, order: Ids, plan: Callable[[Ids], tuple[PlannedRound, Floats]]) -> None:
        self._order, self._plan = order, plan
        self._next = 0  # place in the order of the first client that is not planned
        self._ids, self._at = order[:0], 0
        self._planned: tuple[PlannedRound, Floats] | None = None

    def take(self, count: int, able: Callable[[Ids], npt.NDArray[np.bool_]]) -> tuple[Ids, PlannedRound, Floats] | None:
        """Take the next `count` clients that are `able` to be asked, or fewer; None when nobody is left."""
        while True:
            if self._at == len(self._ids) and not self._fill(count, able):
                return None
            assert self._planned is not None
            index = np.arange(self._at, min(self._at + count, len(self._ids)))
            self._at = int(index[-1]) + 1
            index = index[able(self._ids[index])]
            if len(index):
                return self._ids[index], rows(self._planned[0], index), self._planned[1][index]

    def _fill(self, count: int, able: Callable[[Ids], npt.NDArray[np.bool_]]) -> bool:
        """Plan the next clients; return whether there were any."""
        while self._next < len(self._order):
            some = self._order[self._next : self._next + max(count, PLANNED_AHEAD)]
            self._next += len(some)
            some = some[able(some)]
            if len(some):
                self._ids, self._at, self._planned = some, 0, self._plan(some)
                return True
        return False


@dataclass
class ActiveClients:
    """These are clients at work, and uploads that wait for enough others. `version` counts aggregates."""

    version: int = 0
    serial: int = 0
    waiting: list[ClientTask] = field(default_factory=list)
    _tasks: dict[int, ClientTask] = field(default_factory=dict)
    _heap: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def at_work(self) -> int:
        return len(self._tasks)

    @property
    def versions(self) -> set[int]:
        """Return the versions that clients at work and waiting uploads started from."""
        return {task.version for task in (*self._tasks.values(), *self.waiting)}

    @property
    def next(self) -> float | None:
        """Return when the next client leaves, virtual s; None: nobody is at work."""
        return self._heap[0][0] if self._heap else None

    def busy(self) -> Ids:
        return np.array([*self._tasks, *(task.client for task in self.waiting)], dtype=np.int64)

    def enter(self, task: ClientTask) -> None:
        self._tasks[task.client] = task
        heapq.heappush(self._heap, (task.started + task.seconds, task.serial, task.client))

    def leave(self) -> ClientTask:
        """Remove and return the client that leaves next; of those that leave together the one that was asked first."""
        return self._tasks.pop(heapq.heappop(self._heap)[2])

    def aggregate(self, most: int) -> list[ClientTask]:
        """Take the first `most` waiting uploads for a new version, which the next task starts from."""
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        self.version += 1
        return taken

    def dismiss(self) -> tuple[list[ClientTask], list[ClientTask]]:
        """Return clients at work in order of their start, and waiting uploads; nobody is left."""
        working = sorted(self._tasks.values(), key=lambda task: task.serial)
        waiting = self.waiting
        self.waiting, self._tasks, self._heap = [], {}, []
        return working, waiting

    def state_dict(self) -> dict[str, Any]:
        tasks = [*self.waiting, *sorted(self._tasks.values(), key=lambda task: task.serial)]
        numbers = {"version": self.version, "serial": self.serial, "waiting": len(self.waiting)}
        if not tasks:
            return numbers
        columns = {
            name: np.array([getattr(task, name) for task in tasks])
            for name in ("client", "round", "version", "serial", "started", "seconds", "failure")
        }
        return {**numbers, "tasks": columns, "plan": stacked([task.plan for task in tasks])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.dismiss()
        self.version, self.serial = int(state["version"]), int(state["serial"])
        if "tasks" not in state:
            return
        plan, columns = PlannedRound(**state["plan"]), state["tasks"]
        for row in range(len(columns["client"])):
            values = {name: column[row].item() for name, column in columns.items()}
            task = ClientTask(**values, plan=rows(plan, [row]))
            if row < state["waiting"]:
                self.waiting.append(task)
            else:
                self.enter(task)
