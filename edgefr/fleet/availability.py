"""This module knows when a client can be reached, and its charge; state is computed when it is asked for."""

from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr.config import random_streams as purposes
from edgefr.fleet.spec import Availability, Battery
from privacy import keyed

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_HOUR = 3600.0
_DAY = 24 * _HOUR


class AvailabilityProcess:
    """A client has alternating spells on and off the network, lognormal in length.

    Spells on depend on the hour of their start. The first spell is cut at a uniformly random point. Virtual time 0 is
    midnight.
    """

    def __init__(self, rule: Availability | None, clients: int, seed: int) -> None:
        self._rule = rule
        if rule is None:
            return
        self._keys = keyed.fold(keyed.key(seed, purposes.AVAILABILITY), np.arange(clients))
        first = keyed.fold(keyed.key(seed, purposes.AVAILABILITY_AT_START), np.arange(clients))
        share_on = rule.mean_on_h / (rule.mean_on_h + rule.mean_off_h)
        self._spell = (keyed.uniform(first, 0) < share_on).astype(np.int32)  # odd spells are on
        zero = np.zeros(clients)
        self._until = self._length(np.arange(clients), self._spell, zero) * keyed.uniform(first, 1)

    def online_until(self, clients: Ids, now: float) -> Floats:
        """Return when each client's present spell on ends, s [C]; `now` where it is off."""
        if self._rule is None:
            return np.full(len(clients), np.inf)
        behind = clients[self._until[clients] <= now]
        while len(behind):
            self._spell[behind] += 1
            self._until[behind] += self._length(behind, self._spell[behind], self._until[behind])
            behind = behind[self._until[behind] <= now]
        return np.where(self._spell[clients] % 2 == 1, self._until[clients], now)

    def interruptions(self, clients: Ids, now: float, ends: Floats, limit: float) -> tuple[Floats, Floats]:
        """Return how long each client's work pauses, s, and when it is lost, s from `now` (inf: never); both [C].

        `ends` [C, 3]: when download, computing and upload would end without a pause. Transfers must not be interrupted.
        Computing fails when a spell on ends, or continues in the next one, by the rule; nothing beyond `limit` s is
        computed.
        """
        pauses = np.zeros(len(clients))
        edge = self.online_until(clients, now) - now  # the end of the spell on in which the work has come so far
        if self._rule is None or not {"fails": False, "pauses": True}[self._rule.work]:
            return pauses, edge
        spell = self._spell[clients]
        after = np.flatnonzero((edge >= ends[:, 0]) & (edge < ends[:, 1]) & (edge < limit))
        while len(after):
            some = clients[after]
            away = self._length(some, spell[after] + 1, now + edge[after])
            back = edge[after] + away
            edge[after] = back + self._length(some, spell[after] + 2, now + back)
            pauses[after] += away
            spell[after] += 2
            after = after[(edge[after] < ends[after, 1] + pauses[after]) & (edge[after] < limit)]
        return pauses, np.where(edge < ends[:, 2] + pauses, edge, np.inf)

    def _length(self, clients: Ids, spell: npt.NDArray[np.int32], start: Floats) -> Floats:
        """Return seconds [C] of each client's spell number `spell`, which began at `start`."""
        assert self._rule is not None
        rule = self._rule
        hour = (start // _HOUR % 24).astype(np.int64)
        mean = np.where(spell % 2 == 1, rule.mean_on_h * np.asarray(rule.by_hour)[hour], rule.mean_off_h)
        z = keyed.normal(self._keys[clients], spell)
        return mean * _HOUR * np.exp(rule.sigma_ln * z - rule.sigma_ln**2 / 2)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._rule is None else {"spell": self._spell.copy(), "until": self._until.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._rule is not None:
            self._spell, self._until = state["spell"].copy(), state["until"].copy()


class Charge:
    """The charge is full once a day at the client's own hour, then drained by its owner and by rounds.

    `capacity_j` [clients] is infinite for devices on mains power.
    """

    def __init__(self, rule: Battery | None, capacity_j: Floats, seed: int) -> None:
        self._rule = rule
        self._capacity = capacity_j
        keys = keyed.fold(keyed.key(seed, purposes.CHARGING_HOUR), np.arange(len(capacity_j)))
        self._full_at = keyed.uniform(keys, 0) * _DAY
        self._spent = np.zeros(len(capacity_j))  # by rounds since last full, share of the charge
        self._day = np.full(len(capacity_j), -1, dtype=np.int32)  # the charge that `spent` was taken from

    def level(self, clients: Ids, now: float) -> Floats:
        """Return the state of charge [C], 0..1; 1 on mains power."""
        if self._rule is None:
            return np.ones(len(clients))
        day, since = np.divmod(now - self._full_at[clients], _DAY)
        spent = np.where(self._day[clients] == day, self._spent[clients], 0.0)
        level = 1.0 - self._rule.own_use_per_hour * since / _HOUR - spent
        return np.where(np.isinf(self._capacity[clients]), 1.0, np.maximum(level, 0.0))

    def allows(self, clients: Ids, now: float, joules: Floats, seconds: Floats) -> npt.NDArray[np.bool_]:
        """Say whether each client may spend `joules` in the next `seconds` [C]:

        on its charger, or above the least charge.
        """
        if self._rule is None:
            return np.ones(len(clients), dtype=bool)
        full_in = (self._full_at[clients] - now) % _DAY
        charging = (full_in <= self._rule.charging_h * _HOUR) & (seconds <= full_in)
        charging |= np.isinf(self._capacity[clients])
        if self._rule.only_charging:
            return charging
        return charging | (self.level(clients, now) - joules / self._capacity[clients] >= self._rule.min_soc)

    def spend(self, clients: Ids, now: float | Floats, joules: Floats) -> None:
        """Take `joules` [C] from the charge that the clients have `now` (one time, or each its own [C])."""
        day = np.floor_divide(now - self._full_at[clients], _DAY).astype(np.int32)
        before = np.where(self._day[clients] == day, self._spent[clients], 0.0)
        self._spent[clients] = before + joules / self._capacity[clients]
        self._day[clients] = day

    def state_dict(self) -> dict[str, Any]:
        return {"spent": self._spent.copy(), "day": self._day.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._spent, self._day = state["spent"].copy(), state["day"].copy()
