"""The vectorised executor trains all clients of a shard in one call.

Clients' tensors are disjoint rows of bigger ones, so one backward of the summed losses gives each client its own
gradient. Clients are sorted by falling activity, so those with a batch at a step are a prefix, and a step works on
views. Item tables are never copied: a client's row is the broadcast's plus its change, and only changes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.host_transfer import there
from edge.ragged import Ragged
from edge.replay import Step
from edge.sampling import EVERYTHING, Examples, Sampler, Selection, newest
from edge.sessions import SessionSampler
from edge.steps import Ints, Steps, steps_of
from edgefr.engine.compiled import mlp_phases as layered
from edgefr.engine.device import keep_memory, tiny_as_zero
from edgefr.engine.executors import sessions as sequences
from edgefr.engine.executors.replay import Shardwise
from edgefr.engine.optimisers import Optimiser, Pulled
from edgefr.engine.tables import find
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, check_sets, trained, without_memory
from export.batches import Flat, One, Padded, Pairs, told
from export.program import Phase, Pull, Tensors, left_alone, turns

Drawn = tuple[str, Selection]
"""What phases must have in common to learn from the same draws: purpose and selection."""


@tiny_as_zero()
def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    keep_memory()
    private = work.begun(private, clients)
    if isinstance(work.sampler, SessionSampler):
        return sequences.run(work, shared, private, clients)
    check_sets(work)
    order = np.argsort(-work.sampler.train.counts[clients], kind="stable")
    back = torch.from_numpy(order)
    shard = _Shard(work, shared, {name: value.index_select(0, back) for name, value in private.items()}, clients[order])
    for phases in turns(work.phases):
        shard.train([replace(phase, number=work.round) for phase in phases])
    return shard.updates(order)


@dataclass(frozen=True)
class _Plan:
    """These are steps with entries on the device: `client` [N] is an entry's slot, `ends` [S, C] count entries."""

    steps: Steps
    items: Tensor
    label: Tensor
    weight: Tensor
    row: Tensor
    client: Tensor
    ends: Tensor

    @classmethod
    def of(cls, steps: Steps, device: torch.device) -> _Plan:
        ends = np.cumsum(steps.lengths, axis=1)
        arrays = (steps.items, steps.label, steps.weight, steps.row, steps.slots[steps.row], ends)
        return cls(steps, *(there(array, device) for array in arrays))


