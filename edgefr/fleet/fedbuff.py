"""Policy async runs rounds that wait for no particular client (FedBuff, Nguyen et al. 2022, Algorithm 1).

A fixed number of clients is at work, each from the model of its start; a round ends with a full buffer of uploads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgefr.fleet.crowd import ActiveClients, ClientTask, Queue, rows, stacked
from edgefr.fleet.devices import REFUSALS, Codes, Devices, Failure, Flags, Floats, Ids, lost_in
from edgefr.fleet.plan import PlannedRound
from edgefr.fleet.spec import Rounds
from edgefr.fleet.work import Work

Event = dict[str, Any]
Ask = Callable[[Ids], Work]


@dataclass(frozen=True)
class StepOutcome:
    """This is the outcome of one round with a buffer.

    `clients`, `rounds`, `versions`, `staleness` [K]: the aggregate's updates in order of arrival, with the round each
    started in, aggregates by then, and aggregates since (K = 0: the round is void). `left`, `failure`, `seconds`,
    `energy_j` [L]: decided invitations, refusals included; `fetched`: downloads that ended. `started`, `ended`: virtual
    s. `happened`: all that did, `events` the same in lines of JSON.
    """

    clients: Ids
    rounds: Ids
    versions: Ids
    staleness: Ids
    left: Ids
    failure: Codes
    seconds: Floats
    energy_j: Floats
    fetched: Flags
    started: float
    ended: float
    happened: list[Event]
    events: str = ""


@dataclass
class Minutes:
    """This is a round's record until it ends; `barred` [clients]: who is not asked."""

    number: int
    barred: Flags
    logged: bool
    events: list[Event] = field(default_factory=list)
    asked: list[tuple[Ids, Floats]] = field(default_factory=list)  # and the memory it would take, MB
    refused: list[tuple[int, int]] = field(default_factory=list)
    gone: list[ClientTask] = field(default_factory=list)  # left their work, to be charged for it
    decided: list[ClientTask] = field(default_factory=list)  # with their outcomes

    def log(self, time: float, kind: str, client: int | None = None, **more: Any) -> None:
        """Note an event; large rounds leave out those of single clients."""
        if self.logged or client is None:
            self.events.append({"time": time, "kind": kind, "client": client, **more})


