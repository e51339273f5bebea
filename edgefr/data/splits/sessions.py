"""Sessions: every user's interactions cut at pauses; the last session is tested, the one before validates (FCUCR §5.1).

Owns: what a session is, which sessions train, and the questions about others. Does not own: a client's session of a
round (`edge.sessions`), scores and metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from edge.ragged import Ragged
from edgefr.config import random_streams as purposes
from edgefr.data.filtering import rows_of
from edgefr.data.interactions import Dataset, Kinds, places
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.splits.candidates import Candidates, check_room, drawn
from edgefr.data.splits.session_order import NEGATIVES, STREAMS
from edgefr.data.splits.split import Items, Split, Which
from privacy import keyed
from privacy.errors import InputError, unknown
from privacy.setting_scope import named_in

Ints = npt.NDArray[np.int64]

_LEAST = 2  # items of a session below which nothing comes before its last item
_PARTS = {"valid": 1, "test": 2}


@dataclass(frozen=True)
class Sessions:
    """These are the sessions that take part, numbered by user and time.

    Row s of `items` (int32, repeats kept) and `times` (int64 unix s, same offsets) is session s in time order; `user`
    int64 [sessions] says whose. Row u of `train` [users] lists user u's training sessions in time order (int64);
    `valid`, `test` int64 [users] are held-out sessions or -1, of at least two items, all seen in training.
    """

    items: Ragged
    times: Ragged
    user: Ints
    train: Ragged
    valid: Ints
    test: Ints

    def __len__(self) -> int:
        return len(self.user)

    def held(self, which: Which) -> Ints:
        return self.valid if which == "valid" else self.test

    def statistics(self) -> dict[str, Any]:
        return {
            "users": len(np.unique(self.user)),
            "items": len(np.unique(self.items.values)),
            "sessions": len(self),
            "interactions": len(self.items.values),
            "avg_length": round(len(self.items.values) / max(len(self), 1), 2),
            "train": len(self.train.values),
            "valid": int((self.valid >= 0).sum()),
            "test": int((self.test >= 0).sum()),
        }


class SessionsProtocol(ProtocolSettings):
    """This protocol makes sessions by inactivity: a user's last is the test, the second last validates, others train.

    The target is a held-out session's last item, given those before it; the user may have had it, so full ranking
    leaves nothing out. A data set's released sessions and parts are used.
    """

    name: Literal["sessions"] = "sessions"
    gap_minutes: float = Field(30.0, gt=0, allow_inf_nan=False, description="inactivity that ends a session (minutes)")
    drop: list[str | int] | None = Field(
        None, description="kinds of interaction to leave out, by name or number; by default the data set's own choice"
    )
    negatives: int = Field(100, ge=1, description="sampled items each target is ranked against (items)")
    candidates: Annotated[str, named_in(NEGATIVES)] = Field(
        "unseen",
        description="negatives: unseen, never the user's own training items, as released; any: everything but the "
        "target; own: half of them the user's own training items, so that a repeat has to be told from others",
    )
    stream: Annotated[str, named_in(STREAMS)] = Field(
        "one-pass", description="one-pass: a client meets each session once, in its turn; cyclic: over and over"
    )
    min_length: int = Field(
        2, ge=_LEAST, description="shorter sessions are left out, where the protocol cuts them (interactions)"
    )
    min_sessions: int = Field(
        3, ge=3, description="users with fewer sessions are left out, where the protocol cuts them (sessions)"
    )

    @property
    def returns(self) -> bool:
        return STREAMS[self.stream].returns

    @property
    def pause_s(self) -> int:
        return round(60 * self.gap_minutes)

    def restrict(self, dataset: Dataset) -> Dataset:
        """Return the interactions that take part, with sessions and parts as columns."""
        cut = self._cut(dataset)
        order = np.argsort(cut.rows)  # a data set goes by time even where sessions of one user overlap
        number, keep = cut.number[order], np.zeros(len(dataset.user), bool)
        keep[cut.rows] = True
        return replace(rows_of(dataset, keep), session=number, part=cut.part[number])

    def apply(self, dataset: Dataset, seed: int) -> tuple[Split, Sessions]:
        """Return the split "main" and its sessions.

        `Split.train` are distinct training items by first appearance, `Split.valid` and `Split.test` last items of
        held-out sessions, `Split.pool` items seen in training. Raises `InputError` without clock times to cut by, for
        unknown kinds of interaction, without test users and for too many negatives.
        """
        cut, users = self._cut(dataset), len(dataset.users)
        offsets = np.append(0, np.cumsum(np.bincount(cut.number, minlength=len(cut.part)))).astype(np.int64)
        items, times = (Ragged(column[cut.rows], offsets) for column in (dataset.item, dataset.time))
        train = np.flatnonzero(cut.part == 0)
        sessions = Sessions(
            items,
            times,
            cut.user,
            Ragged.from_sorted(cut.user[train], train, users),
            _numbers(cut, _PARTS["valid"], users),
            _numbers(cut, _PARTS["test"], users),
        )
        return self._split(dataset, sessions, seed), sessions

    def at(self, dataset: Dataset, sessions: Sessions, split: Split, asked: Ints, purpose: str, seed: int) -> Split:
        """Return `split` with the sessions `asked` [users] (-1: none) as `valid`, as FCUCR Fig.

        2(a) asks for first ones.

        Their last items are targets, ranked against negatives as those of held-out sessions are.
        """
        target, table = self._asked(dataset, sessions.items, asked, (split.train, split.pool), purpose, seed)
        return replace(split, name=purpose, valid=target, valid_candidates=table)

    def describe(self, dataset: Dataset) -> str:
        """Write one line that says how the numbers beside it were made; `dataset` as it was loaded."""
        whole = "sessions and parts as released" if dataset.part is not None else self._how(dataset)
        dropped = [] if dataset.kinds is None else [dataset.kinds.names[kind] for kind in self._dropped(dataset.kinds)]
        negatives = NEGATIVES[self.candidates].about(self.negatives)
        return (
            f"{whole}{'; without ' + ', '.join(dropped) if dropped else ''}; last session = test, second last = "
            "validation, the target is its last item and may be a repeat of the user's; held-out items unseen in "
            f"training dropped, then held-out sessions under {_LEAST} items; sampled ranking: {self.negatives} fixed "
            f"uniform negatives out of the items seen in training, {negatives}; full ranking: all of those, nothing "
            f"left out; ties count against the target; stream {self.stream}: {STREAMS[self.stream].about}"
        )

    def _mend(self, dataset: Dataset) -> str:
        """Return what to change where nobody can be tested."""
        if dataset.part is not None:
            return "its parts are as released: drop fewer kinds of interaction (protocol.drop), or use more data"
        gap = "" if dataset.session is not None else f"raise protocol.gap_minutes ({self.gap_minutes:g}), "
        return f"{gap}lower protocol.min_sessions or protocol.min_length, or use more data"

    def _how(self, dataset: Dataset) -> str:
        cut = "as released" if dataset.session is not None else f"cut at {self.gap_minutes:g} minutes of inactivity"
        return f"sessions {cut}, from {self.min_length} interactions; users with {self.min_sessions} sessions or more"

    def _dropped(self, kinds: Kinds) -> list[int]:
        """Return the numbers of the kinds that are left out, ascending."""
        asked = kinds.dropped if self.drop is None else self.drop
        numbers = {name: number for number, name in enumerate(kinds.names)}
        for kind in asked:
            if (kind not in numbers) if isinstance(kind, str) else not 0 <= kind < len(numbers):
                raise unknown("kind of interaction in protocol.drop", str(kind), numbers)
        return sorted({numbers[kind] if isinstance(kind, str) else kind for kind in asked})

    def _cut(self, dataset: Dataset) -> _Cut:
        """Return the rows that take part, by session."""
        rows = np.arange(len(dataset.user))
        if dataset.kinds is not None:
            rows = rows[~np.isin(dataset.kinds.number, self._dropped(dataset.kinds))]
        elif self.drop:
            raise InputError(f"data set '{dataset.name}' has no kinds of interaction to drop; leave protocol.drop out")
        cut = _grouped(dataset, rows, self._pauses(dataset, rows))
        if dataset.part is None:
            cut = cut.keep(np.bincount(cut.number, minlength=len(cut.user)) >= self.min_length)
            cut = cut.keep(np.bincount(cut.user, minlength=1)[cut.user] >= self.min_sessions)
            left = np.searchsorted(cut.user, cut.user, side="right") - 1 - np.arange(len(cut.user))  # sessions to come
            cut = replace(cut, part=np.where(left < 2, 2 - left, 0).astype(np.uint8))
        cut = _known(dataset, cut)
        if not (cut.part == _PARTS["test"]).any():
            raise InputError(
                f"no user of '{dataset.name}' has the {self.min_sessions} sessions that the protocol needs, the last "
                f"with items that were trained; {self._mend(dataset)}"
            )
        return cut

    def _pauses(self, dataset: Dataset, rows: Ints) -> Ints:
        """Return a number for the session of every row [n], by user: its own column's, or cut at pauses."""
        if dataset.session is not None:
            return dataset.session[rows]
        if not dataset.clock:
            raise InputError(
                f"protocol sessions cuts by time and data set '{dataset.name}' has no clock times; choose one that has"
            )
        return np.cumsum(np.diff(dataset.time[rows], prepend=0) > 60 * self.gap_minutes)

    def _split(self, dataset: Dataset, sessions: Sessions, seed: int) -> Split:
        users = len(dataset.users)
        train, pool = _distinct(sessions, users, len(dataset.catalogue))
        known = (train, pool)
        valid, valid_table = self._asked(dataset, sessions.items, sessions.valid, known, "valid", seed)
        test, test_table = self._asked(dataset, sessions.items, sessions.test, known, "test", seed)
        nothing = Ragged.empty(users)
        return Split("main", train, nothing, valid, test, pool, valid_table, test_table, repeats=True)

    def _asked(
        self, dataset: Dataset, items: Ragged, asked: Ints, known: tuple[Ragged, Items], purpose: str, seed: int
    ) -> tuple[Items, Items | Candidates]:
        """Return last items of sessions `asked` [users] (-1: none), and their candidates."""
        (train, pool), kind = known, NEGATIVES[self.candidates]
        users = np.flatnonzero(asked >= 0)
        target = np.where(asked >= 0, items.values[items.offsets[1:][asked] - 1], -1).astype(np.int32)
        owned = _owned(train, target, kind.unseen)
        if len(users):
            check_room(dataset, users, owned.counts[users], len(pool), self.negatives)
        key = keyed.key(seed, purposes.session_candidates(purpose))
        table = drawn(Candidates(key, users, target, owned, (), pool, self.negatives))
        own = kind.own(self.negatives)
        if not own:
            return target, table
        return target, _with_own(np.asarray(table), train.take(users), own, keyed.fold(key, users))