class _Shard:
    """These are the tensors of a shard while it trains.

    `values`: every tensor but tables, per client [C, ...] if trained or private, else whole. `change`: of each trained
    table the clients' changes [R, w], one row per touched (client, item). `own`: of each private table those rows as
    they were.
    """

    def __init__(self, work: LocalWork, shared: Tensors, private: Tensors, clients: Clients):
        self.work, self.clients, self.broadcast = work, clients, shared
        specs = work.program.specs
        self.replay, draws = work.replay(shared, private, clients), work.draws(private, clients)
        private = without_memory(private)
        self.rows = [name for name, spec in specs.items() if spec.kind == "rows"]
        shared_trained = trained(work.program, work.phases, "shared")
        self.per_client = {n for n in specs if n not in self.rows and (n in private or n in shared_trained)}
        self.values: dict[str, Tensor] = {}
        for name in self.per_client:
            value = private[name] if name in private else shared[name].expand(len(clients), *specs[name].shape)
            plain = torch.contiguous_format
            self.values[name] = value.to(work.device, non_blocking=True, copy=True, memory_format=plain)
        self.values |= {n: v for n, v in shared.items() if n not in self.values and n not in self.rows}
        self.change: dict[str, Tensor] = {}
        self.whole = self._whole() if self.rows else None
        self.redrawn: Shardwise | None = None
        if draws is not None and self.whole is not None:
            self.redrawn = Shardwise(work, draws, self.whole[0].steps)
        self.own = {name: self._own(name) for name in self.rows if specs[name].place != "shared"}
        self.history = self._history() if work.program.needs_history and work.program.window is None else None
        self.pulled: dict[str, Pulled] = {}

    def _tensor(self, array: npt.NDArray[np.generic]) -> Tensor:
        return there(array, self.work.device)

    def _plan(self, epochs: Sequence[Examples], phase: Phase) -> _Plan:
        replay = self.replay if phase.when == "round" else None
        sampler = self.work.sampler
        return _Plan.of(steps_of(epochs, sampler.batch_size, sampler.catalogue, replay), self.work.device)

    def _examples(self, drawn: Drawn, epoch: int) -> Examples:
        (purpose, which), sampler = drawn, cast(Sampler, self.work.sampler)
        if which == EVERYTHING:
            return sampler.epoch(self.clients, purpose, self.work.round, epoch)
        return sampler.epoch(self.clients, purpose, self.work.round, epoch, which=which)

    def _whole(self) -> tuple[_Plan, dict[Drawn, int]]:
        longest: dict[Drawn, int] = {}
        for phase in self.work.phases:
            longest[phase.purpose, phase.which] = max(phase.epochs, longest.get((phase.purpose, phase.which), 0))
        steps = [count * self._steps(drawn) for drawn, count in longest.items()]
        first = dict(zip(longest, np.cumsum([0, *steps]).tolist(), strict=False))
        epochs = [self._examples(drawn, epoch) for drawn, count in longest.items() for epoch in range(count)]
        return self._plan(epochs, self.work.phases[0]), first

    def _steps(self, drawn: Drawn) -> int:
        _, which = drawn
        sampler = cast(Sampler, self.work.sampler)
        return int(sampler.steps(self.clients, which).max(initial=0))

    def _own(self, name: str) -> Tensor:
        """Return each client's own rows of a table that is not shared, one per pair of all steps."""
        assert self.whole is not None
        steps = self.whole[0].steps
        return there(self.work.tables[name].rows(self.clients[steps.slots], steps.touched), self.work.device)

    def train(self, phases: Sequence[Phase]) -> None:
        """Run one phase, or some that take turns: their epochs, the epochs' steps, an optimiser each."""
        alone = self.whole is None and self.replay is None
        layers = layered.layers_of(self.work.program, phases, self.values) if alone else None
        if layers is not None:
            had = self.work.context.take(self.clients) if layers.user is None else Ragged.empty(len(self.clients))
            taken = layered.Taken(self.work.program, layers, phases[0], self.values, had)
            taken.take(layered.steps_at_once(self._examples, cast(Sampler, self.work.sampler), self.clients, phases[0]))
            return
        optimisers = [Optimiser.of(phase, self._shape) for phase in phases]
        done = np.zeros(len(self.clients), np.int64)
        for name, pull in phases[0].pulls.items():
            self.pulled[name] = self._pulled(name, pull)
        for plan, step in self._every(phases[0]):
            active = int(np.count_nonzero(plan.steps.lengths[step]))
            done[:active] += 1
            for phase, optimiser in zip(phases, optimisers, strict=True):
                self._step(phase, optimiser, plan, step, done[:active])
        for name in phases[0].pulls:
            self._pull_to_the_end(name, done)

    def _pulled(self, name: str, pull: Pull) -> Pulled:
        assert self.whole is not None
        steps = self.whole[0].steps
        start = self.broadcast[name].index_select(0, self._tensor(steps.touched))
        return Pulled.of(pull, torch.sub(self.own[pull.to], start, out=start))

    def _pull_to_the_end(self, name: str, done: Ints) -> None:
        """Move the rows of a table on through the last steps, which did not read them."""
        assert self.whole is not None
        change = self.change.get(name, self.broadcast[name].new_zeros(self._shape(name)))
        steps, pulled = self._tensor(done[self.whole[0].steps.slots]), self.pulled[name]
        self.change[name] = pulled.moved(change, steps - pulled.steps)
        pulled.ended = self._tensor(done)

    def _shape(self, name: str) -> tuple[int, ...]:
        pairs = len(self.whole[0].steps.slots) if self.whole is not None and name in self.rows else len(self.clients)
        width = self.work.program.specs[name].shape[-1]
        return (pairs, width) if name in self.rows else tuple(self.values[name].shape)

    def _every(self, phase: Phase) -> Iterator[tuple[_Plan, int]]:
        """Yield the steps of a phase. Without tables, epochs are drawn when they are needed."""
        if self.whole is None:
            for epoch in range(phase.epochs):
                plan = self._plan([self._examples((phase.purpose, phase.which), epoch)], phase)
                yield from ((plan, step) for step in range(len(plan.steps.lengths)))
            return
        plan, first = self.whole
        drawn = phase.purpose, phase.which
        start, stop = first[drawn], first[drawn] + phase.epochs * self._steps(drawn)
        yield from ((plan, step) for step in range(start, stop))

    def _step(self, phase: Phase, optimiser: Optimiser, plan: _Plan, step: int, number: Ints) -> None:
        """Take one optimiser step of the first len(number) clients; `number` [A] is each one's step count."""
        at = slice(*plan.steps.bounds[step : step + 2].tolist())
        active = slice(0, len(number))
        given = self._given(phase, plan, at, number)
        batch = self._batch(plan, step, at, len(number), given)
        before = {name: self.change[name].index_select(0, plan.row[at]) for name in phase.uses if name in self.change}
        for name in phase.pulls:
            idle = self.pulled[name].read(plan.row[at], self._tensor(number - 1).index_select(0, plan.client[at]))
            if name in before:
                self.pulled[name].moved(before[name], idle, plan.row[at])
        tensors: dict[str, Tensor] = {}
        for name in phase.uses:
            if name in self.rows:
                own = name in self.own
                table, where = (self.own[name], plan.row[at]) if own else (self.broadcast[name], plan.items[at])
                if name in before:
                    tensors[name] = batch.laid(table.index_select(0, where).add_(before[name]))
                else:
                    tensors[name] = torch.nn.functional.embedding(batch.laid(where), table)
            else:
                tensors[name] = self.values[name][active] if name in self.per_client else self.values[name]
        for name in left_alone(self.work.program.specs, phase):
            tensors[name] = self.broadcast[name].expand_as(tensors[name])
        gradients = self.work.program.gradients(tensors, batch, phase)
        with torch.no_grad():
            for name, gradient in gradients.items():
                if name in self.rows:
                    self._move(name, optimiser, before.get(name), batch.listed(gradient), plan, at, number)
                else:
                    optimiser.step(name, self.values[name][active], gradient, number, active)

    def _move(
        self,
        name: str,
        optimiser: Optimiser,
        before: Tensor | None,
        gradient: Tensor,
        plan: _Plan,
        at: slice,
        number: Ints,
    ) -> None:
        """Move the rows of a step: `before` [N, w] is their change so far, or None."""
        only = len(plan.steps.lengths) == 1  # the only step of the work: its entries are the pairs
        where = slice(None) if only else plan.row[at]
        count = number[plan.steps.slots[plan.steps.row[at]]] if optimiser.rule.moments else number
        if before is None:
            before = optimiser.change(name, gradient, count, where)
            self.change[name] = before if only else before.new_zeros(self._shape(name))
        else:
            optimiser.step(name, before, gradient, count, where)
        if not only:
            self.change[name].index_copy_(0, plan.row[at], before)
        else:
            self.change[name] = before

    def _given(self, phase: Phase, plan: _Plan, at: slice, number: Ints) -> tuple[Tensor, Tensor]:
        """Return labels and weights of a step's entries with replay of this step."""
        label, weight = plan.label[at], plan.weight[at]
        if self.redrawn is None or phase.when != "round":
            return label, weight

        def values(slots: Ints) -> dict[str, Tensor]:
            at = self._tensor(slots)
            return {name: v.index_select(0, at) if name in self.per_client else v for name, v in self.values.items()}

        tables = {name: (self.broadcast[name], self.change.get(name)) for name in self.rows if name in phase.uses}
        step = Step(self.work.place(phase), number)
        return self.redrawn.mixed(label, weight, self.redrawn.drawn(tables, values, step, self.history), plan.row[at])

    def _batch(self, plan: _Plan, step: int, at: slice, active: int, given: tuple[Tensor, Tensor]) -> Flat | Padded:
        items, (label, weight) = plan.items[at], given
        pairs = self._pairs(plan, step, active)
        if self.work.program.pointwise:
            of, ends = plan.client[at], plan.ends[step, :active]
            return Flat(items, items, label, weight, pairs=pairs, client=of, ends=ends)
        batch = self._padded(plan.steps.lengths[step, :active], items, label, weight)
        if self.history is None:
            return replace(batch, pairs=pairs)
        h = self.history
        past = One(h.items[:active], h.catalogue[:active], h.label[:active], h.weight[:active])
        return replace(batch, history=past, training=True, pairs=pairs)

    def _pairs(self, plan: _Plan, step: int, active: int) -> Pairs | None:
        """Return the pairs of a step by places in its batch, or in each client's row where rows are padded."""
        pairs = plan.steps.pairs
        if pairs is None:
            return None
        at = slice(*pairs.bounds[step : step + 2].tolist())
        lengths, owner = pairs.lengths[step, :active], np.repeat(np.arange(active), pairs.lengths[step, :active])
        first = plan.steps.bounds[step] + np.zeros(active, np.int64)
        if not self.work.program.pointwise:
            entries = plan.steps.lengths[step, :active]
            first = first + np.cumsum(entries) - entries
        found = [pairs.positive[at] - first[owner], pairs.negative[at] - first[owner][:, None], pairs.share[at]]
        if pairs.context is not None and pairs.there is not None:
            found += [pairs.context[at] - first[owner][:, None], pairs.there[at]]
        fields = [self._tensor(field) for field in found]
        if self.work.program.pointwise:
            return Pairs(*fields)
        real = self._tensor(np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None])
        return Pairs(*(_spread(field, real) for field in fields))

    def _history(self) -> One:
        own = self.work.context.take(self.clients)
        ones = self._tensor(np.ones(len(own.values), np.float32))
        return self._padded(own.counts, self._tensor(own.values.astype(np.int64)), ones, ones)

    def _padded(self, lengths: Ints, items: Tensor, label: Tensor, weight: Tensor) -> Padded:
        """Return the examples as [A, B], short clients padded with weight and label 0."""
        place = np.arange(max(int(lengths.max(initial=0)), 1))
        real = place < lengths[:, None]
        places = self._tensor(np.flatnonzero(real))

        def laid(values: Tensor) -> Tensor:
            return values.new_zeros(real.size).scatter_(0, places, values).view(real.shape)

        number = torch.arange(len(items), device=items.device)
        return Padded(laid(number), laid(items), laid(label), laid(weight), places=places)

    def updates(self, order: Ints) -> Updates:
        """Return the shard's updates in the order of the call: slot k here was client `order[k]` there."""
        back = self._tensor(np.argsort(order, kind="stable"))
        dense: dict[str, Tensor] = {}
        rows: dict[str, RowUpdates] = {}
        for name in trained(self.work.program, self.work.phases, "shared"):
            if self.whole is not None and name in self.rows:
                steps = self.whole[0].steps
                change = self.change.get(name, self.broadcast[name].new_zeros(self._shape(name)))
                rows[name] = RowUpdates(self._tensor(steps.touched), self._tensor(order[steps.slots]), change)
            else:
                dense[name] = (self.values[name] - self.broadcast[name]).index_select(0, back)
        program = self.work.program
        private = {name: self.values[name] for name in trained(program, self.work.phases, "private", "dense")}
        message = None
        if any(phase.when == "round" for phase in self.work.phases):
            with torch.no_grad():
                private |= program.remember(self.values)
                message = self._message()
        kept = {name: value.index_select(0, back) for name, value in private.items()}
        written = trained(program, self.work.phases, "private", "rows")
        tables = {name: self._written(name, order) for name in written}
        left = {name: pulled.left.index_select(0, back) for name, pulled in self.pulled.items()}
        sent = None if message is None else message.index_select(0, back)
        return Updates(dense, rows, kept, sent, tables, left)

    def _message(self) -> Tensor | None:
        """Return the clients' messages by the trained model, [C, P]."""
        program = self.work.program
        if program.publishes != "trained":
            return None
        items, there = newest(cast(Sampler, self.work.sampler).train.take(self.clients), program.window or 0)
        tables = {name: self._now(name, items) for name in self.rows if name in self.broadcast}
        place = torch.arange(items.size, device=self.work.device).view(items.shape)
        return program.publish(self.values | tables, told(place, self._tensor(items), self._tensor(there)))

    def _now(self, name: str, items: Ints) -> Tensor:
        """Return the rows that the clients now have of a shared table, for items [C, n]: [C x n, w]."""
        rows = self.broadcast[name].index_select(0, self._tensor(items.ravel()))
        if name not in self.change:
            return rows
        assert self.whole is not None
        steps, catalogue = self.whole[0].steps, self.work.sampler.catalogue
        wanted = (np.arange(len(items))[:, None] * catalogue + items).ravel()
        known = steps.slots * catalogue + steps.touched
        at, there = find(known, wanted)
        return rows + self.change[name].index_select(0, self._tensor(at)) * self._tensor(there).unsqueeze(1)

    def _written(self, name: str, order: Ints) -> RowUpdates:
        """Return the clients' own rows of a table as they are now."""
        assert self.whole is not None
        steps = self.whole[0].steps
        slots = self._tensor(order[steps.slots])
        return RowUpdates(self._tensor(steps.touched), slots, self.own[name] + self.change.get(name, 0))


def _spread(values: Tensor, real: Tensor) -> Tensor:
    mask = real.view(*real.shape, *[1] * (values.ndim - 1))
    return values.new_zeros(*real.shape, *values.shape[1:]).masked_scatter_(mask, values)
