"""Targets that the user had before, and targets that are new: one metric over both hides which of them was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.data.splits.sessions import Sessions
from edgefr.data.splits.split import Split, Which
from edgefr.simulation.evaluation.references import holds

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Scope = Literal["train", "session", "all"]


def had(split: Split, sessions: Sessions, which: Which, scope: Scope = "session") -> Ragged:
    """Items that every user had had when the held-out session asks, int64 [users], ascending and once each.

    "train": in training. "session": or earlier in the session that is asked about. "all": or in the validation session
    when testing, which a device knows too.
    """
    asked = [(sessions.held(which), 1)] if scope != "train" else []
    if scope == "all" and which == "test":
        asked.append((sessions.valid, 0))
    row, item = [split.train.rows], [split.train.values.astype(np.int64)]
    for held, without in asked:
        users = np.flatnonzero(held >= 0)
        each = sessions.items.take(held[users])
        earlier = np.arange(len(each.values)) < (each.offsets[1:] - without)[each.rows]
        row.append(users[each.rows[earlier]])
        item.append(each.values[earlier].astype(np.int64))
    bound = 1 + int(sessions.items.values.max(initial=0))
    code = np.unique(np.concatenate(row) * bound + np.concatenate(item))
    return Ragged.from_sorted(code // bound, code % bound, len(split.train))


@dataclass(frozen=True)
class Repeats:
    """This says which held-out items of `users` int64 [n], ascending, their users had had.

    bool [n] `train`, among their training items; `session`, earlier in the same session.
    """

    users: Ints
    train: Flags
    session: Flags

    @property
    def seen(self) -> Flags:
        """Say whose target was in training or earlier in the session, bool [n]."""
        return self.train | self.session

    def shares(self) -> dict[str, float]:
        """Return the shares of users whose target is a repeat of either kind, and new; NaN where there is nobody."""
        kinds = {"train": self.train, "session": self.session, "seen": self.seen, "new": ~self.seen}
        return {name: _mean(flags.astype(np.float64)) for name, flags in kinds.items()}


def repeats(split: Split, sessions: Sessions, which: Which) -> Repeats:
    """Say which held-out items are repeats, of everybody who has one."""
    users = split.users(which)
    target = (split.valid if which == "valid" else split.test)[users][:, None]
    each = sessions.items.take(sessions.held(which)[users])
    again = (each.values == target[each.rows, 0]) & (np.arange(len(each.values)) < each.offsets[1:][each.rows] - 1)
    session = np.bincount(each.rows[again], minlength=len(users)) > 0
    return Repeats(users, holds(split.train, users, target, split)[:, 0], session)


def _mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")