@dataclass(frozen=True)
class _Cut:
    """These are rows [n] by session and time: `number` [n] ascends from 0; `user`, `part` [sessions]."""

    rows: Ints
    number: Ints
    user: Ints
    part: npt.NDArray[np.uint8]

    def keep(self, sessions: npt.NDArray[np.bool_]) -> _Cut:
        rows = sessions[self.number]
        number = (np.cumsum(sessions) - 1)[self.number[rows]]
        return _Cut(self.rows[rows], number, self.user[sessions], self.part[sessions])


def _grouped(dataset: Dataset, rows: Ints, session: Ints) -> _Cut:
    """Group rows by user and session number; sessions are in order of their first row."""
    user = dataset.user[rows].astype(np.int64)
    names, session = np.unique(session, return_inverse=True)
    _, first, code = np.unique(user * max(len(names), 1) + session, return_index=True, return_inverse=True)
    number, first = places(np.argsort(first))[code], np.sort(first)
    order = np.argsort(number, kind="stable")
    part = np.zeros(len(first), np.uint8) if dataset.part is None else dataset.part[rows[first]]
    return _Cut(rows[order], number[order], user[first], part)


def _known(dataset: Dataset, cut: _Cut) -> _Cut:
    """Leave out held-out items without a training session, and held-out sessions that become too short."""
    training = cut.part[cut.number] == 0
    seen = np.zeros(len(dataset.catalogue), bool)
    seen[dataset.item[cut.rows[training]]] = True
    stays = training | seen[dataset.item[cut.rows]]
    counts = np.bincount(cut.number[stays], minlength=len(cut.user))
    return replace(cut, rows=cut.rows[stays], number=cut.number[stays]).keep((cut.part == 0) | (counts >= _LEAST))


