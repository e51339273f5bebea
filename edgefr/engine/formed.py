"""Shards whose program has a form are trained and summed in one compiled call; here it is decided which these are.

    declared form, plain SGD, a table that learns from one kind of draws, a sum that is enough →  `edgefr.engine.kernel`
    everything else                                                     →  `edgefr.engine.inline`, then `release`

Owns: who is compiled, and what the compiled code is given. Does not own: what it computes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edge import purposes
from edge.ragged import Ragged
from edge.replay import Replay
from edge.sampling import EVERYTHING, Sampler, Selection
from edgefr.engine import inline
from edgefr.engine.aggregate import ShardAggregate, Terms, release
from edgefr.engine.kernel import arrays
from edgefr.engine.layered import COMPUTES, LOSSES
from edgefr.engine.work import Clients, LocalWork, without_memory
from export.program import Form, LocalProgram, Phase, Tensors, turns
from privacy import keyed


def released(work: LocalWork, terms: Terms, shared: Tensors, private: Tensors, clients: Clients) -> ShardAggregate:
    """Train a shard of clients and sum what they release under `terms`; `private` [C, ...] are their own tensors."""
    form = form_of(work, terms, shared, private, clients)
    if form is None:
        return release(inline.run(work, shared, private, clients), work.sampler.train.counts[clients], terms)
    return _compiled(form, work, terms, shared, private, clients)


def declared(program: LocalProgram) -> Form | None:
    """Return the form that a program declares; None where a derived class computes something else, and says nothing."""
    if any(name in vars(program) for name in COMPUTES):
        return None
    says = next(kind for kind in type(program).__mro__ if any(name in vars(kind) for name in ("score_form", *COMPUTES)))
    return program.score_form if "score_form" in vars(says) else None


def form_of(work: LocalWork, terms: Terms, shared: Tensors, private: Tensors, clients: Clients) -> Form | None:
    """Return the form of a shard's work where it is compiled, None where it is not."""
    form, sampler = declared(work.program), work.sampler
    if form is None or form.loss not in LOSSES or type(sampler) is not Sampler or not work.phases:
        return None
    if terms.each or terms.keeps or terms.joint is not None:  # a rule, a table or a projection needs single updates
        return None
    for phase in work.phases:
        alike = (phase.when, phase.optimiser, replace(phase.which, part="all", support=0.5))
        if alike != ("round", "sgd", LOSSES[form.loss]) or phase.pulls or not phase.epochs:
            return None
        if phase.accumulates or phase.which.part == "whole":
            return None
        if not {*phase.uses, *phase.trains} <= set(form.names):
            return None
    sets = [any(form.rows in phase.trains for phase in alike) for alike in _alike(work.phases)]
    if sets != [False] * (len(sets) - 1) + [True] or work.device.type != "cpu":
        return None
    if any(phase.which.part != "all" for phase in work.phases) and sampler.avoid is not None:
        return None
    if len(sets) > 1 and work.memory is not None:
        return None
    if work.draws(private, clients) is not None:  # every step draws its own replay
        return None
    read = [private.get(name, shared.get(name)) for name in form.names if name is not None]
    return form if all(value is not None and value.dtype == torch.float32 for value in read) else None


def _alike(phases: Sequence[Phase]) -> list[list[Phase]]:
    """Cut phases into sets of consecutive ones that learn from the same draws."""
    return [list(alike) for _, alike in itertools.groupby(phases, key=lambda phase: (phase.purpose, phase.which))]


def _compiled(
    form: Form, work: LocalWork, terms: Terms, shared: Tensors, private: Tensors, clients: Clients
) -> ShardAggregate:
    from edgefr.engine.kernel.run import run

    inline.keep_memory()
    replay = work.replay(shared, private, clients)
    begun = work.begun(without_memory(private), clients)
    own = {name: begun[name].clone(memory_format=torch.contiguous_format) for name in form.names[1:] if name}
    none = np.zeros((len(clients), 0), np.float32)
    weight, beside, bias = (none if name is None else own[name].numpy() for name in form.names[1:])
    tensors = arrays.Tensors(shared[form.rows].contiguous().numpy(), weight, beside, bias)
    items, width = tensors.rows.shape
    sizes = work.sampler.train.counts[clients]
    weights = (sizes if terms.by_size else np.ones(len(clients))).astype(np.float64)
    *before, last = _alike(work.phases)
    for phases in [*before, last]:
        lists, draws = _lists(work, clients, phases[0].which, replay), _draws(form, work, clients, phases)
        room, leaves = _room(lists, draws, items, width), phases is last
        release = arrays.Release(
            leaves, terms.clip or 0.0, terms.norm == "l1", terms.step or 0.0, terms.largest, weights
        )
        touched = min(items, len(lists.had) * (1 + draws.each * len(draws.orders)) + len(lists.replays))
        found, sums = np.empty(touched * leaves, np.int64), np.empty((touched * leaves, width))
        norms = np.empty(len(clients))
        count = run(lists, draws, _phases(form, phases), tensors, release, room, *_maps(items), found, sums, norms)
    order = np.argsort(found[:count])
    kept = norms <= terms.largest
    trained = {name for phase in work.phases for name in phase.trains}
    return ShardAggregate(
        dense={},
        rows={form.rows: (torch.from_numpy(found[order]), torch.from_numpy(sums[order]))},
        weight=float(len(clients) if terms.count_everyone else weights[kept].sum()),
        clients=int(kept.sum()),
        norms=norms[kept],
        dropped=int((~kept).sum()),
        clipped=0 if terms.clip is None else int((norms[kept] > terms.clip).sum()),
        private={name: value for name, value in own.items() if name in trained},
        kept=np.flatnonzero(kept),
    )


