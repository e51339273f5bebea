"""Clients that solve a linear system, as FCF's do, are taken and summed in one compiled call; here is its input.

Owns: which phases these are, and the arrays. Does not own: the computation (`kernel_system`).
"""

from __future__ import annotations

import numpy as np
import torch

from edge.sampling import Selection
from edgefr.engine.aggregate import ShardAggregate, Terms, of_sums
from edgefr.engine.compiled import kernel_arrays as arrays
from edgefr.engine.work import Clients, LocalWork, without_memory
from export.program import System, Tensors


def fits(form: System, work: LocalWork) -> bool:
    """Say whether phases solve for the user and then send the gradient, each at rate 1, over all interactions."""
    whole, sent = Selection(part="whole"), (form.rows, form.gram)
    known = [(phase.when, phase.optimiser, phase.which, phase.epochs, set(phase.trains)) for phase in work.phases]
    plain = not any(phase.pulls or phase.accumulates for phase in work.phases)
    rates = all(phase.lr[name] == 1.0 for phase in work.phases for name in phase.trains)
    both = [("round", "sgd", whole, 1, trained) for trained in ({form.user}, set(sent))]
    return plain and rates and work.memory is None and known == both


def released(
    form: System, work: LocalWork, terms: Terms, shared: Tensors, private: Tensors, clients: Clients
) -> ShardAggregate:
    """Let a shard of clients solve, and sum what they release under `terms`."""
    from edgefr.engine.compiled.kernel_system import run

    had = work.sampler.train.take(clients)
    users = work.begun(without_memory(private), clients)[form.user].clone(memory_format=torch.contiguous_format)
    rows, gram = (shared[name].contiguous().numpy() for name in (form.rows, form.gram))
    items, width = rows.shape
    tensors = arrays.SystemTensors(rows, gram, np.float32(form.alpha), np.float32(form.ridge))
    weights = (work.sampler.train.counts[clients] if terms.by_size else np.ones(len(clients))).astype(np.float64)
    release = arrays.Release.of(terms, weights)
    most = int(had.counts.max(initial=0)) + width
    room = arrays.SystemRoom(
        matrix=np.empty((width, width + 1), np.float32),
        item=np.empty(most, np.int64),
        change=np.empty((most, width), np.float32),
        moved=np.empty(most, np.bool_),
    )
    touched = min(items, len(had.values)) + width
    found, sums, norms = np.empty(touched, np.int64), np.empty((touched, width)), np.empty(len(clients))
    values, maps = arrays.plain(had.values, np.int32), arrays.maps(items + width)
    count = run(values, had.offsets, tensors, release, users.numpy(), room, *maps, found, sums, norms)
    order = np.argsort(found[:count])
    of_items = order[found[order] < items]
    by_gram = np.zeros((width, width))
    behind = found[:count] >= items
    by_gram[found[:count][behind] - items] = sums[:count][behind]
    of_rows = torch.from_numpy(found[of_items]), torch.from_numpy(sums[of_items])
    return of_sums(
        terms, weights, norms, ({form.gram: torch.from_numpy(by_gram)}, {form.rows: of_rows}), {form.user: users}
    )
