"""A batch is padded where clients have examples of different number: what stands in padding may change nothing.

The loss and its gradients are taken twice of the same examples: of a set with and without padding, of a session with
other targets where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from edge.sampling import Sampler
from edgefr.engine.executors import debug
from edgefr.engine.executors import sessions as sequences
from edgefr.engine.work import LocalWork, trained
from edgefr.methods.testing.cases import Case, SetCase
from edgefr.methods.testing.closeness import assert_all_same
from export.batches import One, Window
from export.program import LocalProgram, Phase

PADDING = 3
"""Examples of no weight that are put behind the real ones."""


def check_padding(case: Case) -> None:
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
    return found(todo.program, tensors, plain, phase), found(todo.program, tensors, padded, phase)


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
    return found(program, tensors, batch, phase), found(program, tensors, _others(batch, draw.slots), phase)


def _others(batch: Window, slots: np.ndarray) -> Window:
    """Return the windows with the last row of each client as every target and negative of its padding."""
    last = np.searchsorted(slots, np.arange(len(batch.items)), side="right") - 1
    own, padding = torch.from_numpy(last).unsqueeze(1), batch.label == 0
    positive = torch.where(padding, own, batch.positive)
    negative = torch.where(padding.unsqueeze(-1), own.unsqueeze(-1), batch.negative)
    target = torch.where(padding, 0, batch.target)
    return replace(batch, positive=positive, negative=negative, target=target)


def found(program: LocalProgram, tensors: Mapping[str, Tensor], batch: One, phase: Phase) -> dict[str, Tensor]:
    """Return the loss of a batch and the gradients of what the phase trains."""
    used = {name: tensors[name].detach() for name in phase.uses}
    leaves = {name: used[name].clone().requires_grad_() for name in phase.trains}
    loss = program.loss({**used, **leaves}, batch, phase)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    out = dict(zip((f"gradient of {name}" for name in leaves), gradients, strict=True))
    return {"loss": loss.detach().reshape(1), **out}