def _numbers(cut: _Cut, part: int, users: int) -> Ints:
    held = np.flatnonzero(cut.part == part)
    out = np.full(users, -1, np.int64)
    out[cut.user[held]] = held
    return out


def _distinct(sessions: Sessions, users: int, items: int) -> tuple[Ragged, Items]:
    """Return every user's different training items by first appearance [users], and all of them, ascending."""
    each = sessions.items.take(sessions.train.values)
    user, item = sessions.user[sessions.train.values][each.rows], each.values
    first = np.sort(np.unique(user * items + item, return_index=True)[1])
    return Ragged.from_sorted(user[first], item[first], users), np.unique(item).astype(np.int32)


def _owned(train: Ragged, target: Items, everything: bool) -> Ragged:
    """Return what is never drawn for a user [users]: the target and, with `everything`, training items."""
    asked = np.flatnonzero(target >= 0)
    own = train.values != np.repeat(target, train.counts) if everything else np.zeros(len(train.values), bool)
    user = np.concatenate([train.rows[own], asked])
    item = np.concatenate([train.values[own], target[asked]])
    order = np.lexsort((item, user))
    return Ragged.from_sorted(user[order], item[order], len(train))


def _with_own(table: Items, train: Ragged, most: int, keys: npt.NDArray[np.uint64]) -> Items:
    """Replace up to `most` negatives [n, 1 + negatives] by own training items, drawn by `keys`."""
    other = train.values != table[train.rows, 0]
    row, item = train.rows[other], train.values[other]
    order = np.lexsort((keyed.bits(keys[row], item), row))
    row, item = row[order], item[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    out, some = table.copy(), place < most
    out[row[some], 1 + place[some]] = item[some]
    return out
