"""Shards whose program has a form are trained and summed in one compiled call; here it is decided which these are.

declared form, plain SGD, a table that learns from one kind of draws, a sum that is enough →  `kernel_run`
a system that clients solve, and a sum that is enough →  `kernel_system`
everything else →  `edgefr.engine.executors.inline`, then `release`
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from edge import random_streams as purposes
from edge.ragged import Ragged
from edge.replay import Replay
from edge.sampling import EVERYTHING, Sampler, Selection
from edgefr.engine.aggregate import ReleaseTerms, ShardAggregate, of_sums, release
from edgefr.engine.compiled import kernel_arrays as arrays
from edgefr.engine.compiled.mlp_phases import COMPUTES, LOSSES
from edgefr.engine.device import keep_memory
from edgefr.engine.executors import inline
from edgefr.engine.work import Clients, LocalWork, without_memory
from export.program import LocalProgram, Phase, ScoreForm, System, Tensors, turns
from privacy import keyed


def released(
    work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, clients: Clients
) -> ShardAggregate:
    """Train a shard of clients and sum what they release under `terms`; `private` [C, ...] are their own tensors."""
    form = form_of(work, terms, shared, private, clients)
    if form is None:
        return release(inline.run(work, shared, private, clients), work.sampler.train.counts[clients], terms)
    keep_memory()
    if isinstance(form, System):
        return _solved(form, work, terms, shared, private, clients)
    return _compiled(form, work, terms, shared, private, clients)


def together(
    work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
) -> ShardAggregate | None:
    """Train several shards in one call, as `summed` would add up what each has released; None where nothing can."""
    clients = np.concatenate(shards)
    form = form_of(work, terms, shared, private, clients)
    if not isinstance(form, ScoreForm):
        return None
    keep_memory()
    return _compiled(form, work, terms, shared, private, clients, np.cumsum([len(shard) for shard in shards]))


def declared(program: LocalProgram) -> ScoreForm | System | None:
    """Return the form that a program declares; None where a derived class overrides what it describes."""
    if any(name in vars(program) for name in COMPUTES):
        return None
    says = next(kind for kind in type(program).__mro__ if any(name in vars(kind) for name in ("score_form", *COMPUTES)))
    return program.score_form if "score_form" in vars(says) else None


def form_of(
    work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, clients: Clients
) -> ScoreForm | System | None:
    """Return the form of a shard's work where it is compiled, None where it is not."""
    form = declared(work.program)
    if form is None or type(work.sampler) is not Sampler or work.device.type != "cpu":
        return None
    if terms.each or terms.keeps or terms.joint is not None:  # a rule, a table or a projection needs single updates
        return None
    read = [private.get(name, shared.get(name)) for name in form.names if name is not None]
    if any(value is None or value.dtype != torch.float32 for value in read):
        return None
    fits = _solves(form, work) if isinstance(form, System) else _fits(form, work)
    return form if fits and work.draws(private, clients) is None else None  # where every step draws its own replay


def _fits(form: ScoreForm, work: LocalWork) -> bool:
    """Say whether phases are of the compiled kind: one table learns by SGD, from one set of draws."""
    if form.loss not in LOSSES or not work.phases:
        return False
    for phase in work.phases:
        alike = (phase.when, phase.optimiser, replace(phase.which, part="all", support=0.5))
        if alike != ("round", "sgd", LOSSES[form.loss]) or phase.pulls or not phase.epochs:
            return False
        if phase.accumulates or phase.which.part == "whole":
            return False
        if not {*phase.uses, *phase.trains} <= set(form.names):
            return False
    sets, sampler = _alike(work.phases), work.sampler
    assert isinstance(sampler, Sampler)
    learns = [any(form.rows in phase.trains for phase in alike) for alike in sets]
    if any(phase.which.part != "all" for phase in work.phases) and sampler.avoid is not None:
        return False
    if len(sets) > 1 and (work.memory is not None or any(alike[0].alternates for alike in sets[1:])):
        return False
    return learns == [False] * (len(learns) - 1) + [True]


def _alike(phases: Sequence[Phase]) -> list[list[Phase]]:
    """Cut phases into sets of consecutive ones that learn from the same draws."""
    return [list(alike) for _, alike in itertools.groupby(phases, key=lambda phase: (phase.purpose, phase.which))]


