"""The plain executor takes one client at a time, nothing batched. Slow on purpose: put a breakpoint in `client`.

It is the oracle of the contract tests: it shares with the vectorised executor only the draws, the optimiser maths and
the program itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from edge.replay import Replay
from edge.sampling import Examples, Sampler, newest
from edge.sessions import Draw, SessionSampler
from edgefr.engine.executors.replay import Alone
from edgefr.engine.executors.sessions import closing, draws_of, lesson, message_of, program_of
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, check_sets, trained, without_memory
from export.batches import One, Pairs, Window, shrink, told
from export.program import Phase, SessionProgram, Tensors, left_alone, turns


def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    private = work.begun(private, clients)
    if isinstance(work.sampler, SessionSampler):
        return sessions(work, shared, private, clients)
    check_sets(work)
    ended = []
    for slot, number in enumerate(clients):
        own = {name: value[slot].to(work.device) for name, value in without_memory(private).items()}
        own |= {name: _whole(work, name, int(number)) for name in work.tables}
        alone, who = {n: v[slot : slot + 1] for n, v in private.items()}, clients[slot : slot + 1]
        replay = Alone(work.replay(shared, alone, who), work.draws(alone, who))
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
    written = {name: _written(work, name, clients, after) for name, after in tables.items()}
    left = {name: torch.ones(len(clients)) for phase in work.phases for name in phase.pulls}  # all rows are named
    if not any(phase.when == "round" for phase in work.phases):
        return Updates(dense, rows, private, tables=written, left=left)
    memories = [work.program.remember(after) for after in ended]
    private |= {name: torch.stack([memory[name] for memory in memories]) for name in memories[0]}
    return Updates(dense, rows, private, _messages(work, ended, clients), written, left)


def _messages(work: LocalWork, ended: Sequence[Tensors], clients: Clients) -> Tensor | None:
    if work.program.publishes != "trained":
        return None
    items, there = newest(work.sampler.train.take(clients), work.program.window or 0)
    found = []
    for slot, after in enumerate(ended):
        own = torch.from_numpy(items[slot]).to(work.device)
        message = work.program.publish(after, told(own, own, torch.from_numpy(there[slot]).to(work.device)))
        assert message is not None
        found.append(message)
    return torch.stack(found)


def _whole(work: LocalWork, name: str, number: int) -> Tensor:
    items = np.arange(work.program.specs[name].shape[0])
    return work.tables[name].rows(np.full_like(items, number), items).to(work.device)


def _written(work: LocalWork, name: str, clients: Clients, after: list[Tensor]) -> RowUpdates:
    tables = torch.stack(after)
    before = torch.stack([_whole(work, name, int(number)) for number in clients])
    slots, items = (tables != before).any(2).nonzero().unbind(1)
    return RowUpdates(items, slots, tables[slots, items])


def client(
    work: LocalWork, shared: Tensors, private: Tensors, number: int, replay: Alone | None = None
) -> dict[str, Tensor]:
    """Return one client's tensors after all phases of a round."""
    tensors = {**shared, **private}
    for phases in turns(work.phases):
        phases = [replace(phase, number=work.round) for phase in phases]
        train_phases(work, shared, tensors, phases, number, replay if phases[0].when == "round" else None)
    return tensors


