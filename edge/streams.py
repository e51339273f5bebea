"""This is a device's session: how it goes on, what a round makes of it, and what device and server say of it.

What they say goes beside updates.

    interactions → the session, as long as pauses are short → a window → scores, a round's examples, a prototype

Of a session that is over, a device knows only that its items were had. Owns: the session in a device's state, a round's
steps made of it, prototypes and replies. Does not own: draws (`edge.sessions`), the loop of training (`edge.training`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge import purposes
from edge.graph import Graph
from edge.learning import Learning, PhaseRecord, SessionRecord
from edge.ragged import Ragged
from edge.scorer import Rows, window_feeds
from edge.sessions import SessionSampler, Windows, window_of
from edge.state import State
from edge.training import CLIENT, Step, Trained
from privacy import keyed
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
    """Return what the session shows.

    That is all of it, or, before it is learned from, all but the newest item, which is a target.
    """
    skip = 1 if before == "learning" else 0
    return window_of(state.tensors["session.items"], state.tensors["session.times"], length, skip)


def told(
    graph: Graph, dense: Mapping[str, Floats], seen: Windows, tables: Mapping[str, Rows], learning: Learning
) -> Floats:
    """Return what a graph computes of a window and the tensors `dense`."""
    named = {f"{learning.tensor(name).place}.{name}": value for name, value in dense.items()}
    return graph.run({**named, **window_feeds(graph, seen, tables)})


@dataclass(frozen=True)
class LearningMaterial:
    """This is the work of a client that learns from its session (see `edge.training.Work`):

    one window, a step per epoch.
    """

    sampler: SessionSampler
    tables: Mapping[str, Rows]
    round: int
    taught: Floats | None
    context: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def steps(self, phase: PhaseRecord) -> Iterator[Step]:
        """Yield steps as `Work.steps` does."""
        draw = self.sampler.draw(CLIENT, phase.purpose, self.round, phase.epochs)
        real = draw.real[0]
        given: dict[str, Array] = {"label": real, "weight": (real / max(real.sum(), 1.0)).astype(np.float32)}
        given |= {"window.times": draw.times[0], "window.inputs": draw.inputs[0], "window.positives": draw.positives[0]}
        if self.taught is not None:
            given["window.taught"] = self.taught
        for epoch in range(phase.epochs if self.planned([phase]) else 0):
            yield draw.touched, {**given, "window.negatives": draw.negatives[epoch, 0]}

    def read(self, phases: Sequence[PhaseRecord]) -> Ints:
        """Return items as `Work.read` does."""
        drawn = [self.sampler.draw(CLIENT, p.purpose, self.round, p.epochs).touched for p in phases]
        return np.unique(np.concatenate([np.empty(0, np.int64), *drawn]))

    def planned(self, phases: Sequence[PhaseRecord]) -> int:
        """Count steps as `Work.planned` does."""
        return sum(phase.epochs for phase in phases) * int(self.sampler.steps(CLIENT)[0])


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
    )


def after(
    how: SessionRecord,
    learning: Learning,
    graphs: Callable[[str], Graph],
    dense: Mapping[str, Floats],
    trained: Trained,
    lessons: LearningMaterial,
) -> tuple[dict[str, Floats], Floats | None]:
    """Return what a device remembers of a round, private tensors by name, and the prototype beside its update."""
    now = {**dense, **trained.dense}
    kept = {name: now[source] for name, source in how.keeps.items()}
    kept |= {name: np.ones(learning.tensor(name).shape, np.float32) for name in how.marks}
    if how.publish is None or how.order != "trained":
        return kept, None
    tables = {**lessons.tables, **{name: _rows(*rows) for name, rows in trained.rows.items()}}
    return kept, told(graphs(how.publish), now, lessons.sampler.window(CLIENT), tables, learning)


def _rows(items: Ints, values: Floats) -> Rows:
    """Return a function that gives rows by item among those that were read; padding gets some row."""
    return lambda wanted: values[np.minimum(np.searchsorted(items, wanted), len(items) - 1)]


def reply_of(reply: Floats, learning: Learning, state: State) -> dict[str, Floats]:
    """A reply as the private tensor it is kept as, with the device's noise where the run adds any, keyed by the round.

    Raises `InputError` for a reply that the bundle's method has no place for.
    """
    how = learning.sessions
    if how is None or how.reply is None:
        raise InputError("this bundle's method takes no replies of the server")
    shape = learning.tensor(how.reply).shape
    if reply.dtype != np.float32 or list(reply.shape) != shape or not np.isfinite(reply).all():
        raise InputError(f"the reply is {reply.dtype} {list(reply.shape)} instead of {shape} finite float32")
    if how.receiver_noise:
        key = keyed.fold(
            keyed.key(learning.seed, purposes.RECEIVED_NOISE, state.facts["round"] + 1), state.facts["number"]
        )
        reply = reply + (how.receiver_noise * keyed.normal(key, np.arange(reply.size))).astype(np.float32)
    return {how.reply: reply}
