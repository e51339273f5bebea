"""The kernel of the virtual clock: clients leave a round in order of (time, sequence number), from a heap."""

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
STAGES = ("downloaded", "trained", "uploaded", "lost")


@dataclass(frozen=True)
class Played:
    """This is a round's end: who `uploaded`, who was `lost` [C], and when it `closed`, s from its start.

    All others were still at work. `full`: it closed because enough had uploaded.
    """

    uploaded: Flags
    lost: Flags
    closed: float
    full: bool


def play(ends: Floats, stops: Floats, working: Flags, deadline: float, enough: int | None, at_least: int = 0) -> Played:
    """Run a round until nobody is at work, `enough` have uploaded, or the deadline.

    `ends` [C, 3]: seconds at which each stage would end; `stops` [C]: when the client is lost (inf: never); `working`
    [C]: who started. Fewer than `at_least` uploads keep the round open until the deadline. Ties are in cohort order.
    """
    uploaded, lost = np.zeros(len(ends), dtype=bool), np.zeros(len(ends), dtype=bool)
    uploads, closed = 0, 0.0
    leaves = np.minimum(ends[:, 2], stops)[working].tolist()
    finishes = (stops >= ends[:, 2]).tolist()
    heap = list(zip(leaves, np.flatnonzero(working).tolist(), strict=True))
    heapq.heapify(heap)
    while heap and heap[0][0] <= deadline:
        closed, client = heapq.heappop(heap)
        if not finishes[client]:
            lost[client] = True
            continue
        uploaded[client] = True
        uploads += 1
        if uploads == enough:
            return Played(uploaded, lost, closed, True)
    if heap or uploads < at_least or not working.any():
        closed = deadline
    return Played(uploaded, lost, closed, False)


def log(ends: Floats, stops: Floats, played: Played, working: Flags) -> list[tuple[float, int, str]]:
    """List all that happened before the close: (seconds from the start, position in the cohort, kind)."""
    times = np.concatenate([ends, stops[:, None]], axis=1)
    happened = working[:, None] & (times <= np.minimum(stops, played.closed)[:, None])
    happened[:, 2] &= played.uploaded
    happened[:, 3] = played.lost
    client, stage = np.nonzero(happened)
    order = np.lexsort((stage, client, times[client, stage]))
    return [(float(times[c, s]), int(c), STAGES[s]) for c, s in zip(client[order], stage[order], strict=True)]
