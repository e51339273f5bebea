"""These tables are choices of protocol sessions: which one is met in a round, and what a target is ranked against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privacy.table import Table

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SessionStream:
    """A stream has a name; `about` says in a report how sessions are met.

    `turn(round, counts)`: the place of the session that each client meets in a round (from 1), of its `counts`
    sessions, int64 [clients]; beyond its last it meets none. `returns`: a client meets the same session again; else a
    run ends with the sessions.
    """

    name: str
    about: str
    turn: Callable[[int, Ints], Ints]
    returns: bool


@dataclass(frozen=True)
class SessionNegatives:
    """Negatives of a held-out session have a name; `about(negatives)` says in a report what they are.

    `unseen`: the user's own training items are never drawn. `own(negatives)`: how many are, where there are as many.
    """

    name: str
    about: Callable[[int], str]
    unseen: bool
    own: Callable[[int], int]


STREAMS: Table[SessionStream] = Table("stream", SessionStream)
"""In which order sessions can be met."""

_ONCE, _AGAIN = "each session is met once, in its turn", "sessions are met over and over"
STREAMS.register(SessionStream("one-pass", _ONCE, lambda number, counts: np.full(len(counts), number - 1), False))
STREAMS.register(SessionStream("cyclic", _AGAIN, lambda number, counts: (number - 1) % np.maximum(counts, 1), True))

NEGATIVES: Table[SessionNegatives] = Table("negatives", SessionNegatives)
"""What a held-out session's target can be ranked against."""

_UNSEEN = "never the user's own training items, so having had an item tells a repeated target apart"
_ANY = "the user's own training items among them, as rarely as chance has it"
_OWN = "but {} (or all there are) are the user's own training items"
NEGATIVES.register(SessionNegatives("unseen", lambda n: _UNSEEN, unseen=True, own=lambda n: 0))
NEGATIVES.register(SessionNegatives("any", lambda n: _ANY, unseen=False, own=lambda n: 0))
NEGATIVES.register(SessionNegatives("own", lambda n: _OWN.format(n // 2), unseen=True, own=lambda n: n // 2))