def train_phases(
    work: LocalWork,
    shared: Tensors,
    tensors: dict[str, Tensor],
    phases: Sequence[Phase],
    number: int,
    replay: Alone | None = None,
) -> None:
    """Train one phase of one client, or some that alternate by step; `tensors` is updated in place."""
    who, sampler, first = np.array([number]), cast(Sampler, work.sampler), phases[0]
    tensors.update({name: tensors[name].clone() for phase in phases for name in phase.trains})
    optimisers = [Optimiser.of(phase, lambda name: tensors[name].shape) for phase in phases]
    reads = work.program.needs_history and work.program.window is None
    history = _examples(work, work.context[number], None) if reads else None
    done = 0
    for epoch in range(first.epochs):
        examples = sampler.epoch(who, first.purpose, work.round, epoch, which=first.which)
        size = examples.batch(sampler.batch_size)
        for start in range(0, len(examples.items), size):
            stop = start + size
            done += 1
            batch = _examples(work, examples.items[start:stop], examples.label[start:stop], history)
            if first.which.summed:
                batch = replace(batch, weight=torch.ones_like(batch.weight))
            if first.which.pairs:
                batch = paired(batch, examples, start // examples.group)
            for phase, optimiser in zip(phases, optimisers, strict=True):
                again = None if replay is None else replay.at(work, tensors, phase, done, history)
                received = {name: shared[name] for name in left_alone(work.program.specs, phase)}
                train_step(work, tensors, phase, optimiser, _with_replay(work, batch, again), done, received)


def paired(batch: One, examples: Examples, first: int) -> One:
    """Return a batch whose groups are positives with their negatives; items of a context come last, with weight 0."""
    device = batch.items.device
    places = torch.arange(len(batch.items), device=device).view(-1, examples.group)
    share = torch.full((len(places),), 1 / len(places), device=device)
    pairs = Pairs(places[:, 0], places[:, 1:], share)
    if examples.context is None:
        return replace(batch, pairs=pairs)
    read = torch.from_numpy(examples.context[first : first + len(places)].astype(np.int64)).to(device)
    there = read >= 0
    found = len(batch.items) + torch.arange(read.numel(), device=device).view(read.shape)
    items = torch.cat([batch.items, read.where(there, batch.items[places[:, :1]]).flatten()])
    none = batch.weight.new_zeros(read.numel())
    return replace(
        batch,
        items=items,
        catalogue=items,
        label=torch.cat([batch.label, none]),
        weight=torch.cat([batch.weight, none]),
        pairs=replace(pairs, context=found, there=there.float()),
    )


def train_step(
    work: LocalWork,
    tensors: dict[str, Tensor],
    phase: Phase,
    optimiser: Optimiser,
    batch: One,
    number: int,
    received: Tensors,
) -> None:
    """Take one optimiser step; of `rows` tensors the batch's rows alone. `received`: as the client received them."""
    touched, place = batch.items.unique(return_inverse=True)
    where = {n: touched if work.program.specs[n].kind == "rows" else slice(None) for n in phase.uses}
    read = {**tensors, **received}
    leaves = {name: read[name][where[name]].detach().requires_grad_(name in phase.trains) for name in phase.uses}
    loss = work.program.loss(leaves, replace(batch, items=place), phase)
    gradients = torch.autograd.grad(loss, [leaves[name] for name in phase.trains])
    count = np.array(number)
    with torch.no_grad():
        for name, gradient in zip(phase.trains, gradients, strict=True):
            value = leaves[name].detach() if name not in received else tensors[name]
            optimiser.step(name, value, gradient, count, where[name])
            if work.program.specs[name].kind == "rows":
                tensors[name][touched] = value
        for name, pull in phase.pulls.items():
            others = torch.ones(len(tensors[name]), dtype=torch.bool, device=work.device)
            others[touched] = False
            tensors[name][others] += pull.rate * (tensors[pull.to] - tensors[name])[others]


def _examples(work: LocalWork, items: np.ndarray, label: np.ndarray | None, history: One | None = None) -> One:
    index = torch.from_numpy(np.asarray(items, np.int64)).to(work.device)
    ones = torch.ones(len(index), device=work.device)
    labels = ones if label is None else torch.from_numpy(label).to(work.device)
    return One(index, index, labels, ones / max(len(index), 1), history, training=history is not None)


def _with_replay(work: LocalWork, batch: One, replay: Replay | None) -> One:
    if replay is None:
        return batch
    items = torch.from_numpy(replay.items[0].astype(np.int64)).to(work.device)
    label, weight = (torch.from_numpy(part).to(batch.weight) for part in (replay.label, replay.weight))
    return replace(
        batch,
        items=torch.cat([batch.items, items]),
        catalogue=torch.cat([batch.catalogue, items]),
        label=torch.cat([batch.label, label]),
        weight=torch.cat([batch.weight, weight]),
    )


def sessions(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    """Train clients on their windows one after another, each with whole tables of its own."""
    program = program_of(work)
    tables = [name for name in trained(program, work.phases, "shared", "rows")]
    found: list[tuple[dict[str, Tensor], dict[str, Tensor], Tensor | None]] = []
    rows: dict[str, list[Tensor]] = {name: [] for name in tables}
    dense: dict[str, list[Tensor]] = {}
    items: list[Tensor] = []
    for slot, number in enumerate(clients):
        alone = np.array([number])
        draws = draws_of(work, alone)
        draw = next(iter(draws.values()))
        touched = torch.from_numpy(draw.touched).to(work.device)
        own = {**shared, **{name: value[slot].to(work.device) for name, value in private.items()}}
        own |= _begun(work, own, alone, draw)
        windows = {
            purpose: [_alone(lesson(work, draw, epoch, alone), touched) for epoch in range(len(draw.negatives))]
            for purpose, draw in draws.items()
        }
        sent, asked = closing(work, draw, alone)
        last = _alone(sent, touched), None if asked is None else _alone(asked, touched)
        after, message = session(program, work.phases, own, windows, work.round, last)
        for name in tables:
            rows[name].append((after[name] - own[name])[touched])
        items.append(touched)
        for name in trained(program, work.phases, "shared", "dense"):
            dense.setdefault(name, []).append(after[name] - own[name])
        memory = {name: after[name] for name in program.notices} | program.remember(after)
        found.append((after, memory, message))
    slots = torch.cat([torch.full_like(touched, slot) for slot, touched in enumerate(items)])
    changed = {name: RowUpdates(torch.cat(items), slots, torch.cat(values)) for name, values in rows.items()}
    kept = {n: torch.stack([after[n] for after, _, _ in found]) for n in trained(program, work.phases, "private")}
    kept |= {name: torch.stack([memory[name] for _, memory, _ in found]) for name in found[0][1]}
    messages = [message for _, _, message in found if message is not None]
    moved = {name: torch.stack(values) for name, values in dense.items()}
    return Updates(moved, changed, kept, torch.stack(messages) if messages else None)


def _begun(work: LocalWork, own: dict[str, Tensor], client: Clients, draw: Draw) -> dict[str, Tensor]:
    program = cast(SessionProgram, work.program)
    if not program.begins_alone or work.round > 1:
        return {}
    out = {}
    for name, value in program.begins(work.sampler.seed, client, draw.slots, draw.touched).items():
        out[name] = own[name].clone() if program.specs[name].kind == "rows" else value[0].to(own[name])
        if program.specs[name].kind == "rows":
            out[name][torch.from_numpy(draw.touched)] = value.to(own[name])
    return out


def session(
    program: SessionProgram,
    phases: Sequence[Phase],
    before: Tensors,
    windows: Mapping[str, Sequence[Window]],
    number: int = 0,
    last: tuple[Window, Window | None] | None = None,
) -> tuple[dict[str, Tensor], Tensor | None]:
    tensors = {name: value.clone() for name, value in before.items()}
    first = windows[phases[0].purpose][0]
    with torch.no_grad():
        taught = program.teach(tensors, replace(first, kept={}))
    for together in turns(phases):
        together = [replace(phase, number=number) for phase in together]
        optimisers = [Optimiser.of(phase, lambda name: tensors[name].shape) for phase in together]
        for epoch in range(together[0].epochs):
            window = replace(windows[together[0].purpose][epoch], taught=taught)
            for phase, optimiser in zip(together, optimisers, strict=True):
                _window_step(program, phase, optimiser, tensors, window, epoch + 1)
    with torch.no_grad():
        message = message_of(program, tensors, *(last or (first, None)))
    return tensors, message


def _window_step(
    program: SessionProgram, phase: Phase, optimiser: Optimiser, tensors: dict[str, Tensor], window: Window, number: int
) -> None:
    leaves = {name: tensors[name].detach().requires_grad_() for name in phase.trains}
    loss, left = program.learned({**tensors, **leaves}, window, phase)
    tensors.update(left)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    if phase.clip is not None:
        square = sum(gradient.square().sum() for gradient in gradients)
        gradients = tuple(gradient * shrink(cast(Tensor, square), phase.clip) for gradient in gradients)
    with torch.no_grad():
        for name, gradient in zip(phase.trains, gradients, strict=True):
            optimiser.step(name, tensors[name], gradient, np.array(number))


def _alone(window: Window, touched: Tensor) -> Window:
    """Return the only client of a window, its items by their numbers in the catalogue: no client dimension, no rows."""
    items, real = touched[window.items[0]], window.label[0]
    kept = {site: values[0] for site, values in window.kept.items()}
    if not window.positive.numel():  # nothing but asked about
        return Window(items, items, real, real, times=window.times[0], kept=kept)
    positive, negative = touched[window.positive[0]], touched[window.negative[0]]
    return Window(
        items,
        items,
        real,
        window.weight[0],
        times=window.times[0],
        positive=positive,
        negative=negative,
        target=positive,
        kept=kept,
    )
