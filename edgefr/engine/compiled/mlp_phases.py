"""Phases that train layers and nothing else are taken in one compiled call; here it is decided which these are.

layers that the program declares, one kind of examples, no replay, on the host   →  `kernel_layers`
everything else   →  `edgefr.engine.executors.inline`, step by step
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from edge.optimiser import corrections
from edge.ragged import Ragged
from edge.sampling import EVERYTHING, Examples, Sampler, Selection
from edge.steps import Steps, steps_of
from edgefr.engine.compiled import kernel_arrays as arrays
from edgefr.engine.optimisers import RULES, adam, sgd
from edgefr.engine.work import Clients
from export.batches import One
from export.program import Layers, LocalProgram, Phase, Tensors

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


LOSSES = {
    "bce": EVERYTHING,
    "probabilities": EVERYTHING,
    "bpr": Selection(pairs=True),
    "softmax": Selection(pairs=True),
    "bce-of-pairs": Selection(pairs=True),
}

AT_ONCE = 2**20
"""So many examples are drawn at once, of several epochs."""

COMPUTES = ("vectors", "user", "score", "loss", "gradients", "remember", "publish")
"""What a form speaks for: whoever computes one of these in another way has another form, or none."""


def layers_of(program: LocalProgram, phases: Sequence[Phase], values: Tensors) -> Layers | None:
    """Return the layers that these alternating phases train in one compiled call; None where they do not."""
    said = "layers_of" in vars(type(program)) and not any(name in vars(program) for name in COMPUTES)
    if len(phases) != 1 or not said:
        return None
    (phase,) = phases
    layers = program.layers_of(phase)
    if layers is None or layers.loss not in LOSSES or phase.which != LOSSES[layers.loss]:
        return None
    if phase.pulls or phase.accumulates or RULES[phase.optimiser].step not in (adam, sgd):
        return None
    known = {*tensors_of(program, layers), layers.user}
    read = [*(values[name] for name in phase.uses), *program.frozen.values()]
    plain = all(value.dtype == torch.float32 and value.device.type == "cpu" for value in read)
    trains = set(phase.trains)
    return layers if plain and trains <= known and trains >= known - {layers.user} else None


def tensors_of(program: LocalProgram, layers: Layers) -> list[str]:
    """Name the tensors of layers in their order."""
    return [name for name in program.specs if name.startswith(f"{layers.name}.")]


@dataclass
class Taken:
    """This is a phase of a shard's clients: tensors in rows of `own` [C, P], Adam's `moments`, steps `done` [C]."""

    program: LocalProgram
    layers: Layers
    phase: Phase
    values: dict[str, Tensor]
    had: Ragged

    def __post_init__(self) -> None:
        layers, trains = tensors_of(self.program, self.layers), self.phase.trains
        self.names = [*layers, *(name for name in trains if name == self.layers.user)]
        self.own = torch.cat([self.values[name].flatten(1) for name in self.names], dim=1).numpy()
        moments = np.zeros((2, *self.own.shape), np.float32) if RULES[self.phase.optimiser].moments else None
        self.moments = (self.own[:0], self.own[:0]) if moments is None else (moments[0], moments[1])
        self.done = np.zeros(len(self.own), np.int64)

    def take(self, plans: Iterable[Steps]) -> None:
        """Take the steps of the phase, and leave in `values` what the clients have then."""
        from edgefr.engine.compiled.kernel_layers import train_layers

        widths = [self.program.specs[f"{name}"].shape for name in self.names if name.endswith(".weight")]
        every = np.array([widths[0][0], *(shape[1] for shape in widths)])
        moments = self.moments if len(self.moments[0]) else (np.zeros_like(self.own[:, :0]),) * 2
        kind, temperature = list(LOSSES).index(self.layers.loss), np.float32(self.layers.temperature)
        loss = arrays.Loss(kind, temperature, self.layers.user is None, self.layers.residual)
        for steps in plans:
            laid, number = _laid(steps, pairs=LOSSES[self.layers.loss].pairs), int(self.done.max(initial=0))
            tables, items = self._tables(laid.items)
            laid = laid._replace(items=items)
            room = self._room(every, laid, tables)
            optimiser = self._optimiser(number + len(laid.first))
            with one_thread().limit(limits=1, user_api="blas"):
                train_layers(tables, laid, every, loss, optimiser, self.own, *moments, room)
        parts = torch.from_numpy(self.own).split([self.values[name][0].numel() for name in self.names], dim=1)
        for name, part in zip(self.names, parts, strict=True):
            self.values[name] = part.reshape(self.values[name].shape).contiguous()

    def _tables(self, items: Any) -> tuple[arrays.Tables, Any]:
        """Return what layers read, and the places there of these items."""
        had, user = self.had.values.astype(np.int64), self.layers.user
        fixed = user is not None and user not in self.phase.trains
        users = self.values[user].numpy() if user is not None and fixed else np.zeros((len(self.own), 0), np.float32)
        if self.layers.reads is not None:
            rows = self.program.frozen[self.layers.reads].contiguous().numpy()
        else:
            numbers = np.unique(np.concatenate([items, had]))
            items, had = np.searchsorted(numbers, items), np.searchsorted(numbers, had)
            number = torch.from_numpy(numbers)
            ones = torch.ones(len(numbers))
            with torch.no_grad():
                rows = self.program.vectors(self.values, One(number, number, ones, ones)).contiguous().numpy()
        return arrays.Tables(rows, had, self.had.offsets, users), items

    def _room(self, widths: Any, steps: arrays.Steps, tables: arrays.Tables) -> arrays.LayersRoom:
        entries = int(steps.count.max(initial=0))
        most = entries + int(np.diff(tables.had_ends).max(initial=0))
        slots = max(entries, int(steps.pairs.max(initial=0)) * steps.groups.shape[1])
        x, by_x = np.empty((2, most * int(widths.sum())), np.float32)
        score, raw, weight, target = np.empty((4, slots), np.float32)
        by_own, by_u = np.empty(self.own.shape[1], np.float32), np.empty(widths[-1], np.float32)
        (item, row), pair = np.empty((2, entries), np.int64), np.empty(slots, np.uint32)
        seen = np.zeros(len(tables.rows), np.int64)
        return arrays.LayersRoom(
            most, x, by_x, by_own, by_u, item, row, seen, score, raw, weight, target, pair, self.done
        )

    def _optimiser(self, steps: int) -> arrays.Optimiser:
        sizes, epsilons = corrections(np.arange(1, steps + 1), self.phase.beta_2)
        ends = np.cumsum([self.values[name][0].numel() for name in self.names])
        rates = np.array([self.phase.lr[name] for name in self.names])
        moments = RULES[self.phase.optimiser].moments
        return arrays.Optimiser(ends, rates, moments, np.float32(self.phase.beta_2), sizes, epsilons)


def _laid(steps: Steps, pairs: bool) -> arrays.Steps:
    """Return steps with each client's entries by place."""
    first = steps.bounds[:-1, None] + np.cumsum(steps.lengths, axis=1) - steps.lengths
    none = np.zeros_like(steps.lengths)
    groups, first_pair, count = np.zeros((0, 1), np.int64), none, none
    if steps.pairs is not None and pairs:
        each = steps.pairs
        groups = np.concatenate([each.positive[:, None], each.negative], axis=1)
        first_pair, count = each.bounds[:-1, None] + np.cumsum(each.lengths, axis=1) - each.lengths, each.lengths
    return arrays.Steps(
        steps.items, steps.weight, steps.weight * steps.label, first, steps.lengths, groups, first_pair, count
    )


def steps_at_once(
    examples: Callable[[tuple[str, Selection], int], Examples], sampler: Sampler, clients: Clients, phase: Phase
) -> Iterator[Steps]:
    """Yield the steps of a phase, as many epochs at once as have `AT_ONCE` examples; draws are by epoch."""
    several = max(1, AT_ONCE // max(1, int(sampler.examples(clients, phase.which).sum())))
    for start in range(0, phase.epochs, several):
        some = range(start, min(start + several, phase.epochs))
        epochs = [examples((phase.purpose, phase.which), epoch) for epoch in some]
        yield steps_of(epochs, sampler.batch_size, sampler.catalogue)


@functools.cache
def one_thread() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401  (it is what they are compiled to, and has to be there to be found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