def _compiled(
    form: ScoreForm,
    work: LocalWork,
    terms: ReleaseTerms,
    shared: Tensors,
    private: Tensors,
    clients: Clients,
    ends: npt.NDArray[np.int64] | None = None,
) -> ShardAggregate:
    """Train a shard's clients, or those of several that end before `ends`."""
    from edgefr.engine.compiled.kernel_run import run

    replay = work.replay(shared, private, clients)
    begun = work.begun(without_memory(private), clients)
    own = {name: begun[name].clone(memory_format=torch.contiguous_format) for name in form.names[1:] if name}
    none = np.zeros((len(clients), 0), np.float32)
    weight, beside, bias = (none if name is None else own[name].numpy() for name in form.names[1:])
    tensors = arrays.Tensors(shared[form.rows].contiguous().numpy(), weight, beside, bias)
    items, width = tensors.rows.shape
    sizes = work.sampler.train.counts[clients]
    weights = (sizes if terms.by_size else np.ones(len(clients))).astype(np.float64)
    ends = np.array([len(clients)]) if ends is None else ends
    *before, last = _alike(work.phases)
    for phases in [*before, last]:
        lists, draws = _lists(work, clients, phases[0].which, replay), _draws(form, work, clients, phases)
        room, leaves = _room(lists, draws, items, width), phases is last
        release = arrays.Release.of(terms, weights, leaves)
        touched = min(items, len(lists.had) * (1 + draws.each * len(draws.orders)) + len(lists.replays))
        out = arrays.Out.of(items, touched * leaves, width, len(clients))
        total = arrays.Total.of(items, touched * leaves * (len(ends) > 1), width)
        count = run(ends, lists, draws, _phases(form, phases), tensors, release, room, out, total)
    found, sums = (total.found, total.sums) if len(ends) > 1 else (out.found, out.sums)
    order = np.argsort(found[:count])
    rows = {form.rows: (torch.from_numpy(found[order]), torch.from_numpy(sums[order]))}
    trained = {name for phase in work.phases for name in phase.trains}
    private = {name: own[name] for name in own if name in trained}
    return replace(of_sums(terms, weights, out.norms, ({}, rows), private), shards=len(ends))


def _lists(work: LocalWork, clients: Clients, which: Selection, replay: Replay | None) -> arrays.Lists:
    sampler = work.sampler
    assert isinstance(sampler, Sampler)
    nothing = Ragged.empty(len(clients))
    had = sampler.positives(clients, which, work.round)
    avoids = sampler.train.take(clients) if which.part != "all" else nothing
    avoids = avoids if sampler.avoid is None else sampler.avoid.take(clients)
    again = nothing if replay is None else replay.items
    drawn = (np.zeros(0), np.zeros(0)) if replay is None else (replay.label, replay.weight)
    columns = [part for one in (had, avoids, again) for part in (arrays.plain(one.values, np.int32), one.offsets)]
    return arrays.Lists(*columns, *(arrays.plain(part, np.float32) for part in drawn))


def _draws(form: ScoreForm, work: LocalWork, clients: Clients, phases: Sequence[Phase]) -> arrays.Draws:
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
    return arrays.Draws(
        arrays.plain(numbers, np.uint64), negatives, orders, pool, sampler.negatives, groups, mixed, batch
    )


def _phases(form: ScoreForm, phases: Sequence[Phase]) -> arrays.Phases:
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


def _solves(form: System, work: LocalWork) -> bool:
    """Say whether phases solve for the user and then send the gradient, each at rate 1, over all interactions."""
    whole, sent = Selection(part="whole"), (form.rows, form.gram)
    known = [(phase.when, phase.optimiser, phase.which, phase.epochs, set(phase.trains)) for phase in work.phases]
    plain = not any(phase.pulls or phase.accumulates for phase in work.phases)
    rates = all(phase.lr[name] == 1.0 for phase in work.phases for name in phase.trains)
    both = [("round", "sgd", whole, 1, trained) for trained in ({form.user}, set(sent))]
    return plain and rates and work.memory is None and known == both


def _solved(
    form: System, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, clients: Clients
) -> ShardAggregate:
    """Let a shard of clients solve, and sum what they release under `terms`."""
    from edgefr.engine.compiled.kernel_system import run

    had = work.sampler.train.take(clients)
    users = work.begun(without_memory(private), clients)[form.user].clone(memory_format=torch.contiguous_format)
    table, gram = (shared[name].contiguous().numpy() for name in (form.rows, form.gram))
    items, width = table.shape
    tensors = arrays.System(table, gram, np.float32(form.alpha), np.float32(form.ridge))
    weights = (work.sampler.train.counts[clients] if terms.by_size else np.ones(len(clients))).astype(np.float64)
    release = arrays.Release.of(terms, weights)
    most = int(had.counts.max(initial=0)) + width
    room = arrays.SystemRoom(
        matrix=np.empty((width, width + 1), np.float32),
        item=np.empty(most, np.int64),
        change=np.empty((most, width), np.float32),
        moved=np.empty(most, np.bool_),
    )
    out = arrays.Out.of(items + width, min(items, len(had.values)) + width, width, len(clients))
    count = run(arrays.plain(had.values, np.int32), had.offsets, tensors, release, users.numpy(), room, out)
    order = np.argsort(out.found[:count])
    found, sums = out.found[order], out.sums[order]
    last = int(np.searchsorted(found, items))  # what lies behind it are rows of the Gram matrix
    by_gram = np.zeros((width, width))
    by_gram[found[last:] - items] = sums[last:]
    dense = {form.gram: torch.from_numpy(by_gram)}
    rows = {form.rows: (torch.from_numpy(found[:last]), torch.from_numpy(sums[:last]))}
    return of_sums(terms, weights, out.norms, (dense, rows), {form.user: users})
