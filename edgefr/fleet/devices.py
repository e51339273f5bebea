"""The fleet's devices are asked to take part: what it would take, who refuses, who walks away, what it costs."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.config import random_streams as purposes
from edgefr.fleet.availability import AvailabilityProcess, Charge
from edgefr.fleet.clients import draw
from edgefr.fleet.histogram import Histogram
from edgefr.fleet.plan import Figures, PlannedRound, make_plan
from edgefr.fleet.spec import FleetFile
from edgefr.fleet.work import Work
from privacy import keyed

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]


class Failure(IntEnum):
    """A code says how an invitation ended, `WHY` in words; only OK contributes."""

    OK = 0
    MEMORY = 1
    UNAVAILABLE = 2
    DOWNLOAD = 3
    CLIENT = 4
    UPLOAD = 5
    DEADLINE = 6
    NOT_NEEDED = 7
    BATTERY = 8
    VOID = 9
    STALE = 10


WHY = {
    Failure.MEMORY: "training does not fit in what the device gives an app",
    Failure.UNAVAILABLE: "off the network when invited",
    Failure.DOWNLOAD: "lost while downloading",
    Failure.CLIENT: "lost while computing",
    Failure.UPLOAD: "lost while uploading",
    Failure.DEADLINE: "still at work at the deadline",
    Failure.NOT_NEEDED: "still at work when enough others had uploaded, or the rounds were over",
    Failure.BATTERY: "refused: too little charge, or not on the charger for all of the round",
    Failure.VOID: "uploaded, but too few others did and the round was thrown away",
    Failure.STALE: "uploaded too many aggregates after it had started",
}

REFUSALS = (Failure.MEMORY, Failure.UNAVAILABLE, Failure.BATTERY)
_LATER = np.array([0.0, 1.0, 1.0])  # a pause puts off the ends of computing and upload
_LOST_IN = np.array([Failure.DOWNLOAD, Failure.CLIENT, Failure.UPLOAD], dtype=np.uint8)


class Devices:
    """This holds all clients' devices and their use; draws are functions of (`seed`, purpose, round, client)."""

    def __init__(self, spec: FleetFile, classes: list[str], activity: Floats, seed: int) -> None:
        self._seed = seed
        self._clients = draw(spec, classes, activity, seed)
        self.device_of = self._clients.device
        self._figures = Figures(spec, classes)
        self.availability = AvailabilityProcess(spec.fleet.availability, len(activity), seed)
        self.charge = Charge(spec.fleet.battery, self._figures.battery_j[self.device_of], seed)
        self.histogram = Histogram(len(classes), len(Failure))
        self._dropout, self._deadline = spec.fleet.dropout, spec.rounds.deadline_s

    def plan(self, number: int, ids: Ids, work: Work) -> tuple[PlannedRound, Floats]:
        """Plan round `number` on each client, and when it walks away, s from its start or inf: [C]."""
        plan = make_plan(self._figures, self._clients, ids, work, self._seed, number)
        keys = keyed.fold(keyed.key(self._seed, purposes.DROPOUT, number), ids)
        leaves = keyed.uniform(keys, 0) < self._dropout
        return plan, np.where(leaves, keyed.uniform(keys, 1) * plan.ends[:, 2], np.inf)

    def asked(self, ids: Ids, plan: PlannedRound, walks: Floats, now: float) -> tuple[Codes, Floats, PlannedRound]:
        """Say who refuses at `now` and why, when those who start are lost (s), and their plans with pauses; all [C].

        A client has to be there for the whole of its work, not only when it ends.
        """
        online = self.availability.online_until(ids, now) > now
        pauses, lost = self.availability.interruptions(ids, now, plan.ends, self._deadline)
        plan = replace(plan, ends=plan.ends + pauses[:, None] * _LATER)
        joules = plan.spent(plan.ends[:, 2])[0]
        failure = np.zeros(len(ids), dtype=np.uint8)
        failure[~self.charge.allows(ids, now, joules, plan.ends[:, 2])] = Failure.BATTERY
        failure[~online] = Failure.UNAVAILABLE
        failure[~plan.fits] = Failure.MEMORY
        return failure, np.minimum(lost, walks), plan

    def account(self, ids: Ids, plan: PlannedRound, seconds: Floats) -> Floats:
        """Count `seconds` of their plans [C] for clients that started; returns joules [C]."""
        joules, down, up = plan.spent(seconds)
        counted = {"seconds": seconds, "energy_j": joules, "bytes_down": down, "bytes_up": up}
        for name, values in counted.items():
            self.histogram.add(name, self.device_of[ids], values)
        return joules

    def state_dict(self) -> dict[str, Any]:
        return {
            "availability": self.availability.state_dict(),
            "charge": self.charge.state_dict(),
            "histogram": self.histogram.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.availability.load_state_dict(state["availability"])
        self.charge.load_state_dict(state["charge"])
        self.histogram.load_state_dict(state["histogram"])


def lost_in(ends: Floats, stops: Floats) -> Codes:
    """Failure codes [C] of clients that are lost `stops` s after their start: the stage that was under way."""
    return _LOST_IN[np.minimum((ends <= stops[:, None]).sum(axis=1), 2)]
