"""Every promise of a local program is asked of a case by one function: it raises `AssertionError` where it is broken.

Owns: the promises of simulation. Does not own: data (`cases`), what is shipped (`bundle_checks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from edge.sampling import Sampler
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors import debug, inline
from edgefr.engine.executors import sessions as sequences
from edgefr.engine.optimisers import RULES
from edgefr.engine.tables import RECEIVED, Own, tensors_of
from edgefr.engine.work import LocalWork, trained
from edgefr.methods.testing.cases import FIRST, Case, SetCase, When, items_of
from edgefr.methods.testing.closeness import assert_all_same, assert_same
from export.batches import One, Window
from export.program import LocalProgram, Phase, SessionProgram, turns

BATCHES = (7, 64)
"""Batch sizes that are tried: one that cuts most clients' examples, one that cuts few."""
PADDING = 3
"""Examples of no weight that are put behind the real ones."""
LEAST, MOST = 1e-5, 1e6
"""What clients learn in a round is to be above the one and below the other share of the largest value."""


def specs_and_phases(case: Case) -> None:
    """Ask whether tensors are what the specs say, and phases name tensors that there are."""
    program, specs = case.program, case.program.specs
    assert specs, "it has no specs"
    assert program.phases, "it has no phases"
    shared, clients = program.init_shared(FIRST), torch.arange(3)
    private = program.init_private(FIRST, clients)
    wanted = {name: spec.shape for name, spec in specs.items() if spec.place == "shared"}
    _same_shapes("init_shared", shared, wanted)
    own = {n: (3, *spec.shape) for n, spec in specs.items() if (spec.place, spec.kind) == ("private", "dense")}
    _same_shapes("init_private", private, own)
    for name, spec in specs.items():
        assert spec.kind == "dense" or len(spec.shape) == 2, f"rows tensor '{name}' is not [items, width]"
        assert spec.kind == "dense" or spec.shape[0] == items_of(program), f"'{name}' has another number of items"
        received = name.removeprefix(RECEIVED) in wanted and name.startswith(RECEIVED)
        assert spec.place != "received" or received, f"'{name}' is received, so it is to be called 'received.<shared>'"
    for table, value in program.frozen.items():
        assert len(value) == items_of(program), f"frozen table '{table}' has {len(value)} rows"
    flat = program.pointwise and program.needs_history
    assert not flat, "it is pointwise and needs a history, but lists of examples carry none: set pointwise = False"
    assert not isinstance(program, SessionProgram) or program.window > 0, "its window holds no position"
    for phase in program.phases:
        _phase(program, phase)
    turns(program.phases)


def _same_shapes(made: str, tensors: dict[str, Tensor], wanted: dict[str, tuple[int, ...]]) -> None:
    missing, more = wanted.keys() - tensors.keys(), tensors.keys() - wanted.keys()
    assert not missing, f"{made} does not make {sorted(missing)}, which specs name"
    assert not more, f"{made} makes {sorted(more)}, which specs do not name so"
    for name, value in tensors.items():
        shape = tuple(value.shape)
        assert shape == tuple(wanted[name]), f"{made} makes '{name}' as {shape}; specs say {tuple(wanted[name])}"
        assert value.dtype == torch.float32, f"{made} makes '{name}' as {value.dtype}, not float32"
        assert bool(value.isfinite().all()), f"{made} makes '{name}' with values that are no numbers"


def _phase(program: LocalProgram, phase: Phase) -> None:
    specs, named = program.specs, f"phase '{phase.name}'"
    unknown = sorted({*phase.uses, *phase.trains} - set(specs))
    assert not unknown, f"{named} names {unknown}, which specs do not declare"
    assert phase.trains, f"{named} trains nothing"
    unread = [name for name in phase.trains if name not in phase.uses]
    assert not unread, f"{named} trains {unread}, which its `uses` do not name"
    fixed = [name for name in phase.trains if specs[name].place == "received"]
    assert not fixed, f"{named} trains {fixed}, which the server makes and nobody trains"
    rates = [name for name in phase.trains if not phase.lr.get(name, -1) >= 0]
    assert not rates, f"{named} has no learning rate for {rates}"
    assert phase.optimiser in RULES, f"{named} asks for optimiser '{phase.optimiser}'; there are {sorted(RULES)}"
    assert phase.epochs >= 0, f"{named} has {phase.epochs} epochs"


def numbers(case: Case) -> None:
    """Ask whether everybody can train, whether what comes out are numbers, and whether anything was learned."""
    for when in case.whens:
        for executor in (inline.run, debug.run):
            out = case.run(executor, case.clients, when)
            for name, value in out.items():
                assert bool(value.isfinite().all()), f"'{name}' has values that are no numbers after a round"
        size = float(case.bounds(when)["size"])
        before = {f"private {name}": value for name, value in case.begun(case.clients)[1].items()}
        moved = max(float((v - before.get(n, 0)).abs().max()) for n, v in out.items() if not n.startswith("own "))
        moved = max([moved, *(float(v.abs().max()) for n, v in out.items() if n.startswith("own "))])
        assert moved > LEAST * size, f"a round moves values by {moved:.2g} at most: give larger learning rates"
        assert moved < MOST * max(size, 1), f"a round moves values by {moved:.2g}: give smaller learning rates"


