"""The vectorised executor: all clients of a shard in one call.

Clients' tensors are disjoint rows of bigger ones, so one backward of the summed losses gives each client its own
gradient. Clients are taken in order of falling activity: those that still have a batch at a step are then a prefix,
and a step works on views of that prefix. Of item tables only the rows a client touches are copied.

Owns: layouts and the step loop. Does not own: draws, optimiser maths, aggregation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.engine.optimisers import Optimiser
from edgefr.engine.steps import Step, distinct, joined, steps_of
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, trained, without_memory
from edgefr.methods.program import Flat, One, Phase, Tensors

Ints = npt.NDArray[np.int64]


def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    """Train a shard of clients; see `edgefr.engine.work.Executor`."""
    order = np.argsort(-work.sampler.train.counts[clients], kind="stable")
    back = torch.from_numpy(order)
    shard = _Shard(work, shared, {name: value[back] for name, value in private.items()}, clients[order])
    for phase in work.phases:
        shard.train(phase)
    return shard.updates(order)


class _Shard:
    """The tensors of a shard while it trains.

    `values` holds every tensor: per client [C, ...] if trained or private, whole if only read, and of `rows` tensors
    the touched rows [R, w] of all clients (`touched` = slot * catalogue + item, sorted).
    """

    def __init__(self, work: LocalWork, shared: Tensors, private: Tensors, clients: Clients):
        self.work, self.clients, self.broadcast = work, clients, shared
        self.catalogue = work.sampler.catalogue
        specs = work.program.specs
        self.rows = [name for name, spec in specs.items() if spec.kind == "rows"]
        self.replay = work.replay(shared, private, clients)
        private = without_memory(private)
        self.drawn = self._drawn() if self.rows else {}
        self.touched, self.once = self._touched()
        shared_trained = trained(work.program, work.phases, "shared")
        self.per_client = {n for n in specs if n not in self.rows and (n in private or n in shared_trained)}
        self.values: dict[str, Tensor] = {}
        for name in self.rows:
            self.values[name] = shared[name].index_select(0, self._tensor(self.touched % self.catalogue))
        for name in self.per_client:
            value = private[name] if name in private else shared[name].expand(len(clients), *specs[name].shape)
            self.values[name] = value.to(work.device, copy=True, memory_format=torch.contiguous_format)
        self.values |= {n: v for n, v in shared.items() if n not in self.values}
        self.history = self._history() if work.program.needs_history else None

    def _tensor(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self.work.device)

    def _drawn(self) -> dict[str, list[list[Step]]]:
        """Steps of all epochs by purpose; phases of one purpose share them."""
        longest: dict[str, Phase] = {}
        for phase in sorted(self.work.phases, key=lambda phase: phase.epochs):
            longest[phase.purpose] = phase
        return {name: [self._steps(p, e) for e in range(p.epochs)] for name, p in longest.items()}

    def _steps(self, phase: Phase, epoch: int) -> list[Step]:
        examples = self.work.sampler.epoch(self.clients, phase.purpose, self.work.round, epoch)
        steps = steps_of(examples, self.work.sampler.batch_size, self.catalogue)
        if self.replay is None or phase.when != "round":
            return steps
        return [joined(step, self.replay, self.catalogue) for step in steps]

    def _touched(self) -> tuple[Ints, bool]:
        """Codes of all rows the shard reads, and whether they are read in one single step (then in that very order)."""
        every = [step for epochs in self.drawn.values() for steps in epochs for step in steps]
        codes = [step.slot * self.catalogue + step.items for step in every]
        if len(codes) == 1:
            return codes[0], True
        cells = len(self.clients) * self.catalogue
        return (distinct(np.concatenate(codes), cells)[0] if codes else np.empty(0, np.int64)), False

    def _history(self) -> One:
        own = self.work.context.take(self.clients)
        ends, label = own.offsets[1:], np.ones(len(own.values), np.float32)
        return self._padded(Step(own.rows, own.values.astype(np.int64), label, label, ends))

    def _padded(self, step: Step) -> One:
        """Examples as [A, B], short clients padded with weight and label 0."""
        lengths = np.diff(step.ends, prepend=0)
        width = max(int(lengths.max(initial=0)), 1)
        cell = step.slot * width + np.arange(len(step.slot)) - (step.ends - lengths)[step.slot]

        def spread(values: npt.NDArray[np.generic]) -> Tensor:
            out = np.zeros(len(lengths) * width, values.dtype)
            out[cell] = values
            return self._tensor(out.reshape(len(lengths), width))

        return One(spread(np.arange(len(cell))), spread(step.items), spread(step.label), spread(step.weight))

    def _batch(self, step: Step) -> One:
        if self.work.program.pointwise:
            label, weight, items = (
                self._tensor(step.label),
                self._tensor(step.weight),
                self._tensor(step.items),
            )
            return Flat(items, items, label, weight, client=self._tensor(step.slot), ends=self._tensor(step.ends))
        batch = self._padded(step)
        if self.history is None:
            return batch
        active = len(step.ends)
        past = One(*(getattr(self.history, name)[:active] for name in ("items", "catalogue", "label", "weight")))
        return One(batch.items, batch.catalogue, batch.label, batch.weight, past, training=True)

    def train(self, phase: Phase) -> None:
        """Run one phase: its epochs, their steps, one optimiser."""
        optimiser = Optimiser(phase.optimiser, dict(phase.lr), {n: self.values[n] for n in phase.trains})
        done = np.zeros(len(self.clients), np.float64)
        for step in self._every(phase):
            done[: len(step.ends)] += 1
            self._step(phase, optimiser, step, done[: len(step.ends)])

    def _every(self, phase: Phase) -> Iterator[Step]:
        for epoch in range(phase.epochs):
            yield from self.drawn[phase.purpose][epoch] if self.rows else self._steps(phase, epoch)

    def _step(self, phase: Phase, optimiser: Optimiser, step: Step, number: npt.NDArray[np.float64]) -> None:
        """One optimiser step of the first len(number) clients; `number` [A] is each one's step count."""
        batch = self._batch(step)
        at: Tensor | slice = slice(0, len(step.slot))
        if self.rows and not self.once:
            at = self._tensor(np.searchsorted(self.touched, step.slot * self.catalogue + step.items))
        tensors: dict[str, Tensor] = {}
        for name in phase.uses:
            value = self.values[name]
            if name in self.rows:
                value = value.index_select(0, at) if isinstance(at, Tensor) else value[at]
            elif name in self.per_client:
                value = value[: len(number)]
            tensors[name] = value.detach()
        leaves = [tensors[name].requires_grad_() for name in phase.trains]
        gradients = torch.autograd.grad(self.work.program.loss(tensors, batch, phase), leaves)
        with torch.no_grad():
            for name, gradient in zip(phase.trains, gradients, strict=True):
                where, count = (at, number[step.slot]) if name in self.rows else (slice(0, len(number)), number)
                value = tensors[name].detach()
                optimiser.step(name, value, gradient, self._tensor(count), where)
                if isinstance(where, Tensor):
                    self.values[name].index_copy_(0, where, value)

    def updates(self, order: Ints) -> Updates:
        """The shard's updates in the order the clients were asked for: slot k here was client `order[k]` there."""
        back = self._tensor(np.argsort(order, kind="stable"))
        dense: dict[str, Tensor] = {}
        rows: dict[str, RowUpdates] = {}
        for name in trained(self.work.program, self.work.phases, "shared"):
            if name in self.rows:
                slot, item = np.divmod(self.touched, self.catalogue)
                items = self._tensor(item)
                change = self.values[name] - self.broadcast[name].index_select(0, items)
                rows[name] = RowUpdates(items, self._tensor(order[slot]), change)
            else:
                dense[name] = (self.values[name] - self.broadcast[name])[back]
        private = trained(self.work.program, self.work.phases, "private")
        return Updates(dense, rows, {name: self.values[name][back] for name in private})
