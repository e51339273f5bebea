"""This module says in virtual time who of a cohort contributes to a round, when it closes, and what it cost."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.fleet.crowd import rows
from edgefr.fleet.devices import REFUSALS, Codes, Devices, Failure, Flags, Floats, Ids, lost_in
from edgefr.fleet.fedbuff import Ask, Buffered, StepOutcome
from edgefr.fleet.plan import PlannedRound
from edgefr.fleet.policies import POLICIES
from edgefr.fleet.spec import FleetFile
from edgefr.fleet.summary import summarise
from edgefr.fleet.work import Work
from privacy.errors import InputError

STAGES = ("downloaded", "trained", "uploaded", "lost")


@dataclass(frozen=True)
class Played:
    """This is a round's end: who `uploaded`, who was `lost` [C], and when it `closed`, s from its start.

    All others were still at work. `full`: it closed because enough had uploaded.
    """

    uploaded: Flags
    lost: Flags
    closed: float
    full: bool


def play(ends: Floats, stops: Floats, working: Flags, deadline: float, enough: int | None, at_least: int = 0) -> Played:
    """Run a round until nobody is at work, `enough` have uploaded, or the deadline.

    `ends` [C, 3]: seconds at which each stage would end; `stops` [C]: when the client is lost (inf: never); `working`
    [C]: who started. Fewer than `at_least` uploads keep the round open until the deadline. Ties are in cohort order.
    """
    uploaded, lost = np.zeros(len(ends), dtype=bool), np.zeros(len(ends), dtype=bool)
    leaves, who = np.minimum(ends[:, 2], stops), np.flatnonzero(working)
    order = who[np.argsort(leaves[who], kind="stable")]
    gone = order[leaves[order] <= deadline]
    uploads = stops[gone] >= ends[gone, 2]
    at_enough = np.flatnonzero(uploads & (np.cumsum(uploads) == enough)) if enough is not None else gone[:0]
    full = len(at_enough) > 0
    if full:
        gone, uploads = gone[: at_enough[0] + 1], uploads[: at_enough[0] + 1]
    uploaded[gone], lost[gone] = uploads, ~uploads
    if full or (len(gone) == len(order) > 0 and uploads.sum() >= at_least):
        return Played(uploaded, lost, float(leaves[gone[-1]]), full)
    return Played(uploaded, lost, deadline, full)


def log(ends: Floats, stops: Floats, played: Played, working: Flags) -> tuple[Floats, Ids, Ids]:
    """List all that happened before the close: seconds from the start, position in the cohort, number of the stage."""
    times = np.concatenate([ends, stops[:, None]], axis=1)
    happened = working[:, None] & (times <= np.minimum(stops, played.closed)[:, None])
    happened[:, 2] &= played.uploaded
    happened[:, 3] = played.lost
    client, stage = np.nonzero(happened)
    seconds = times[client, stage]
    order = np.lexsort((stage, client, seconds))
    return seconds[order], client[order], stage[order]


LOGGED_COHORT = 1000  # larger cohorts leave one event per round, with counts, in place of one per client and stage


@dataclass(frozen=True)
class RoundOutcome:
    """This is the outcome of a round, [C] in cohort order; `seconds`: from its start until the client left.

    `failure` holds `Failure` codes; `fetched`: downloads that ended; `started`, `ended`: virtual s; `events`: lines
    of JSON.
    """

    contributed: Flags
    fetched: Flags
    failure: Codes
    seconds: Floats
    energy_j: Floats
    started: float
    ended: float
    events: str


class Fleet:
    """The fleet holds simulated devices and its virtual clock, which starts at midnight.

    `activity` [clients]: interactions of each client's user. `classes`: the device classes in use; `device_of`
    [clients] indexes them. Everything drawn is a function of (`seed`, purpose, round, client).

    Raises `InputError` for a fleet without clients or activity that is not finite.
    """

    def __init__(self, spec: FleetFile, activity: npt.ArrayLike, seed: int) -> None:
        activity = np.asarray(activity, dtype=np.float64)
        if activity.ndim != 1 or len(activity) == 0 or not np.isfinite(activity).all():
            raise InputError("a fleet needs at least one client, with a finite number of interactions each")
        self.spec = spec
        self.classes = [name for name in spec.devices if spec.fleet.share.get(name, 0.0) > 0]
        self._devices = Devices(spec, self.classes, activity, seed)
        self.device_of = self._devices.device_of
        self._buffered = Buffered(spec.rounds, self._devices)
        self.now = 0.0  # virtual seconds
        self._rounds = self._void = self._seq = 0

    def over_selected(self, wanted: int) -> int:
        """Return how many clients to invite so that about `wanted` contribute."""
        return self.spec.rounds.over_selected(wanted)

    def online(self, clients: npt.ArrayLike) -> Flags:
        return self._devices.availability.online_until(self._checked(clients), self.now) > self.now

    def round(self, number: int, cohort: npt.ArrayLike, work: Work) -> RoundOutcome:
        """Simulate round `number` with the invited `cohort` [C]; the clock moves to its end.

        Clients that refuse or lose the connection are known at once. The round closes by the file's policy (deadline or
        first_k). Raises `InputError` for clients that do not exist or are invited twice.
        """
        ids = self._checked(cohort)
        started, rules = self.now, self.spec.rounds
        wanted = math.floor(len(ids) / rules.over_select + 1e-9)
        at_least = math.ceil(wanted * rules.min_fraction - 1e-9)
        plan, walks = self._devices.plan(number, ids, work)
        failure, stops, plan = self._devices.asked(ids, plan, walks, started)
        working = failure == Failure.OK
        enough = POLICIES[rules.policy].enough(wanted)
        played = play(plan.ends, stops, working, rules.deadline_s, enough, at_least)

        failure = _failures(failure, working, played, plan, stops)
        seconds = np.where(working, np.minimum(np.minimum(plan.ends[:, 2], stops), played.closed), 0.0)
        void = int(played.uploaded.sum()) < at_least
        if void:
            failure[played.uploaded] = Failure.VOID
        joules = self._account(ids, plan, working, seconds, failure)
        self.now = started + played.closed
        self._rounds += 1
        self._void += void
        events = self._written(number, [{"time": started, "kind": "started", "invited": len(ids)}])
        if len(ids) <= LOGGED_COHORT:
            events += self._of_clients(number, ids, started, failure, log(plan.ends, stops, played, working))
        events += self._written(number, [{"time": self.now, "kind": "closed", "outcomes": _counts(failure)}])
        fetched = working & (seconds >= plan.ends[:, 0])
        return RoundOutcome(failure == Failure.OK, fetched, failure, seconds, joules, started, self.now, events)

    def step(self, number: int, order: npt.ArrayLike, ask: Ask, wanted: int) -> StepOutcome:
        """Simulate round `number` of policy async until a buffer of updates has arrived; the clock moves to then.

        Clients are asked in `order` [P], each once a round, while hands are free; `ask` tells the work of some. Clients
        at work stay so in the next round. The buffer holds `wanted` updates or as the file says, at most all clients.
        """
        ids = self._checked(order)
        buffer, hands = self.spec.rounds.buffered(wanted, len(ids))
        out = self._buffered.step(number, self.now, ids, ask, buffer, hands, hands <= LOGGED_COHORT)
        self.now = out.ended
        self._rounds += 1
        self._void += not len(out.clients)
        return self._closed(number, out)

    def adjourn(self, number: int) -> StepOutcome:
        """Stop all clients at work after round `number` of policy async, and void waiting updates; no-op for others."""
        logged = self._buffered.crowd.at_work <= LOGGED_COHORT
        out = self._buffered.adjourn(number, self.now, logged)
        return self._closed(number, out) if len(out.left) else out

    @property
    def version(self) -> int:
        """Return, under policy async, how many aggregates were made so far."""
        return self._buffered.crowd.version

    @property
    def versions(self) -> set[int]:
        """Return, under policy async, the versions that clients at work and waiting updates started from."""
        return self._buffered.crowd.versions

    @property
    def busy(self) -> Ids:
        """Return, under policy async, the clients at work and those whose uploads wait."""
        return self._buffered.crowd.busy()

    def summary(self) -> dict[str, Any]:
        clients = np.bincount(self.device_of, minlength=len(self.classes))
        kinds = [kind.name.lower() for kind in Failure]
        head: dict[str, Any] = {"virtual_hours": self.now / 3600, "rounds": self._rounds, "void_rounds": self._void}
        if not self.spec.rounds.waits:
            head["staleness"] = _staleness(self._buffered.staleness)
        return head | summarise(self.spec, self.classes, clients, self._devices.histogram, kinds)

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint; what was drawn once is drawn again from the seed."""
        clock = {"now": self.now, "rounds": self._rounds, "void": self._void, "seq": self._seq}
        return {"clock": clock, **self._devices.state_dict(), "buffered": self._buffered.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["charge"]["spent"].shape != self.device_of.shape:
            raise InputError("this fleet state is of another number of clients; resume with the same data and fleet")
        clock = state["clock"]
        self.now, self._seq = float(clock["now"]), int(clock["seq"])
        self._rounds, self._void = int(clock["rounds"]), int(clock["void"])
        self._devices.load_state_dict(state)
        self._buffered.load_state_dict(state["buffered"])

    def _checked(self, cohort: npt.ArrayLike) -> Ids:
        ids = np.asarray(cohort, dtype=np.int64)
        count = len(self.device_of)
        if ids.ndim != 1 or (len(ids) and (ids.min() < 0 or ids.max() >= count)):
            raise InputError(f"a cohort lists clients 0 to {count - 1}")
        if len(np.unique(ids)) < len(ids):
            raise InputError("a cohort lists each client once")
        return ids

    def _account(self, ids: Ids, plan: PlannedRound, working: Flags, seconds: Floats, failure: Codes) -> Floats:
        """Charge batteries, and count histograms, for `seconds` of the plan; returns joules [C]."""
        devices = self._devices
        joules = plan.spent(seconds)[0]
        devices.charge.spend(ids[working], self.now, joules[working])
        devices.histogram.outcome(self.device_of[ids], failure)
        devices.histogram.add("memory_mb", self.device_of[ids], plan.memory_mb)
        if working.any():
            devices.account(ids[working], rows(plan, working), seconds[working])
        return joules

    def _of_clients(
        self, number: int, ids: Ids, started: float, failure: Codes, happened: tuple[Floats, Ids, Ids]
    ) -> str:
        """Return a round's log of its clients, as `_written` would write it: who refused, then who did what and when.

        The columns are made at once: it is all that a round does for one client after another.
        """
        seconds, places, stages = happened
        refused = [(f'"refused", "why": "{code.name.lower()}"', ids[failure == code]) for code in REFUSALS]
        clients = np.concatenate([*(some for _, some in refused), ids[places]])
        kinds = [kind for kind, some in refused for _ in range(len(some))]
        times = [started] * len(kinds) + (started + seconds).tolist()
        kinds += np.array([f'"{kind}"' for kind in STAGES], dtype=object)[stages].tolist()
        classes = np.array([json.dumps(name) for name in self.classes], dtype=object)[self.device_of[clients]]
        first, self._seq = self._seq, self._seq + len(kinds)
        columns = zip(times, range(first, self._seq), clients.tolist(), kinds, classes.tolist(), strict=True)
        lines = [
            f'{{"time": {time!r}, "seq": {seq}, "round": {number}, "client": {client}, "kind": {kind}, "class": {of}}}'
            for time, seq, client, kind, of in columns
        ]
        return "\n".join([*lines, ""])

    def _closed(self, number: int, out: StepOutcome) -> StepOutcome:
        closed = {"time": out.ended, "kind": "closed", "version": self.version, "outcomes": _counts(out.failure)}
        return replace(out, events=self._written(number, [*out.happened, closed]))

    def _written(self, number: int, happened: list[dict[str, Any]]) -> str:
        """Return events as they are logged: with a running number, their round, and their client's device class."""
        lines = []
        for row in happened:
            event = {"time": row["time"], "seq": self._seq, "round": number, "client": None, **row}
            if event["client"] is not None:
                event["class"] = self.classes[self.device_of[event["client"]]]
            lines.append(json.dumps(event) + "\n")
            self._seq += 1
        return "".join(lines)


def _failures(failure: Codes, working: Flags, played: Played, plan: PlannedRound, stops: Floats) -> Codes:
    """Return the outcome codes [C] of those who started, beside the refusals."""
    late = Failure.NOT_NEEDED if played.full else Failure.DEADLINE
    out = np.where(working & ~played.uploaded, np.uint8(late), failure)
    return np.where(played.lost, lost_in(plan.ends, stops), out)


def _counts(failure: Codes) -> dict[str, int]:
    counts = np.bincount(failure, minlength=len(Failure))
    return {kind.name.lower(): int(counts[kind]) for kind in Failure if counts[kind]}


def _staleness(counts: npt.NDArray[np.int64]) -> dict[str, float | None]:
    """Return mean, median, 90th percentile and maximum of staleness `counts` [ages]; None without any."""
    total = int(counts.sum())
    if not total:
        return dict.fromkeys(("mean", "p50", "p90", "max"))
    ages, reached = np.arange(len(counts)), np.cumsum(counts)
    p50, p90 = (int(np.searchsorted(reached, math.ceil(q * total))) for q in (0.5, 0.9))
    return {"mean": float(ages @ counts / total), "p50": p50, "p90": p90, "max": int(ages[counts > 0].max())}
