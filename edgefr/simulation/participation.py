"""This decides who takes part in a round: the cohort that is invited, and those of it whom the fleet lets contribute.

Where releases are worth something (a clip and noise) a ledger is kept. Whoever may not release once more sits out;
whoever starts to work is charged, before anything is trained. So lost and late uploads count too, which errs on the
safe side; those who refuse (no memory, network or charge) were asked for nothing and are not charged.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.engine.cohort import Cohort, Group
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.engine.work import Clients
from edgefr.fleet import Failure, Fleet, StepOutcome, Work
from edgefr.fleet.devices import REFUSALS
from export.program import Tensors
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.plan import PrivacyPlan
from privacy.settings import PrivacySettings

NEVER = -(2**31)
"""The round in which a client worked that never did."""
Log = Callable[[str], None]
"""Takes the events of a round as they happen, lines of JSON."""


class Participants(ABC):
    """Whoever decides who takes part in a run's rounds: for simulated clients the fleet, else devices themselves.

    `ledger`: what each client has released (None: nothing is guaranteed, or devices' own ledger counts it).
    """

    ledger: Ledger | None = None

    @abstractmethod
    def meet(self, number: int, population: Clients, sampler: Sampler | SessionSampler) -> Cohort:
        """Invite clients of `population` to round `number`; returns those who contribute to its aggregate."""

    @abstractmethod
    def adjourn(self) -> None:
        """No round follows, or one with other data."""

    def fetched(self, clients: Clients) -> int:
        """Count those of `clients` that fetched the frozen tables for a round; devices have them in their bundles."""
        return 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 - of nothing
        """Go on from `state()`."""


@dataclass
class Participation(Participants):
    """This invites clients round after round, `cohort_size(clients)` of those who train.

    `met` [clients]: who has fetched the frozen tables already. `worked` [clients]: in which round each worked last.

    `broadcasts`: what clients that are at work started from, by version (policy async; empty for the others, whose
    clients all start from the server's tensors as they are). `number`: the last round. `ledger`: what each client has
    released (None: nothing is guaranteed, so there is nothing to count).
    """

    cohort_size: Callable[[int], int]
    privacy: PrivacySettings
    federation: Federation
    fleet: Fleet
    log: Log
    met: npt.NDArray[np.bool_] = field(init=False)
    worked: npt.NDArray[np.int64] = field(init=False)
    ledger: Ledger | None = field(init=False)
    broadcasts: dict[int, Tensors] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        clients = len(self.fleet.device_of)
        self.met = np.zeros(clients, np.bool_)
        self.worked = np.full(clients, NEVER, np.int64)
        self.ledger = ledger_for(self.privacy, self.federation.plan, clients)

    def go_on_from(self, earlier: Ledger) -> None:
        """Count on from what these clients had released before round 1.

        Raises `InputError` where a client in all rounds would exceed the budget: who sat out would change the result.
        """
        assert self.ledger is not None, "the same settings guarantee the same"
        plan, everybody = self.federation.plan, np.arange(len(earlier))
        ahead = earlier.of_clients(everybody)
        ahead.spend(everybody, plan.event, times=self.privacy.releases(plan.rounds))
        if plan.prototypes is not None:
            ahead.spend(everybody, plan.prototypes.event, times=plan.prototypes.release[1])
        after = float(ahead.epsilon().max(initial=0.0))
        if after > earlier.budget:
            raise InputError(
                f"training anew releases the others' data again: an epsilon of up to {after:.4g} in all, over the "
                f"privacy.budget of {earlier.budget:g}, of which {float(earlier.epsilon().max(initial=0.0)):.4g} is "
                "spent (nothing was changed)"
            )
        self.ledger = earlier

    def meet(self, number: int, population: Clients, sampler: Sampler | SessionSampler) -> Cohort:
        self.number = number
        wanted = self.cohort_size(len(population))
        if (apart := self.federation.plan.apart) > 1:
            population = population[number - self.worked[population] >= apart]
        if not self.fleet.spec.rounds.waits:
            return self._step(number, population, sampler, wanted)
        asked = min(self.fleet.over_selected(wanted), len(population))
        invited = self._admitted(self.federation.cohort(number, population, asked))
        outcome = self.fleet.round(number, invited, self._work(invited, sampler))
        working = invited[~np.isin(outcome.failure, REFUSALS)]
        self._charge(working)
        self.worked[working] = number
        self.met[invited[outcome.fetched]] = True
        self._count_thrown_away(invited, outcome.failure)
        self.log(outcome.events)
        return invited[outcome.contributed]

    def adjourn(self) -> None:
        """Tell clients still at work (policy async) to stop."""
        self._settle(self.fleet.adjourn(self.number))

    def _step(self, number: int, population: Clients, sampler: Sampler | SessionSampler, wanted: int) -> list[Group]:
        """Return, under policy async, the clients whose updates make this round's aggregate.

        They go by the round they started in.
        """
        self.broadcasts.setdefault(self.fleet.version, dict(self.federation.shared))
        order, busy = self.federation.order(number, population), self.fleet.busy
        if self.ledger is not None:  # whoever is at work was charged for that before
            idle = order[~np.isin(order, busy)]
            order = order[np.isin(order, np.concatenate([busy, self._admitted(idle)]))]
        outcome = self.fleet.step(number, order, lambda some: self._work(some, sampler), wanted)
        worked = outcome.left[~np.isin(outcome.failure, REFUSALS)]
        self._charge(
            np.setdiff1d(np.concatenate([worked, self.fleet.busy]), busy)
        )  # in a round nobody leaves and starts anew
        weights = (1.0 + outcome.staleness) ** -self.fleet.spec.rounds.staleness_power  # FedBuff §5.1: s(t)
        groups = []
        for began in np.unique(outcome.rounds).tolist():
            mine = np.flatnonzero(outcome.rounds == began)
            shared = self.broadcasts[int(outcome.versions[mine[0]])]
            groups.append(Group(outcome.clients[mine], began, shared, float(weights[mine[0]])))
        self._settle(outcome)
        return groups

    def _settle(self, outcome: StepOutcome) -> None:
        """Put the outcome of a round on record, and forget the broadcasts that nobody works from."""
        self.met[outcome.left[outcome.fetched]] = True
        self._count_thrown_away(outcome.left, outcome.failure)
        self.broadcasts = {v: kept for v, kept in self.broadcasts.items() if v in self.fleet.versions}
        if outcome.events:
            self.log(outcome.events)

    def _admitted(self, clients: Clients) -> Clients:
        """Those of `clients`, in their order, who may take part once more; the others sit out and are counted."""
        return clients if self.ledger is None else clients[self.ledger.admit(clients, *self._events)]

    def _charge(self, clients: Clients) -> None:
        if self.ledger is not None:
            self.ledger.spend(clients, *self._events)

    @property
    def _events(self) -> tuple[Event, ...]:
        return self.federation.events(self.number)

    def _work(self, invited: Clients, sampler: Sampler | SessionSampler) -> Work:
        phases = self.federation.phases("round")
        project, told = self.federation.plan.project, self.federation.travels(self.number)
        return round_work(self.federation.program, phases, sampler, invited, ~self.met[invited], project, told)

    def _count_thrown_away(self, clients: Clients, failure: npt.NDArray[np.uint8]) -> None:
        """Count an upload that the server threw away: it saw it, and if it is the adversary, that was a release."""
        if self.federation.plan.where == "each upload" or self.privacy.examples is not None:
            seen = np.isin(failure, [Failure.VOID, Failure.STALE])
            self.federation.counters.participation[clients[seen]] += 1

    def fetched(self, clients: Clients) -> int:
        return int(self.met[clients].sum())

    def state(self) -> dict[str, Any]:
        return {
            "met": self.met,
            **({"worked": self.worked} if self.federation.plan.apart > 1 else {}),
            "fleet": self.fleet.state_dict(),
            "broadcasts": {str(version): kept for version, kept in self.broadcasts.items()},
            "number": self.number,
            "ledger": None if self.ledger is None else self.ledger.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.met = state["met"].copy()
        if self.federation.plan.apart > 1:
            self.worked = state["worked"].copy()
        self.fleet.load_state_dict(state["fleet"])
        if self.ledger is not None:
            self.ledger.load_state_dict(state["ledger"])
        self.number, on = state["number"], self.federation.device
        self.broadcasts = {
            int(version): {name: torch.from_numpy(value).to(on) for name, value in kept.items()}
            for version, kept in state["broadcasts"].items()
        }


def ledger_for(settings: PrivacySettings, plan: PrivacyPlan, clients: int) -> Ledger | None:
    """An empty ledger for a run with this plan; None where a release guarantees nothing: no clip, or no noise."""
    if plan.noise is None or not plan.event.row.guarantees:
        return None
    budget = math.inf if settings.budget is None else settings.budget
    return Ledger(clients, delta=settings.delta, adjacency=plan.adjacency, budget=budget)
