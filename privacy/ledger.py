"""What every client has released so far, what it has cost each of them, and who may release once more.

Clients with the same releases cost the same, so a client is a number: that of its multiset of events. A round moves
numbers, and an epsilon is computed once per multiset, by the closed or Renyi bound first and by the library's only
where that decides. A release to two recipients is two events.

The budget is a filter for a schedule of noise and participation that does not depend on the data: then composition of
the multiset is exact accounting. Noise chosen from what was released needs another filter, which is not here.
Owns: counts and their guarantee, as arrays and columns. Does not own: files, who is sampled.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privacy.accounting import Guarantee, composed, without_libraries
from privacy.errors import InputError
from privacy.guarantee import Event

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Adjacency = Literal["replace-one", "zero-out"]
MOST_CLIENTS = 10**8
Multiset = tuple[int, ...]
"""How often each event happened, by the event's number; no zeros at the end."""

COLUMNS = (*(name for name in Event.__dataclass_fields__ if name != "sampling"), "client", "releases", "refused")
"""Columns of ledger.parquet: one row per client and event. Its metadata are `Ledger.facts`."""


class Ledger:
    """Releases of `clients` clients under one adjacency; `budget` is the epsilon at `delta` none may exceed.

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
        if adjacency not in ("replace-one", "zero-out"):
            raise InputError(f"adjacency must be replace-one or zero-out, got {adjacency!r}")
        self.delta, self.adjacency, self.budget, self.run = float(delta), adjacency, float(budget), run
        self.events: list[Event] = []
        self._multisets: list[Multiset] = [()]
        self._numbers: dict[Multiset, int] = {(): 0}
        self._of: npt.NDArray[np.int32] = np.zeros(clients, np.int32)
        self._refused: list[npt.NDArray[np.int32]] = []
        self._fits: dict[Multiset, bool] = {}
        self._tight: dict[Multiset, Guarantee] = {}

    def __len__(self) -> int:
        return len(self._of)

    def try_spend(self, clients: npt.ArrayLike, event: Event) -> Bools:
        """Which of `clients` [n], each at most once, may release `event`: bool [n]. Those are charged, now.

        A refused client's epsilon would exceed the budget; it has to sit out. Ask before the release is made. Raises
        `InputError` for a Poisson-sampled event, `ValueError` for a client that is named twice.
        """
        may = self.admit(clients, event)
        self.spend(np.asarray(clients, dtype=np.int64)[may], event)
        return may

    def admit(self, clients: npt.ArrayLike, event: Event) -> Bools:
        """The first half of `try_spend`: which of `clients` [n] may be asked for `event`; the others count as refused.

        Nobody is charged: `spend` those who are asked in the end, before they release and at most once per call.
        """
        who, number = self._named_once(clients), self._number_of(event)
        found, inverse = np.unique(self._of[who], return_inverse=True)
        within = [self._within(_plus(self._multisets[before], number)) for before in found.tolist()]
        may: Bools = np.asarray(within, dtype=np.bool_)[inverse]
        self._refused[number][who[~may]] += 1
        return may

    def spend(self, clients: npt.ArrayLike, event: Event) -> None:
        """Charge `clients` for `event` whatever the budget: what has left a device has left it."""
        who, number = self._named_once(clients), self._number_of(event)
        found, inverse = np.unique(self._of[who], return_inverse=True)
        after = [self._known(_plus(self._multisets[before], number)) for before in found.tolist()]
        self._of[who] = np.asarray(after, dtype=np.int32)[inverse]

    def _named_once(self, clients: npt.ArrayLike) -> Ints:
        who = np.asarray(clients, dtype=np.int64)
        if len(who) and not (who.min() >= 0 and who.max() < len(self)):
            raise ValueError(f"the ledger has clients 0 to {len(self) - 1}")
        if len(who) and np.bincount(who).max() > 1:
            raise ValueError("a client is named twice: charge it in two calls")
        return who

    def epsilon(self, clients: npt.ArrayLike | None = None) -> Floats:
        """Each client's epsilon so far (None: of all), by the best bound: float64 [n].

        Takes the library's 0.1 s for every distinct multiset of clipped Laplace releases; Gaussians take microseconds.
        """
        numbers = self._of if clients is None else self._of[np.asarray(clients, dtype=np.int64)]
        found, inverse = np.unique(numbers, return_inverse=True)
        values = [self._guarantee(self._multisets[number]).epsilon for number in found.tolist()]
        return np.asarray(values, dtype=np.float64)[inverse]

    def worst(self) -> tuple[Guarantee, list[tuple[Event, int]]]:
        """The largest epsilon of any client, and the releases it is made of."""
        held = [self._multisets[number] for number in np.unique(self._of).tolist()]
        if not held:
            return Guarantee(0.0, "nothing was released"), []
        largest = max((m for m in held if not any(_contains(o, m) for o in held)), key=lambda m: self._guarantee(m)[0])
        return self._guarantee(largest), [(self.events[n], count) for n, count in enumerate(largest) if count]

    def releases(self) -> Ints:
        """How often each client released, to any recipient: int64 [clients]."""
        return self._counts().sum(axis=1)[self._of]

    def refused(self) -> Ints:
        """How often each client was refused: int64 [clients]."""
        return np.array(self._refused, dtype=np.int64).reshape(len(self.events), len(self)).sum(axis=0)

    def facts(self) -> dict[str, str]:
        """What holds for the whole ledger, as text: metadata of its file."""
        values = {"clients": len(self), "delta": repr(self.delta), "budget": repr(self.budget), "run": self.run}
        return {"schema": "edgefr.ledger/1", "adjacency": self.adjacency} | {k: str(v) for k, v in values.items()}

    def columns(self) -> dict[str, npt.NDArray[Any] | list[str]]:
        """`COLUMNS` of one row per client and event it released or was refused, by event, then by client."""
        counts, parts = self._counts(), []
        for number, event in enumerate(self.events):
            releases, refused = counts[self._of, number], self._refused[number]
            rows = np.flatnonzero((releases > 0) | (refused > 0))
            parts.append((event, rows, releases[rows], refused[rows].astype(np.int64)))
        out: dict[str, npt.NDArray[Any] | list[str]] = {}
        for name in COLUMNS[:-3]:
            column = [getattr(event, name) for event, rows, _, _ in parts for _ in range(len(rows))]
            kind = {"multiplier": np.float64, "steps": np.int64}.get(name)
            out[name] = column if kind is None else np.asarray(column, dtype=kind)
        for at, name in enumerate(COLUMNS[-3:], start=1):
            out[name] = np.concatenate([np.zeros(0, np.int64), *(part[at] for part in parts)])
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything, for a checkpoint: text and plain arrays.

        `multisets` int64 [m, events] counts; `of` int32 [clients] their rows; `refused` int32 [events, clients].
        """
        refused = np.array(self._refused, dtype=np.int32).reshape(len(self.events), len(self))
        events = [asdict(event) for event in self.events]
        return {
            **self.facts(),
            "events": events,
            "multisets": self._counts(),
            "of": self._of.copy(),
            "refused": refused,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict()` of a ledger of the same run, clients, delta, budget and adjacency.

        Raises `InputError` for one of another run and for one that is damaged; nothing is changed then.
        """
        _same(self.facts(), state)
        try:
            events = [Event(**event) for event in state["events"]]
            rows, of = np.asarray(state["multisets"]), np.asarray(state["of"])
            refused = np.asarray(state["refused"])
            _whole(rows, of, refused)
            if rows.shape[1] != len(events) or of.shape != (len(self),) or refused.shape != (len(events), len(self)):
                raise ValueError("its arrays do not fit together")
            if len(set(events)) != len(events) or (len(of) and int(of.max()) >= len(rows)):
                raise ValueError("it counts what it does not have")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(f"the ledger is damaged: {error}; go on from an older checkpoint") from error
        self.events, self._refused = events, list(refused.astype(np.int32))
        self._multisets, self._numbers, self._fits, self._tight = [()], {(): 0}, {}, {}
        numbers = np.asarray([self._known(_trimmed(row)) for row in rows.tolist()], dtype=np.int32)
        self._of = numbers[of].astype(np.int32)

    @classmethod
    def from_columns(cls, facts: Mapping[str, str], columns: Mapping[str, npt.ArrayLike]) -> "Ledger":
        """A ledger from its file's metadata (`facts()`) and columns (`columns()`). Raises `InputError` if damaged."""
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
        """Take rows of `columns` into an empty ledger."""
        keys = [table[name].tolist() for name in COLUMNS[:-3]]
        numbers = np.asarray(
            [self._number_of(Event(**dict(zip(COLUMNS[:-3], row, strict=True)))) for row in zip(*keys, strict=True)],
            dtype=np.int64,
        )
        counts = np.zeros((len(self), len(self.events)), np.int64)
        np.add.at(counts, (table["client"], numbers), table["releases"])
        if len(numbers) != len(set(zip(table["client"].tolist(), numbers.tolist(), strict=True))):
            raise ValueError("a client has two rows of one event")
        for number, (client, refused) in zip(
            numbers.tolist(), zip(table["client"].tolist(), table["refused"].tolist(), strict=True), strict=True
        ):
            self._refused[number][client] = refused
        distinct, inverse = np.unique(counts, axis=0, return_inverse=True)
        known = np.asarray([self._known(_trimmed(row)) for row in distinct.tolist()], dtype=np.int32)
        self._of = known[inverse.reshape(-1)] if len(self) else self._of

    def _number_of(self, event: Event) -> int:
        """The event's number; a new one is written down."""
        if event.sampling < 1:
            raise InputError(
                "a ledger knows in which rounds a client took part, which is what amplification by sampling must hide: "
                "account for all rounds at the sampling rate, or for those taken part in without it"
            )
        if event not in self.events:
            self.events.append(event)
            self._refused.append(np.zeros(len(self), np.int32))
        return self.events.index(event)

    def _known(self, multiset: Multiset) -> int:
        """The multiset's number; a new one is written down."""
        if multiset not in self._numbers:
            self._numbers[multiset] = len(self._multisets)
            self._multisets.append(multiset)
        return self._numbers[multiset]

    def _within(self, multiset: Multiset) -> bool:
        """Whether a client with these releases keeps the budget."""
        if self.budget == math.inf:
            return True
        if multiset not in self._fits:
            quick = without_libraries(self._named(multiset), self.delta).epsilon <= self.budget
            self._fits[multiset] = quick or self._guarantee(multiset).epsilon <= self.budget
        return self._fits[multiset]

    def _guarantee(self, multiset: Multiset) -> Guarantee:
        if multiset not in self._tight:
            self._tight[multiset] = composed(self._named(multiset), self.delta)
        return self._tight[multiset]

    def _named(self, multiset: Multiset) -> list[tuple[Event, int]]:
        return [(self.events[number], count) for number, count in enumerate(multiset) if count]

    def _counts(self) -> Ints:
        """The multisets as rows: int64 [multisets, events]."""
        out = np.zeros((len(self._multisets), len(self.events)), np.int64)
        for row, multiset in enumerate(self._multisets):
            out[row, : len(multiset)] = multiset
        return out


def _plus(multiset: Multiset, number: int) -> Multiset:
    """The multiset after one more event of this number."""
    longer = list(multiset) + [0] * (number + 1 - len(multiset))
    longer[number] += 1
    return tuple(longer)


def _trimmed(row: list[int]) -> Multiset:
    while row and row[-1] == 0:
        row = row[:-1]
    return tuple(row)


def _contains(large: Multiset, small: Multiset) -> bool:
    """Whether one multiset holds all of another and more, so that it cannot cost less."""
    return large != small and len(large) >= len(small) and all(a >= b for a, b in zip(large, small, strict=False))


def _whole(*arrays: npt.NDArray[Any]) -> None:
    """ValueError for counts that are not whole numbers, or negative."""
    for array in arrays:
        if array.size and not (np.issubdtype(array.dtype, np.integer) and int(array.min()) >= 0):
            raise ValueError("its counts are not whole numbers from 0")


def _same(mine: Mapping[str, str], other: Mapping[str, Any]) -> None:
    """Refuse a ledger that is not of this run."""
    for name, value in mine.items():
        if other.get(name) != value:
            found = str(other.get(name))[:40]
            raise InputError(
                f"the ledger is of another run: its {name} is {found!r}, here {value[:40]!r}; name the run it is from"
            )
