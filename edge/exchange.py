"""Messages pass between a device and the server beside updates, and some private tensors are kept from round to round.

trained model, what the client had last → message → noise of the device's own → beside the update
the server's reply → a private tensor, which the next rounds and recommendations read
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from edge import random_streams as purposes
from edge.graph import Graph
from edge.learning import Learning
from edge.scorer import Rows
from edge.state import State
from edge.training import Trained, Work
from edge.update import LARGEST, takeable
from privacy import keyed
from privacy.errors import InputError
from privacy.mechanism import Noise

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
LEAST = 2.0**-149  # the least float32 above 0
FINE = 16  # bits that the step of a message's grid is below the scale of its noise


def after(
    learning: Learning,
    graphs: Callable[[str], Graph],
    dense: Mapping[str, Floats],
    trained: Trained,
    work: Work,
) -> tuple[dict[str, Floats], Floats | None]:
    """Return what a device keeps of a round, private tensors by name, and the message beside its update."""
    how = learning.exchange
    if how is None:
        return {}, None
    now = {**dense, **trained.dense}
    kept = {name: now[source] for name, source in how.keeps.items()}
    kept |= {name: np.ones(learning.tensor(name).shape, np.float32) for name in how.marks}
    if how.publish is None or how.order != "trained":
        return kept, None
    tables = {**work.tables, **{n: _rows(*rows, work.tables[n]) for n, rows in trained.rows.items()}}
    graph = graphs(how.publish)
    named = {f"{learning.tensor(name).place}.{name}": value for name, value in now.items()}
    return kept, noised(graph.run({**named, **work.shown(graph, tables)}), how.sender_noise)


def noised(message: Floats, scale: float) -> Floats:
    """Return a message with exact Laplace noise of this `scale` on every value (0: none); unclipped: no guarantee."""
    step = 2.0 ** (math.frexp(scale)[1] - FINE)
    if not scale or step < LEAST:  # less than what a float32 can tell apart
        return message
    noise = Noise("discrete-laplace", round(scale / step) * step, step)
    whole = np.rint(message.astype(np.float64).ravel() / step) + noise.exact(message.size)
    return (whole * step).astype(np.float32).reshape(message.shape)


def _rows(items: Ints, values: Floats, before: Rows) -> Rows:
    """Return rows by item: those that training changed, and of all others those before it."""

    def found(wanted: Ints) -> Floats:
        rows = np.array(before(wanted), np.float32)
        if len(items):
            at = np.minimum(np.searchsorted(items, wanted), len(items) - 1)
            mine = items[at] == wanted
            rows[mine] = values[at[mine]]
        return rows

    return found


def reply_of(reply: Floats, learning: Learning, state: State) -> dict[str, Floats]:
    """Return a reply as the private tensor it is kept as, with keyed noise. Raises `InputError` where none is kept."""
    how = learning.exchange
    if how is None or how.reply is None:
        raise InputError("this bundle's method takes no replies of the server")
    shape = learning.tensor(how.reply).shape
    if reply.dtype != np.float32 or list(reply.shape) != shape or not takeable(reply):
        raise InputError(
            f"the reply is {reply.dtype} {list(reply.shape)} instead of {shape} finite float32 of a length up to "
            f"{LARGEST:g}"
        )
    if how.receiver_noise:
        key = keyed.fold(
            keyed.key(learning.seed, purposes.RECEIVED_NOISE, state.facts["round"] + 1), state.facts["number"]
        )
        reply = reply + (how.receiver_noise * keyed.normal(key, np.arange(reply.size))).astype(np.float32)
    return {how.reply: reply}
