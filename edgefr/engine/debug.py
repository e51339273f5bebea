"""The plain executor: one client at a time, nothing batched. Slow on purpose: put a breakpoint in `client`.

It is the oracle of the contract tests: it shares with the vectorised executor only the draws, the optimiser maths and
the program itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from edge.replay import Replay
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, trained, without_memory
from edgefr.methods.program import One, Phase, Tensors


def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    """Train the clients one after another; see `edgefr.engine.work.Executor`."""
    ended = []
    for slot, number in enumerate(clients):
        own = {name: value[slot].to(work.device) for name, value in without_memory(private).items()}
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
    kept = {
        name: torch.stack([after[name] for after in ended]) for name in trained(work.program, work.phases, "private")
    }
    return Updates(dense, rows, kept)


def client(
    work: LocalWork, shared: Tensors, private: Tensors, number: int, replay: Replay | None = None
) -> dict[str, Tensor]:
    """Everything one client does in a round: its tensors after all phases."""
    tensors = {**shared, **private}
    for phase in work.phases:
        train_phase(work, tensors, phase, number, replay if phase.when == "round" else None)
    return tensors


def train_phase(
    work: LocalWork, tensors: dict[str, Tensor], phase: Phase, number: int, replay: Replay | None = None
) -> None:
    """One phase of one client; `tensors` is updated in place with new tensors (the broadcast is left alone)."""
    who = np.array([number])
    tensors.update({name: tensors[name].clone() for name in phase.trains})
    optimiser = Optimiser(phase.optimiser, phase.lr, {name: tensors[name].shape for name in phase.trains})
    history = _examples(work, work.context[number], None) if work.program.needs_history else None
    done = 0
    for epoch in range(phase.epochs):
        examples = work.sampler.epoch(who, phase.purpose, work.round, epoch)
        for start in range(0, len(examples.items), work.sampler.batch_size):
            stop = start + work.sampler.batch_size
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
