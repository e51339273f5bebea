"""The plain executor: one client at a time, nothing batched. Slow on purpose: put a breakpoint in `client`.

It is the oracle of the contract tests: it shares with the vectorised executor only the draws, the optimiser maths and
the program itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from edge.replay import Replay
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.sequences import TABLE, SessionProgram, batch_of
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, trained, without_memory
from edgefr.methods.program import One, Phase, Tensors, Window


def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    """Train the clients one after another; see `edgefr.engine.work.Executor`."""
    if isinstance(work.sampler, SessionSampler):
        return sessions(work, shared, private, clients)
    ended = []
    for slot, number in enumerate(clients):
        own = {name: value[slot].to(work.device) for name, value in without_memory(private).items()}
        own |= {name: _whole(work, name, int(number)) for name in work.tables}
        replay = work.replay(shared, {n: v[slot : slot + 1] for n, v in private.items()}, clients[slot : slot + 1])
        ended.append(client(work, shared, own, int(number), replay))
    dense: dict[str, Tensor] = {}
    rows: dict[str, RowUpdates] = {}
    for name in trained(work.program, work.phases, "shared"):
        changes = [after[name] - shared[name] for after in ended]
        if work.program.specs[name].kind == "dense":
            dense[name] = torch.stack(changes)
            continue
        touched = [change.abs().sum(1).nonzero().squeeze(1) for change in changes]
        slots = [torch.full_like(items, slot) for slot, items in enumerate(touched)]
        values = [change[items] for change, items in zip(changes, touched, strict=True)]
        rows[name] = RowUpdates(torch.cat(touched), torch.cat(slots), torch.cat(values))
    kept, tables = (
        {name: [after[name] for after in ended] for name in trained(work.program, work.phases, "private", kind)}
        for kind in ("dense", "rows")
    )
    private = {name: torch.stack(values) for name, values in kept.items()}
    return Updates(dense, rows, private, tables={n: _written(work, n, clients, after) for n, after in tables.items()})


def _whole(work: LocalWork, name: str, number: int) -> Tensor:
    """A client's whole table of a `rows` tensor that is not shared."""
    items = np.arange(work.program.specs[name].shape[0])
    return work.tables[name].rows(np.full_like(items, number), items).to(work.device)


def _written(work: LocalWork, name: str, clients: Clients, after: list[Tensor]) -> RowUpdates:
    """The rows of the clients' whole tables that are others than before."""
    tables = torch.stack(after)
    before = torch.stack([_whole(work, name, int(number)) for number in clients])
    slots, items = (tables != before).any(2).nonzero().unbind(1)
    return RowUpdates(items, slots, tables[slots, items])


def client(
    work: LocalWork, shared: Tensors, private: Tensors, number: int, replay: Replay | None = None
) -> dict[str, Tensor]:
    """Everything one client does in a round: its tensors after all phases."""
    tensors = {**shared, **private}
    for phase in work.phases:
        phase = replace(phase, number=work.round)
        train_phase(work, tensors, phase, number, replay if phase.when == "round" else None)
    return tensors


def train_phase(
    work: LocalWork, tensors: dict[str, Tensor], phase: Phase, number: int, replay: Replay | None = None
) -> None:
    """One phase of one client; `tensors` is updated in place with new tensors (the broadcast is left alone)."""
    who, sampler = np.array([number]), cast(Sampler, work.sampler)
    tensors.update({name: tensors[name].clone() for name in phase.trains})
    optimiser = Optimiser(phase.optimiser, phase.lr, {name: tensors[name].shape for name in phase.trains}, phase.beta_2)
    history = _examples(work, work.context[number], None) if work.program.needs_history else None
    done = 0
    for epoch in range(phase.epochs):
        examples = sampler.epoch(who, phase.purpose, work.round, epoch)
        for start in range(0, len(examples.items), sampler.batch_size):
            stop = start + sampler.batch_size
            done += 1
            batch = _examples(work, examples.items[start:stop], examples.label[start:stop], history)
            train_step(work, tensors, phase, optimiser, _with_replay(work, batch, replay), done)


def train_step(
    work: LocalWork, tensors: dict[str, Tensor], phase: Phase, optimiser: Optimiser, batch: One, number: int
) -> None:
    """One optimiser step. Of `rows` tensors the rows of the batch are read, changed and put back."""
    touched, place = batch.items.unique(return_inverse=True)
    where = {n: touched if work.program.specs[n].kind == "rows" else slice(None) for n in phase.uses}
    leaves = {name: tensors[name][where[name]].detach().requires_grad_(name in phase.trains) for name in phase.uses}
    loss = work.program.loss(leaves, replace(batch, items=place), phase)
    gradients = torch.autograd.grad(loss, [leaves[name] for name in phase.trains])
    count = np.array(number)
    with torch.no_grad():
        for name, gradient in zip(phase.trains, gradients, strict=True):
            value = leaves[name].detach()
            optimiser.step(name, value, gradient, count, where[name])
            if work.program.specs[name].kind == "rows":
                tensors[name][touched] = value