class Buffered:
    """This is the asynchronous server of a fleet in virtual time; `staleness` counts aggregated updates by age."""

    def __init__(self, rules: Rounds, devices: Devices) -> None:
        self._rules, self._devices = rules, devices
        self.crowd = ActiveClients()
        self.staleness = np.zeros(rules.max_staleness + 1, dtype=np.int64)

    def step(self, number: int, now: float, order: Ids, ask: Ask, buffer: int, hands: int, logged: bool) -> StepOutcome:
        """Run round `number` from `now` until `buffer` uploads wait, with up to `hands` clients at work.

        If nobody is at work nor left to be asked, the round ends: enough uploads make an aggregate, fewer wait on, and
        the round is void, after its deadline at the earliest.
        """
        crowd, started = self.crowd, now
        minutes = Minutes(number, np.zeros(len(self._devices.device_of), dtype=bool), logged)
        minutes.barred[crowd.busy()] = True
        minutes.log(now, "started", at_work=crowd.at_work, waiting=len(crowd.waiting))
        queue = Queue(order, lambda some: self._devices.plan(number, some, ask(some)))
        while len(crowd.waiting) < buffer:
            self._invite(minutes, queue, now, hands)
            when = crowd.next
            if when is None:
                break
            now = when
            while crowd.next == when and len(crowd.waiting) < buffer:
                self._leave(minutes, now)
        enough = max(math.ceil(buffer * self._rules.min_fraction - 1e-9), 1)
        if len(crowd.waiting) < enough:
            return self._on_record(minutes, [], started, max(now, started + self._rules.deadline_s))
        taken = crowd.waiting[:buffer]
        age = np.array([crowd.version - task.version for task in taken])
        outcome = self._on_record(minutes, crowd.aggregate(buffer), started, now)
        self.staleness += np.bincount(age, minlength=len(self.staleness))
        return replace(
            outcome,
            clients=np.array([task.client for task in taken]),
            rounds=np.array([task.round for task in taken]),
            versions=np.array([task.version for task in taken]),
            staleness=age,
        )

    def adjourn(self, number: int, now: float, logged: bool) -> StepOutcome:
        """End round `number`: clients at work are told to stop, and waiting uploads are dropped."""
        minutes = Minutes(number, np.zeros(0, dtype=bool), logged)
        working, waiting = self.crowd.dismiss()
        for task in working:
            stopped = replace(task, seconds=now - task.started, failure=int(Failure.NOT_NEEDED))
            minutes.log(now, "dismissed", task.client)
            minutes.gone.append(stopped)
            minutes.decided.append(stopped)
        minutes.decided += [replace(task, failure=int(Failure.VOID)) for task in waiting]
        return self._on_record(minutes, [], now, now)

    def _invite(self, minutes: Minutes, queue: Queue, now: float, hands: int) -> None:
        """Ask clients until enough are at work, or nobody is left."""
        while (free := hands - self.crowd.at_work) > 0:
            found = queue.take(free, lambda ids: ~minutes.barred[ids])
            if found is None:
                return
            ids, plan, walks = found
            refusal, stops, plan = self._devices.asked(ids, plan, walks, now)
            minutes.asked.append((ids, plan.memory_mb))
            seconds, failure = self._ends(plan, stops)
            for row, (client, why) in enumerate(zip(ids.tolist(), refusal.tolist(), strict=True)):
                if why in REFUSALS:
                    minutes.refused.append((client, why))
                    minutes.log(now, "refused", client, why=Failure(why).name.lower())
                    continue
                version, serial, ends = self.crowd.version, self.crowd.serial, float(seconds[row])
                task = ClientTask(
                    client, minutes.number, version, serial, now, ends, int(failure[row]), rows(plan, [row])
                )
                self.crowd.enter(task)
                self.crowd.serial += 1
                minutes.log(now, "invited", client, version=version)

    def _ends(self, plan: PlannedRound, stops: Floats) -> tuple[Floats, Codes]:
        """Return how long each client that starts is at work, s, and its outcome (OK: an upload); both [C]."""
        limit, done = self._rules.deadline_s, plan.ends[:, 2]
        failure = np.where(stops <= limit, lost_in(plan.ends, stops), np.uint8(Failure.DEADLINE))
        uploads = (done <= stops) & (done <= limit)
        return np.minimum(np.minimum(done, stops), limit), np.where(uploads, np.uint8(Failure.OK), failure)

    def _leave(self, minutes: Minutes, now: float) -> None:
        """Let the next client leave: its upload waits, is too late, or does not exist."""
        task = self.crowd.leave()
        minutes.gone.append(task)
        age = self.crowd.version - task.version
        if task.failure != Failure.OK:
            kind = "late" if task.failure == Failure.DEADLINE else "lost"
            minutes.log(now, kind, task.client, why=Failure(task.failure).name.lower())
            minutes.decided.append(task)
            return
        minutes.log(now, "uploaded", task.client, staleness=age)
        if age > self._rules.max_staleness:
            minutes.decided.append(replace(task, failure=int(Failure.STALE)))
        else:
            self.crowd.waiting.append(task)

    def _on_record(self, minutes: Minutes, taken: Sequence[ClientTask], started: float, ended: float) -> StepOutcome:
        """Charge and count what happened."""
        devices, tasks = self._devices, [*minutes.decided, *taken]
        if minutes.asked:
            asked, memory = (np.concatenate(column) for column in zip(*minutes.asked, strict=True))
            devices.histogram.add("memory_mb", devices.device_of[asked], memory)
        gone, plan, seconds = _columns(minutes.gone)
        if plan is not None:
            begun = np.array([task.started for task in minutes.gone])
            devices.charge.spend(gone, begun, plan.spent(seconds)[0])
        ids, plan, seconds = _columns(tasks)
        refused = np.array(minutes.refused, dtype=np.int64).reshape(-1, 2)
        left = np.concatenate([ids, refused[:, 0]])
        codes = np.array([task.failure for task in tasks], dtype=np.uint8)
        failure = np.concatenate([codes, refused[:, 1].astype(np.uint8)])
        nothing = np.zeros(len(refused))
        joules, fetched = nothing, np.zeros(len(left), dtype=bool)
        if plan is not None:
            joules = np.concatenate([devices.account(ids, plan, seconds), nothing])
            fetched[: len(ids)] = seconds >= plan.ends[:, 0]
        devices.histogram.outcome(devices.device_of[left], failure)
        none = np.zeros(0, dtype=np.int64)
        seconds = np.concatenate([seconds, nothing])
        return StepOutcome(
            none, none, none, none, left, failure, seconds, joules, fetched, started, ended, minutes.events
        )

    def state_dict(self) -> dict[str, Any]:
        return {"crowd": self.crowd.state_dict(), "staleness": self.staleness.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.crowd.load_state_dict(state["crowd"])
        self.staleness = state["staleness"].copy()


def _columns(tasks: Sequence[ClientTask]) -> tuple[Ids, PlannedRound | None, Floats]:
    ids = np.array([task.client for task in tasks], dtype=np.int64)
    seconds = np.array([task.seconds for task in tasks], dtype=np.float64)
    return ids, PlannedRound(**stacked([task.plan for task in tasks])) if tasks else None, seconds
