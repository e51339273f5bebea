"""This is a device's session: how it goes on, and what a round makes of it.

    interactions → the session, as long as pauses are short → a window → scores, a round's examples, a prototype

Of a session that is over, a device knows only that its items were had.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge.learning import Learning
from edge.ragged import Ragged
from edge.sessions import SessionSampler, Windows, window_of
from edge.state import State
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
GAP_S = 1800
"""Seconds of a pause after which a session is a new one, where a bundle does not say (FCUCR §5.1)."""

Before = Literal["learning", "recommending"]


def extend(state: State, items: Ints, times: Ints, gap_s: int, length: int) -> None:
    """Go on with the session in `state`, or begin another after a pause of more than `gap_s` seconds.

    No more is kept than a window of `length` inputs and a target. Raises `InputError` for times that fall.

    >>> state = State({}, {"session.items": np.array([7]), "session.times": np.array([100])})
    >>> extend(state, np.array([8, 9, 4]), np.array([110, 200, 220]), 60, 2)
    >>> state.tensors["session.items"].tolist(), state.tensors["session.times"].tolist()
    ([9, 4], [200, 220])
    """
    items = np.concatenate([state.tensors["session.items"], items])
    times = np.concatenate([state.tensors["session.times"], times])
    pauses = np.diff(times)
    if (pauses < 0).any():
        at = int(np.flatnonzero(pauses < 0)[0])
        raise InputError(
            f"an interaction at {times[at + 1]} s is before the last one at {times[at]} s; give them in order"
        )
    start = int(np.flatnonzero(pauses > gap_s)[-1]) + 1 if (pauses > gap_s).any() else 0
    state.put("session", {"items": items[start:][-length - 1 :], "times": times[start:][-length - 1 :]})


def moments(state: State, count: int, times: Iterable[int] | None, now: int) -> Ints:
    """Return when `count` new interactions were: `times`, or all of them `now`, but not before the session's last."""
    if times is None:
        return np.full(count, max([now, *state.tensors["session.times"][-1:].tolist()]), np.int64)
    found = np.fromiter(times, np.int64)
    if len(found) != count:
        raise InputError(f"{len(found)} times for {count} interactions; give one for each")
    return found


def window(state: State, length: int, before: Before = "recommending") -> Windows:
    """Return the session's window; before learning, without the newest item, which is a target."""
    skip = 1 if before == "learning" else 0
    return window_of(state.tensors["session.items"], state.tensors["session.times"], length, skip)


def started(times: Ints, last: int | None, gap_s: int) -> slice:
    """Return which of ascending `times` a device takes up next: those of one session, after the `last` that it knows.

    What goes on with the last one's session comes before the next session (None: it knows of none).

    >>> started(np.array([100, 110, 500, 510, 900]), 100, 60)
    slice(1, 2, None)
    >>> started(np.array([100, 110, 500, 510, 900]), 110, 60)
    slice(2, 4, None)
    """
    first = 0 if last is None else int(np.searchsorted(times, last, side="right"))
    pauses = np.flatnonzero(np.diff(times[first:]) > gap_s)
    return slice(first, first + int(pauses[0]) + 1 if len(pauses) else len(times))


def sampler(state: State, learning: Learning, length: int, pool: Ints, catalogue: int) -> SessionSampler:
    """Return the draws of the device's session. Raises `InputError` for a session of fewer than two items."""
    items, times = state.tensors["session.items"], state.tensors["session.times"]
    if len(items) < 2:
        raise InputError("nothing to learn from: the session has fewer than two items; give some to learn")
    had = np.unique(np.concatenate([state.tensors[f"items.{name}"] for name in ("own", "past", "seen")]))
    one, ends = np.zeros(1, np.int64), np.array([0, len(items)])
    return SessionSampler(
        Ragged(items, ends),
        Ragged(times, ends),
        one,
        Ragged(had, np.array([0, len(had)])),
        pool,
        catalogue,
        length,
        learning.negatives,
        learning.seed,
        np.array([state.facts["number"]]),
        once=learning.sessions is not None and learning.sessions.once,
    )