def _examples(work: LocalWork, items: np.ndarray, label: np.ndarray | None, history: One | None = None) -> One:
    index = torch.from_numpy(np.asarray(items, np.int64)).to(work.device)
    ones = torch.ones(len(index), device=work.device)
    labels = ones if label is None else torch.from_numpy(label).to(work.device)
    return One(index, index, labels, ones / max(len(index), 1), history, training=history is not None)


def _with_replay(work: LocalWork, batch: One, replay: Replay | None) -> One:
    """The batch with the client's replayed examples after its own."""
    if replay is None:
        return batch
    items = torch.from_numpy(replay.items[0].astype(np.int64)).to(work.device)
    label, weight = (torch.from_numpy(part).to(work.device) for part in (replay.label, replay.weight))
    return replace(
        batch,
        items=torch.cat([batch.items, items]),
        catalogue=torch.cat([batch.catalogue, items]),
        label=torch.cat([batch.label, label]),
        weight=torch.cat([batch.weight, weight]),
    )


def sessions(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    """Train clients on their windows one after another, each with a whole item table of its own."""
    program, sampler = cast(SessionProgram, work.program), cast(SessionSampler, work.sampler)
    (phase,) = work.phases
    found: list[tuple[dict[str, Tensor], dict[str, Tensor], Tensor | None]] = []
    rows: list[tuple[Tensor, Tensor]] = []
    for slot, number in enumerate(clients):
        draw = sampler.draw(np.array([number]), phase.purpose, work.round, phase.epochs)
        own = {**shared, **{name: value[slot].to(work.device) for name, value in private.items()}}
        touched = torch.from_numpy(draw.touched).to(work.device)
        windows = [_alone(batch_of(draw, epoch, work.device), touched) for epoch in range(phase.epochs)]
        after, message = session(program, phase, own, windows)
        change = after[TABLE] - shared[TABLE] if TABLE in phase.trains else torch.zeros_like(shared[TABLE])
        rows.append((touched, change[touched]))
        found.append((after, program.remember(after), message))
    dense = {
        name: torch.stack([after[name] - shared[name] for after, _, _ in found])
        for name in trained(program, work.phases, "shared")
        if name != TABLE
    }
    slots = torch.cat([torch.full_like(touched, slot) for slot, (touched, _) in enumerate(rows)])
    table = RowUpdates(torch.cat([touched for touched, _ in rows]), slots, torch.cat([value for _, value in rows]))
    kept = {n: torch.stack([after[n] for after, _, _ in found]) for n in trained(program, work.phases, "private")}
    kept |= {name: torch.stack([memory[name] for _, memory, _ in found]) for name in found[0][1]}
    messages = [message for _, _, message in found if message is not None]
    changed = {TABLE: table} if TABLE in phase.trains else {}
    return Updates(dense, changed, kept, torch.stack(messages) if messages else None)


def session(
    program: SessionProgram, phase: Phase, before: Tensors, windows: list[Window]
) -> tuple[dict[str, Tensor], Tensor | None]:
    """One client's tensors after a phase, one window per epoch, and the prototype of what it has then."""
    tensors = {name: value.clone() for name, value in before.items()}
    optimiser = Optimiser(phase.optimiser, phase.lr, {n: tensors[n].shape for n in phase.trains}, phase.beta_2)
    with torch.no_grad():
        taught = program.teach(tensors, windows[0])
    for number, window in enumerate(windows):
        leaves = {name: tensors[name].detach().requires_grad_() for name in phase.trains}
        loss = program.loss({**tensors, **leaves}, replace(window, taught=taught), phase)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        with torch.no_grad():
            for name, gradient in zip(phase.trains, gradients, strict=True):
                optimiser.step(name, tensors[name], gradient, np.array(number + 1))
    with torch.no_grad():
        message = program.publish(tensors, windows[0]) if program.publishes == "trained" else None
    return tensors, message


def _alone(window: Window, touched: Tensor) -> Window:
    """The only client of a window, its items by their numbers in the catalogue: no leading dimension, no rows."""
    items, real = touched[window.items[0]], window.label[0]
    positive, negative = touched[window.positive[0]], touched[window.negative[0]]
    return Window(items, items, real, window.weight[0], times=window.times[0], positive=positive, negative=negative)
