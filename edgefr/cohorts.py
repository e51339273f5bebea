"""Who takes part in a round: the cohort that is invited, and those of it whom the fleet lets contribute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.sampling import Sampler
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.engine.work import Clients
from edgefr.experiment import Experiment
from edgefr.fleet import Fleet

Log = Callable[[list[dict[str, Any]]], None]
"""Takes the events of a round as they happen."""


@dataclass
class Cohorts:
    """Invites clients round after round. `met` [clients]: who has fetched the frozen tables already."""

    experiment: Experiment
    federation: Federation
    fleet: Fleet
    log: Log
    met: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.met = np.zeros(len(self.fleet.device_of), np.bool_)

    def meet(self, number: int, population: Clients, sampler: Sampler) -> Clients:
        """Invite a cohort of `population` to round `number`; returns those who contribute."""
        wanted = self.experiment.cohort_size(len(population))
        invited = self.federation.cohort(number, population, self.fleet.over_selected(wanted))
        phases = self.federation.phases("round")
        work = round_work(self.federation.program, phases, sampler, invited, ~self.met[invited])
        outcome = self.fleet.round(number, invited, work)
        self.met[invited] = True
        self.log(outcome.events)
        return invited[outcome.contributed]

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs: who has met the server, the fleet and its clock."""
        return {"met": self.met, "fleet": self.fleet.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self.met = state["met"].copy()
        self.fleet.load_state_dict(state["fleet"])