def same_bytes(case: Case) -> None:
    """Ask whether the same seed gives the same bytes, first values and rounds alike."""
    everyone = torch.from_numpy(case.clients)
    for init in (lambda: case.program.init_shared(FIRST), lambda: case.program.init_private(FIRST, everyone)):
        _equal(init(), init(), "first values of '{}' differ from call to call with the same seed")
    some = everyone[1::2]
    all_of, part = (case.program.init_private(FIRST, clients) for clients in (everyone, some))
    _equal(part, {n: v[some] for n, v in all_of.items()}, "first values of '{}' depend on who else is asked about")
    for when in case.whens:
        one, two = (case.run(inline.run, case.clients, when) for _ in range(2))
        _equal(two, one, "'{}' differs from call to call with the same seed")


def _equal(found: dict[str, Tensor], expected: dict[str, Tensor], words: str) -> None:
    for name, value in expected.items():
        assert torch.equal(found[name], value), words.format(name)


def left_alone(case: Case) -> None:
    """Ask whether a shard, of many clients or of one, leaves alone what it was given and clients outside it."""
    outside, program = case.clients[1::2], case.program
    rest = case.run(inline.run, outside)
    shared, private = case.begun(case.clients, wide=False)
    for executor in (inline.run, debug.run):
        for inside in (case.clients[::2], np.array([case.busiest])):
            todo = case.work()
            given = {**shared, **private, **program.frozen, **program.constants}
            before = {name: value.clone() for name, value in (given | _held(todo)).items()}
            list(InProcess(executor).updates(todo, shared, private, [inside]))
            _equal(given | _held(todo), before, "training changes '{}' in place; it is to make new tensors")
    _equal(case.run(inline.run, outside), rest, "'{}' of clients outside a shard depends on what a shard did before")


def _held(todo: LocalWork) -> dict[str, Tensor]:
    return tensors_of(cast(dict[str, Own], todo.tables))


def clients_apart(case: Case) -> None:
    """Ask whether others learn the same when one client has other data and other private tensors."""
    others = torch.from_numpy(case.clients != case.busiest)
    for when in case.whens:
        usual = case.run(inline.run, case.clients, when)
        changed = case.run(inline.run, case.clients, when, other=case.busiest)
        _alike({n: v[others] for n, v in changed.items()}, {n: v[others] for n, v in usual.items()}, case, when)


def order(case: Case) -> None:
    """Ask whether clients learn the same in any order."""
    mixed = np.random.default_rng(0).permutation(len(case.clients))
    for when in case.whens:
        usual, found = (case.run(inline.run, clients, when) for clients in (case.clients, case.clients[mixed]))
        _alike(found, {n: v[torch.from_numpy(mixed)] for n, v in usual.items()}, case, when)


def shards(case: Case) -> None:
    """Ask whether clients learn the same in shards of any size."""
    for when in case.whens:
        whole = case.run(inline.run, case.clients, when)
        for size in (1, 4):
            cuts = [case.clients[at : at + size] for at in range(0, len(case.clients), size)]
            parts = [case.run(inline.run, clients, when) for clients in cuts]
            _alike({name: torch.cat([part[name] for part in parts]) for name in whole}, whole, case, when)


def loop(case: Case) -> None:
    """Ask whether a shard in one call learns what its clients do one after another."""
    mixed = np.random.default_rng(0).permutation(case.clients)
    for when in case.whens:
        for batch in BATCHES if isinstance(case, SetCase) else BATCHES[:1]:
            fast, slow = (case.run(executor, mixed, when, batch) for executor in (inline.run, debug.run))
            assert fast.keys() == slow.keys(), f"{sorted(fast)} are learned at once, {sorted(slow)} one by one"
            assert_all_same(fast, slow, **case.bounds(when, batch))


def _alike(found: dict[str, Tensor], expected: dict[str, Tensor], case: Case, when: When) -> None:
    bounds = case.bounds(when)
    if not any(spec.place == "received" for spec in case.program.specs.values()):  # whose rows are sums in float32
        del bounds["inputs"]
    assert_all_same(found, expected, **bounds)


def idle(case: Case) -> str | None:
    """Ask whether a client that has nothing to learn from changes nothing."""
    if not isinstance(case, SetCase):
        return "who reads sessions has one"
    one = np.array([case.idle])
    for when in case.whens:
        private = case.begun(one)[1]
        made_anew = {name for name, spec in case.program.specs.items() if spec.reset == "round"}
        updates = inline.run(case.work(when), *case.begun(one, wide=False), one)
        assert all(bool((v == 0).all()) for v in updates.dense.values()), "it sends an update"
        assert not any(len(u.rows) for u in (*updates.rows.values(), *updates.tables.values())), "it changes item rows"
        for name, value in updates.private.items():
            assert name in made_anew or torch.equal(value.double(), private[name]), f"its '{name}' changes"
    return None