def _lists(work: LocalWork, clients: Clients, which: Selection, replay: Replay | None) -> arrays.Lists:
    sampler = work.sampler
    assert isinstance(sampler, Sampler)
    nothing = Ragged.empty(len(clients))
    had = sampler.positives(clients, which, work.round)
    avoids = sampler.train.take(clients) if which.part != "all" else nothing
    avoids = avoids if sampler.avoid is None else sampler.avoid.take(clients)
    again = nothing if replay is None else replay.items
    label, weight = (np.zeros(0), np.zeros(0)) if replay is None else (replay.label, replay.weight)
    return arrays.Lists(
        _plain(had.values, np.int32),
        had.offsets,
        _plain(avoids.values, np.int32),
        avoids.offsets,
        _plain(again.values, np.int32),
        again.offsets,
        _plain(label, np.float32),
        _plain(weight, np.float32),
    )


def _draws(form: Form, work: LocalWork, clients: Clients, phases: Sequence[Phase]) -> arrays.Draws:
    sampler, which, purpose = work.sampler, phases[0].which, phases[0].purpose
    assert isinstance(sampler, Sampler)
    epochs = range(max(phase.epochs for phase in phases))
    negatives, orders = (
        np.array([keyed.key(sampler.seed, key(purpose), work.round, epoch) for epoch in epochs], np.uint64)
        for key in (purposes.negatives, purposes.order)
    )
    numbers = clients if sampler.ids is None else sampler.ids[clients]
    groups = 1 + sampler.negatives if which.pairs else 1
    pool = sampler.pool.view()
    pool.flags.writeable = False  # in some processes it is
    batch = max(sampler.batch_size // groups, 1)
    mixed = which != EVERYTHING
    return arrays.Draws(_plain(numbers, np.uint64), negatives, orders, pool, sampler.negatives, groups, mixed, batch)


def _phases(form: Form, phases: Sequence[Phase]) -> arrays.Phases:
    groups = turns(phases)
    return arrays.Phases(
        np.cumsum([0, *(len(group) for group in groups)]),
        np.array([phase.epochs for phase in phases]),
        np.array([[name in phase.trains for name in form.names] for phase in phases]),
        np.array([[phase.lr.get(name or "", 0.0) for name in form.names] for phase in phases], np.float32),
        list(LOSSES).index(form.loss),
        np.float32(form.temperature),
    )


def _room(lists: arrays.Lists, draws: arrays.Draws, items: int, width: int) -> arrays.Room:
    """Return room for the client that takes most of it."""
    epochs, counts = len(draws.orders), np.diff(lists.had_ends)
    examples, again = int(counts.max()) * (1 + draws.each), int(np.diff(lists.replays_ends).max())
    steps = -(-examples // draws.groups // draws.batch)
    rows = min(items, examples * epochs + again) + 1  # what may be new is written behind the last one
    entries = (examples + steps * again) * epochs + 1
    at_once = min(examples, draws.batch * draws.groups) + again
    number, real = np.uint32, np.float32
    return arrays.Room(
        item=np.empty(rows, np.int32),
        change=np.empty((rows, width), real),
        moved=np.empty(rows, np.bool_),
        place=np.zeros(rows, number),
        row=np.empty(entries, number),
        weight=np.empty(entries, real),
        target=np.empty(entries, real),
        bounds=np.empty(steps * epochs + 1, np.int64),
        example=np.empty(examples, number),
        pair=np.empty(examples * epochs if draws.groups > 1 else 0, number),
        code=np.empty(examples, np.uint64),
        spare=np.empty(examples, np.uint64),
        ends=np.empty(256, np.int64),
        now=np.empty((at_once, width), real),
        score=np.empty(at_once, real),
        raw=np.empty(at_once, real),
    )


@functools.lru_cache(maxsize=2)
def _maps(items: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return two maps of the catalogue, which a call finds and leaves full of zeros: making them takes longer."""
    return np.zeros(items, np.uint32), np.zeros(items, np.int64)


def _plain(values: Any, kind: Any) -> Any:
    """Return values as an array that is contiguous and may be written, of one type: every other is compiled anew."""
    return np.require(values, kind, ["C", "W"])
