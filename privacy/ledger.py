"""The ledger says what every client has released so far, what it has cost each of them, and who may release once more.

A client is how often it released each event: a column of counts. Who stays within the budget is decided for a whole
cohort at once (`budget`), and an epsilon is computed once for all clients with the same counts. A release to two
recipients is two events.

The budget is a filter for a schedule of noise and participation that does not depend on the data: then composition of
the multiset is exact accounting. Noise chosen from what was released needs another filter, which is not here.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from privacy.accounting import Guarantee, composed
from privacy.budget import Budget, distinct
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.trust import Adjacency

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_CLIENTS = 10**8
COLUMNS = (*(name for name in Event.__dataclass_fields__ if name != "sampling"), "client", "releases", "refused")
"""Columns of ledger.parquet: one row per client and event. Its metadata are `Ledger.facts`."""


class Ledger:
    """These are releases of `clients` clients under one adjacency; `budget` is the epsilon at `delta` none may exceed.

    `run`: sha256 of the experiment.yaml it belongs to.

    >>> ledger = Ledger(3, delta=1e-5, adjacency="zero-out", budget=1.5)
    >>> event = Event("gaussian", multiplier=4.0)
    >>> [ledger.try_spend(clients, event).tolist() for clients in ([0, 1], [1, 2], [1])]
    [[True, True], [True, True], [False]]
    >>> ledger.epsilon().round(2).tolist()
    [0.93, 1.36, 0.93]
    """

    def __init__(
        self, clients: int, *, delta: float, adjacency: Adjacency, budget: float = math.inf, run: str = ""
    ) -> None:
        if not 0 < delta < 1:
            raise InputError(f"delta must be between 0 and 1, got {delta}")
        if not budget > 0:
            raise InputError(f"a privacy budget must be above 0, got {budget}")
        if adjacency not in get_args(Adjacency):
            raise InputError(f"adjacency must be replace-one or zero-out, got {adjacency!r}")
        self.delta, self.adjacency, self.budget, self.run = float(delta), adjacency, float(budget), run
        self.events: list[Event] = []
        self._released: list[npt.NDArray[np.int32]] = []
        self._refused: list[npt.NDArray[np.int32]] = []
        self._clients, self._filter = clients, Budget(self.budget, self.delta)

    def __len__(self) -> int:
        return self._clients

    def try_spend(self, clients: npt.ArrayLike, *events: Event) -> Bools:
        """Say which of `clients` [n], each at most once, may release all of `events`, and charge those now: bool [n].

        A refused client's epsilon would exceed the budget; it has to sit out. Ask before the release is made. Raises
        `InputError` for a Poisson-sampled event, `ValueError` for a client that is named twice.
        """
        may = self.admit(clients, *events)
        self.spend(np.asarray(clients, dtype=np.int64)[may], *events)
        return may

    def admit(self, clients: npt.ArrayLike, *events: Event) -> Bools:
        """Say which of `clients` [n] may be asked for `events`, the first half of `try_spend`.

        A refusal counts once, with the first of the events. Nobody is charged: `spend` those who are asked in the end,
        before they release and at most once per call.
        """
        who, numbers = self._named_once(clients), [self._number_of(event) for event in events]
        counts = np.stack([row[who] for row in self._released])
        for number in numbers:
            counts[number] += 1
        may = self._filter.keeps(self.events, counts)
        self._refused[numbers[0]][who[~may]] += 1
        return may

    def spend(self, clients: npt.ArrayLike, *events: Event, times: int = 1) -> None:
        """Charge `clients` for `events` whatever the budget: what has left a device has left it."""
        who = self._named_once(clients)
        for event in events:
            self._released[self._number_of(event)][who] += times

    def of_clients(self, clients: npt.ArrayLike) -> "Ledger":
        """Return what `clients` [n] have released, as a ledger of no run that numbers them 0, 1, ..."""
        who = self._named_once(clients)
        out = Ledger(len(who), delta=self.delta, adjacency=self.adjacency, budget=self.budget)
        out.events = list(self.events)
        out._released, out._refused = ([row[who] for row in rows] for rows in (self._released, self._refused))
        return out

    def refuse(self, clients: npt.ArrayLike, event: Event) -> None:
        """Count one refusal more of `clients`, as `admit` did when it refused them."""
        self._refused[self._number_of(event)][self._named_once(clients)] += 1

    def _named_once(self, clients: npt.ArrayLike) -> Ints:
        who = np.asarray(clients, dtype=np.int64)
        if len(who) and not (who.min() >= 0 and who.max() < len(self)):
            raise ValueError(f"the ledger has clients 0 to {len(self) - 1}")
        if len(who) and np.bincount(who).max() > 1:
            raise ValueError("a client is named twice: charge it in two calls")
        return who

    def epsilon(self, clients: npt.ArrayLike | None = None) -> Floats:
        """Return each client's epsilon so far (None: of all), by the best bound: float64 [n].

        Takes the library's 10 ms for all clients with the same clipped Laplace releases; Gaussians take microseconds.
        """
        counts = self._counts()
        found, inverse = distinct(counts if clients is None else counts[:, np.asarray(clients, dtype=np.int64)])
        values = [composed(self._named(column), self.delta).epsilon for column in found.T.tolist()]
        return np.asarray(values, dtype=np.float64)[inverse]

    def worst(self) -> tuple[Guarantee, list[tuple[Event, int]]]:
        """Return the largest epsilon of any client, and the releases it is made of."""
        most = [self._named(column) for column in _largest(distinct(self._counts())[0]).tolist()]
        if not most:
            return Guarantee(0.0, "nothing was released"), []
        found = [(composed(spent, self.delta), spent) for spent in most]
        return max(found, key=lambda pair: pair[0].epsilon)

    def releases(self) -> Ints:
        """Count how often each client released, to any recipient: int64 [clients]."""
        return self._counts().sum(axis=0)

    def refused(self) -> Ints:
        """Count how often each client was refused: int64 [clients]."""
        return _stacked(self._refused, len(self)).sum(axis=0, dtype=np.int64)

    def facts(self) -> dict[str, str]:
        """Return what holds for the whole ledger, as text: metadata of its file."""
        values = {"clients": len(self), "delta": repr(self.delta), "budget": repr(self.budget), "run": self.run}
        return {"schema": "edgefr.ledger/1", "adjacency": self.adjacency} | {k: str(v) for k, v in values.items()}

    def columns(self) -> dict[str, npt.NDArray[Any] | list[str]]:
        """`COLUMNS` of one row per client and event it released or was refused, by event, then by client."""
        parts = []
        for event, releases, refused in zip(self.events, self._released, self._refused, strict=True):
            rows = np.flatnonzero((releases > 0) | (refused > 0))
            parts.append((event, rows, releases[rows].astype(np.int64), refused[rows].astype(np.int64)))
        out: dict[str, npt.NDArray[Any] | list[str]] = {}
        for name in COLUMNS[:-3]:
            column = [value for event, rows, _, _ in parts for value in [getattr(event, name)] * len(rows)]
            kind = {"multiplier": np.float64, "steps": np.int64}.get(name)
            out[name] = column if kind is None else np.asarray(column, dtype=kind)
        for at, name in enumerate(COLUMNS[-3:], start=1):
            out[name] = np.concatenate([np.zeros(0, np.int64), *(part[at] for part in parts)])
        return out

    def state_dict(self) -> dict[str, Any]:
        """Return everything, for a checkpoint: text and plain arrays.

        `released` and `refused`: int32 [events, clients].
        """
        arrays = {"released": _stacked(self._released, len(self)), "refused": _stacked(self._refused, len(self))}
        return {**self.facts(), "events": [asdict(event) for event in self.events], **arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict()` of a ledger of the same run, clients, delta, budget and adjacency.

        Raises `InputError` for one of another run and for one that is damaged; nothing is changed then.
        """
        _same(self.facts(), state)
        try:
            events = [Event(**event) for event in state["events"]]
            released, refused = np.asarray(state["released"]), np.asarray(state["refused"])
            _whole(released, refused)
            if not released.shape == refused.shape == (len(events), len(self)) or len(set(events)) != len(events):
                raise ValueError("its arrays do not fit together")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"the ledger is damaged: {error}; go on from an older checkpoint") from error
        self.events = events
        self._released, self._refused = list(released.astype(np.int32)), list(refused.astype(np.int32))

    @classmethod
    def from_columns(cls, facts: Mapping[str, str], columns: Mapping[str, npt.ArrayLike]) -> "Ledger":
        """Return a ledger from its file's metadata (`facts()`) and columns (`columns()`).

        Raises `InputError` if damaged.
        """
        try:
            if facts.get("schema") != "edgefr.ledger/1":
                raise ValueError("it is not an edgefr ledger")
            numbers = {"delta": float(facts["delta"]), "budget": float(facts["budget"])}
            adjacency: Any = facts["adjacency"]
            if not 0 <= int(facts["clients"]) <= MOST_CLIENTS:
                raise ValueError(f"it claims {facts['clients'][:20]} clients")
            ledger = cls(int(facts["clients"]), adjacency=adjacency, run=facts["run"], **numbers)
            table = {name: np.asarray(columns[name]) for name in COLUMNS}
            client, releases, refused = (table[name] for name in COLUMNS[-3:])
            _whole(client, releases, refused, table["steps"])
            if len(client) and int(client.max()) >= len(ledger):
                raise ValueError(f"it names client {int(client.max())} of {len(ledger)}")
            ledger._fill(table)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"not a whole ledger: {error}; run the experiment again") from error
        return ledger

    def _fill(self, table: Mapping[str, npt.NDArray[Any]]) -> None:
        rows = list(zip(*(table[name].tolist() for name in COLUMNS[:-3]), strict=True))
        known = {
            row: self._number_of(Event(**dict(zip(COLUMNS[:-3], row, strict=True)))) for row in dict.fromkeys(rows)
        }
        at = np.asarray([known[row] for row in rows], dtype=np.int64), table["client"].astype(np.int64)
        if len(np.unique(at[0] * len(self) + at[1])) != len(rows):
            raise ValueError("a client has two rows of one event")
        for kept, name in ((self._released, "releases"), (self._refused, "refused")):
            counts = _stacked(kept, len(self))
            counts[at] = table[name]
            kept[:] = list(counts)

    def _number_of(self, event: Event) -> int:
        if event.sampling < 1:
            raise InputError(
                "a ledger knows in which rounds a client took part, which is what amplification by sampling must hide: "
                "account for all rounds at the sampling rate, or for those taken part in without it"
            )
        if event not in self.events:
            self.events.append(event)
            self._released.append(np.zeros(len(self), np.int32))
            self._refused.append(np.zeros(len(self), np.int32))
        return self.events.index(event)

    def _named(self, counts: list[int]) -> list[tuple[Event, int]]:
        return [(event, count) for event, count in zip(self.events, counts, strict=True) if count]

    def _counts(self) -> npt.NDArray[np.int32]:
        return _stacked(self._released, len(self))


def _stacked(rows: list[npt.NDArray[np.int32]], clients: int) -> npt.NDArray[np.int32]:
    return np.array(rows, dtype=np.int32).reshape(len(rows), clients)


def _largest(counts: Ints) -> Ints:
    """Return those of distinct columns [events, n] that no other contains, so that none can cost more: [m, events]."""
    found = np.zeros((0, len(counts)), np.int64)
    for column in counts.T[np.argsort(-counts.sum(axis=0), kind="stable")]:
        if not (found >= column).all(axis=1).any():
            found = np.vstack([found, column])
    return found


def _whole(*arrays: npt.NDArray[Any]) -> None:
    for array in arrays:
        whole = np.issubdtype(array.dtype, np.integer)
        if array.size and not (whole and int(array.min()) >= 0 and int(array.max()) < 2**31):
            raise ValueError("its counts are not whole numbers from 0")


def _same(mine: Mapping[str, str], other: Mapping[str, Any]) -> None:
    for name, value in mine.items():
        if other.get(name) != value:
            found = str(other.get(name))[:40]
            raise InputError(
                f"the ledger is of another run: its {name} is {found!r}, here {value[:40]!r}; name the run it is from"
            )
