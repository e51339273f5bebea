"""The fleet in virtual time: who of a cohort contributes to a round, when the round closes, what it cost."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.fleet.clients import draw
from edgefr.fleet.events import Played, log, play
from edgefr.fleet.plan import Figures, Plan, make_plan
from edgefr.fleet.presence import Charge, Presence
from edgefr.fleet.spec import FleetFile
from edgefr.fleet.summary import summarise
from edgefr.fleet.tally import Tally
from edgefr.fleet.work import Work
from privacy import keyed
from privacy.errors import InputError

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]
LOGGED_COHORT = 1000  # larger cohorts leave one event per round, with counts, in place of one per client and stage


class Failure(IntEnum):
    """How an invitation ended; only OK contributes."""

    OK = 0
    MEMORY = 1  # training does not fit in what the device gives an app
    UNAVAILABLE = 2  # off the network when invited
    DOWNLOAD = 3  # lost while downloading
    CLIENT = 4  # lost while computing
    UPLOAD = 5  # lost while uploading
    DEADLINE = 6  # still at work at the deadline
    NOT_NEEDED = 7  # still at work when enough others had uploaded (first_k)
    BATTERY = 8  # refused: the round would leave too little charge
    VOID = 9  # uploaded, but too few others did and the round was thrown away


_REFUSALS = (Failure.MEMORY, Failure.UNAVAILABLE, Failure.BATTERY)
_LOST_IN = np.array([Failure.DOWNLOAD, Failure.CLIENT, Failure.UPLOAD], dtype=np.uint8)


@dataclass(frozen=True)
class RoundOutcome:
    """What came of a round, [C] in cohort order. `seconds`: from its start until the client left it.

    `failure` holds `Failure` codes; `started` and `ended` are virtual seconds; `events` can be written as
    JSON lines.
    """

    contributed: npt.NDArray[np.bool_]
    failure: Codes
    seconds: Floats
    energy_j: Floats
    started: float
    ended: float
    events: list[dict[str, Any]]


class Fleet:
    """A fleet of simulated devices and its virtual clock, which starts at midnight.

    `activity` [clients]: interactions of each client's user. `classes`: the device classes in use;
    `device_of` [clients] indexes them. Everything drawn is a function of (`seed`, purpose, round, client).

    Raises `InputError` for a fleet without clients or activity that is not finite.

    >>> from pathlib import Path
    >>> from edgefr.fleet import load_fleet
    >>> fleet = Fleet(load_fleet(Path("devices.yaml")), np.ones(100), seed=0)
    >>> fleet.over_selected(10), len(fleet.classes), int((fleet.device_of == 0).sum())
    (13, 13, 1)
    """

    def __init__(self, spec: FleetFile, activity: npt.ArrayLike, seed: int) -> None:
        activity = np.asarray(activity, dtype=np.float64)
        if activity.ndim != 1 or len(activity) == 0 or not np.isfinite(activity).all():
            raise InputError("a fleet needs at least one client, with a finite number of interactions each")
        self.spec = spec
        self.classes = [name for name in spec.devices if spec.fleet.share.get(name, 0.0) > 0]
        self._seed = seed
        self._clients = draw(spec, self.classes, activity, seed)
        self.device_of = self._clients.device
        self._figures = Figures(spec, self.classes)
        self._presence = Presence(spec.fleet.availability, len(activity), seed)
        self._charge = Charge(spec.fleet.battery, self._figures.battery_j[self.device_of], seed)
        self._tally = Tally(len(self.classes), len(Failure))
        self.now = 0.0  # virtual seconds
        self._rounds = self._void = self._seq = 0

    def over_selected(self, wanted: int) -> int:
        """How many clients to invite so that about `wanted` contribute."""
        return math.ceil(wanted * self.spec.rounds.over_select - 1e-9)

    def online(self, clients: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which of `clients` can be reached now. [C]"""
        return self._presence.online_until(self._checked(clients), self.now) > self.now

    def round(self, number: int, cohort: npt.ArrayLike, work: Work) -> RoundOutcome:
        """Simulate round `number` with the invited `cohort` [C]; the clock moves to its end.

        A lost connection is noticed when it happens, and a client that refuses says so at once. The round
        closes by the policy of the file. Raises `InputError` for clients that do not exist or are invited
        twice.
        """
        ids = self._checked(cohort)
        started, rules = self.now, self.spec.rounds
        wanted = math.floor(len(ids) / rules.over_select + 1e-9)
        at_least = math.ceil(wanted * rules.min_fraction - 1e-9)
        plan = make_plan(self._figures, self._clients, ids, work, self._seed, number)
        until = self._presence.online_until(ids, started)
        failure = self._refusals(ids, plan, until)
        working = failure == Failure.OK
        stops = np.minimum(until - started, self._dropouts(number, ids, plan))
        enough = max(wanted, 1) if rules.policy == "first_k" else None
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
        happened = log(plan.ends, stops, played, working) if len(ids) <= LOGGED_COHORT else []
        events = self._events(number, ids, started, failure, happened)
        return RoundOutcome(failure == Failure.OK, failure, seconds, joules, started, self.now, events)

    def summary(self) -> dict[str, Any]:
        """What the rounds so far took, in all and by device class, for `summary.json`."""
        clients = np.bincount(self.device_of, minlength=len(self.classes))
        kinds = [kind.name.lower() for kind in Failure]
        head = {"virtual_hours": self.now / 3600, "rounds": self._rounds, "void_rounds": self._void}
        return head | summarise(self.spec, self.classes, clients, self._tally, kinds)

    def state_dict(self) -> dict[str, Any]:
        """Arrays and numbers to go on from; what was drawn once is drawn again from the seed."""
        return {
            "clock": {"now": self.now, "rounds": self._rounds, "void": self._void, "seq": self._seq},
            "presence": self._presence.state_dict(),
            "charge": self._charge.state_dict(),
            "tally": self._tally.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()` of a fleet made from the same file, activity and seed."""
        if state["charge"]["spent"].shape != self.device_of.shape:
            raise InputError("this fleet state is of another number of clients; resume with the same data and fleet")
        clock = state["clock"]
        self.now, self._seq = float(clock["now"]), int(clock["seq"])
        self._rounds, self._void = int(clock["rounds"]), int(clock["void"])
        self._presence.load_state_dict(state["presence"])
        self._charge.load_state_dict(state["charge"])
        self._tally.load_state_dict(state["tally"])

    def _checked(self, cohort: npt.ArrayLike) -> npt.NDArray[np.int64]:
        ids = np.asarray(cohort, dtype=np.int64)
        count = len(self.device_of)
        if ids.ndim != 1 or (len(ids) and (ids.min() < 0 or ids.max() >= count)):
            raise InputError(f"a cohort lists clients 0 to {count - 1}")
        if len(np.unique(ids)) < len(ids):
            raise InputError("a cohort lists each client once")
        return ids

    def _refusals(self, ids: npt.NDArray[np.int64], plan: Plan, until: Floats) -> Codes:
        """Who does not start, and why. [C]"""
        joules = plan.spent(plan.ends[:, 2])[0]
        failure = np.zeros(len(ids), dtype=np.uint8)
        failure[~self._charge.allows(ids, self.now, joules)] = Failure.BATTERY
        failure[until <= self.now] = Failure.UNAVAILABLE
        failure[~plan.fits] = Failure.MEMORY
        return failure

    def _dropouts(self, number: int, ids: npt.NDArray[np.int64], plan: Plan) -> Floats:
        """When each client walks away, s from the start: at a random point of its round, or never. [C]"""
        keys = keyed.fold(keyed.key(self._seed, "dropout", number), ids)
        leaves = keyed.uniform(keys, 0) < self.spec.fleet.dropout
        return np.where(leaves, keyed.uniform(keys, 1) * plan.ends[:, 2], np.inf)

    def _account(
        self,
        ids: npt.NDArray[np.int64],
        plan: Plan,
        working: npt.NDArray[np.bool_],
        seconds: Floats,
        failure: Codes,
    ) -> Floats:
        """Charge batteries and tallies for `seconds` of the plan; returns joules [C]."""
        joules, down, up = plan.spent(seconds)
        device = self.device_of[ids]
        self._charge.spend(ids[working], self.now, joules[working])
        self._tally.outcome(device, failure)
        self._tally.add("memory_mb", device, plan.memory_mb)
        for name, values in (
            ("seconds", seconds),
            ("energy_j", joules),
            ("bytes_down", down),
            ("bytes_up", up),
        ):
            self._tally.add(name, device[working], values[working])
        return joules

    def _events(
        self,
        number: int,
        ids: npt.NDArray[np.int64],
        started: float,
        failure: Codes,
        happened: list[tuple[float, int, str]],
    ) -> list[dict[str, Any]]:
        """The round's log: what happened to each client (up to `LOGGED_COHORT`), and how it closed."""
        rows: list[dict[str, Any]] = [{"time": started, "kind": "started", "invited": len(ids)}]
        if len(ids) <= LOGGED_COHORT:
            for code in _REFUSALS:
                refusal = {"time": started, "kind": "refused", "why": code.name.lower()}
                rows += [refusal | {"client": client} for client in ids[failure == code].tolist()]
        rows += [{"time": started + t, "client": int(ids[i]), "kind": kind} for t, i, kind in happened]
        counts = np.bincount(failure, minlength=len(Failure))
        ended = {kind.name.lower(): int(counts[kind]) for kind in Failure if counts[kind]}
        rows.append({"time": self.now, "kind": "closed", "outcomes": ended})
        head = {"round": number, "client": None}
        first, self._seq = self._seq, self._seq + len(rows)
        return [{"time": row["time"], "seq": first + i} | head | row for i, row in enumerate(rows)]


def _failures(failure: Codes, working: npt.NDArray[np.bool_], played: Played, plan: Plan, stops: Floats) -> Codes:
    """Outcome codes [C] of those who started, beside the refusals."""
    stage = np.minimum((plan.ends <= stops[:, None]).sum(axis=1), 2)
    late = Failure.NOT_NEEDED if played.full else Failure.DEADLINE
    out = np.where(working & ~played.uploaded, np.uint8(late), failure)
    return np.where(played.lost, _LOST_IN[stage], out)