def workers(case: Case) -> None:
    """Ask whether a worker process learns what this one does."""
    from edgefr.engine.backends.processes import Workers

    try:
        backend = Workers(1)
        shared, private = case.begun(case.clients, wide=False)
        todo: LocalWork = case.work()
        (found,) = backend.updates(todo, shared, private, [case.clients])
        (expected,) = InProcess(inline.run).updates(todo, shared, private, [case.clients])
        for name, value in case.outcome(todo, expected, case.clients).items():
            assert_same(case.outcome(todo, found, case.clients)[name], value, name=name)
    finally:
        backend.close()


def padding(case: Case) -> None:
    """Raise `AssertionError` where padding changes the loss of any phase, or a gradient."""
    for when in case.whens:
        todo = case.work(when, program=case.wide)
        for phase in todo.phases:
            plain, padded = (of_set if isinstance(case, SetCase) else of_sessions)(case, todo, phase)
            size = max(float(value.abs().max()) for value in plain.values())
            assert_all_same(padded, plain, size=size)


def of_set(case: Case, todo: LocalWork, phase: Phase) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return loss and gradients of one client's batch, without padding and with it."""
    who, sampler = np.array([case.busiest]), todo.sampler
    assert isinstance(sampler, Sampler)
    drawn = sampler.epoch(who, phase.purpose, todo.round, 0, which=phase.which)
    size = drawn.batch(sampler.batch_size)
    items, label = torch.from_numpy(drawn.items[:size].astype(np.int64)), torch.from_numpy(drawn.label[:size]).double()
    batch = One(items, items, label, torch.full((len(items),), 1 / len(items)).double())
    batch = debug.paired(batch, drawn, 0) if drawn.group > 1 else batch
    shared, private = case.begun(who)
    tensors = {**shared, **private}
    every = np.arange(case.items)
    tensors |= {name: table.rows(np.full_like(every, who[0]), every).double() for name, table in todo.tables.items()}
    for name in trained(todo.program, todo.phases, "shared", "dense"):
        tensors[name] = tensors[name].unsqueeze(0)
    past = todo.context[case.busiest] if todo.program.needs_history else None
    plain, padded = (_batch(batch, past, extra) for extra in (0, PADDING))
    return slopes(todo.program, tensors, plain, phase), slopes(todo.program, tensors, padded, phase)


def _batch(batch: One, past: np.ndarray | None, extra: int) -> One:
    """Return one client's batch with `extra` entries of no weight behind, as a shard pads it."""
    history = None
    if past is not None:
        numbers, ones = torch.from_numpy(past.astype(np.int64)), torch.ones(len(past)).double()
        history = _padded(One(numbers, numbers, ones, ones), extra)
    return replace(_padded(batch, extra), history=history, training=history is not None)


def _padded(batch: One, extra: int) -> One:
    def wide(value: Tensor) -> Tensor:
        return pad(value, (0, 0) * (value.ndim - 1) + (0, extra)).unsqueeze(0)

    pairs = batch.pairs
    if pairs is not None:
        named = {n: v for n, v in vars(replace(pairs, share=pairs.share.double())).items() if v is not None}
        pairs = replace(pairs, **{name: wide(value) for name, value in named.items()})
    return One(wide(batch.items), wide(batch.items), wide(batch.label), wide(batch.weight), pairs=pairs)


def of_sessions(case: Case, todo: LocalWork, phase: Phase) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return loss and gradients of a shard's windows, as they are and with other targets in their padding."""
    program, draws = sequences.program_of(todo), sequences.draws_of(todo, case.clients)
    draw = draws[phase.purpose]
    tensors = sequences.tensors_of(program, *case.begun(case.clients), draw, todo.device)
    for name in trained(program, todo.phases, "shared", "dense"):
        tensors[name] = tensors[name].expand(len(case.clients), *program.specs[name].shape)
    batch = sequences.batch_of(draw, 0, todo.device)
    with torch.no_grad():
        batch = replace(batch, taught=program.teach(tensors, batch))
    others = _others(batch, draw.slots)
    return slopes(program, tensors, batch, phase), slopes(program, tensors, others, phase)


def _others(batch: Window, slots: np.ndarray) -> Window:
    """Return the windows with the last row of each client as every target and negative of its padding."""
    last = np.searchsorted(slots, np.arange(len(batch.items)), side="right") - 1
    own, padding = torch.from_numpy(last).unsqueeze(1), batch.label == 0
    positive = torch.where(padding, own, batch.positive)
    negative = torch.where(padding.unsqueeze(-1), own.unsqueeze(-1), batch.negative)
    target = torch.where(padding, 0, batch.target)
    return replace(batch, positive=positive, negative=negative, target=target)


def slopes(program: LocalProgram, tensors: Mapping[str, Tensor], batch: One, phase: Phase) -> dict[str, Tensor]:
    """Return the loss of a batch and the gradients of what the phase trains."""
    used = {name: tensors[name].detach() for name in phase.uses}
    leaves = {name: used[name].clone().requires_grad_() for name in phase.trains}
    loss = program.loss({**used, **leaves}, batch, phase)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    out = dict(zip((f"gradient of {name}" for name in leaves), gradients, strict=True))
    return {"loss": loss.detach().reshape(1), **out}
