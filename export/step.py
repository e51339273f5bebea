"""A step graph has a layout: what it reads and writes, in which order, and of which sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from export import random_streams as purposes
from export.batches import Pairs
from export.clipping import shrink
from export.graphs import Gathered, table_widths, window_of
from export.program import LocalProgram, Phase
from export.trace import Shape, constants_of, filled
from privacy import keyed
from privacy.errors import InputError

ITEMS = 64


Values = dict[str, Tensor]


@dataclass(frozen=True)
class Sizes:
    """A step is checked with so many examples, past positives, and positives in pairs."""

    examples: int
    past: int
    pairs: int


Optimisers = Mapping[str, Callable[..., None]]
"""In place, "sgd" (parameter, gradient, lr) and "adam" (parameter, gradient, first, second, size, epsilon)."""


MOMENTS = ("first", "second")


@dataclass(frozen=True)
class Layout:
    """A layout says which tensors a phase's graph takes as what.

    `dense` are trained and flat in `theta`; `tables` the trained tables; `given` dense tensors that are only read;
    `read` all per-item tables with their width.
    """

    dense: dict[str, tuple[int, ...]]
    tables: tuple[str, ...]
    given: tuple[str, ...]
    read: dict[str, int]

    @classmethod
    def of(cls, program: LocalProgram, phase: Phase) -> Layout:
        """Return the layout of a phase; raises `InputError` for a phase that a graph cannot hold."""
        specs = program.specs
        trained = [name for name in specs if name in phase.trains]
        tables = tuple(name for name in trained if specs[name].kind == "rows")
        if tables and program.needs_history and window_of(program) is None:
            raise InputError(f"phase '{phase.name}' of {program.name} trains table '{tables[0]}' through a history")
        used = {name: width for name, width in table_widths(program).items() if name in (*phase.uses, *program.frozen)}
        used |= {name: int(key.shape[1]) for name, key in program.prepared.items()}
        given = tuple(n for n in specs if n in phase.uses and n not in trained and specs[n].kind == "dense")
        return cls({n: tuple(specs[n].shape) for n in trained if n not in tables}, tables, given, used)

    @property
    def values(self) -> int:
        """Return the length of `theta`."""
        return sum(int(np.prod(shape)) for shape in self.dense.values())

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the dense tensors in `theta`."""
        sizes = [int(np.prod(shape)) for shape in self.dense.values()]
        parts = torch.split(theta, sizes)
        return {name: part.reshape(shape) for (name, shape), part in zip(self.dense.items(), parts, strict=True)}


@dataclass(frozen=True)
class Step:
    """This is one step as a function of the graph's inputs in order. `negatives` are drawn for each positive."""

    program: LocalProgram
    phase: Phase
    optimisers: Optimisers
    layout: Layout
    keys: dict[str, Tensor] = field(default_factory=dict)
    negatives: int = 1

    @property
    def pairs(self) -> dict[str, Shape]:
        """Return the inputs that say which negatives belong to which positive."""
        if not self.phase.which.pairs:
            return {}
        out: dict[str, Shape] = {
            "pairs.positive": ("p",),
            "pairs.negative": ("p", self.negatives),
            "pairs.share": ("p",),
        }
        before = self.phase.which.context
        return out | ({"pairs.context": ("p", before), "pairs.there": ("p", before)} if before else {})

    @property
    def reads_past(self) -> bool:
        """Say whether the loss reads all past positives; a window is read to score alone."""
        return self.program.needs_history and window_of(self.program) is None

    def shapes(self) -> dict[str, Shape]:
        """Return the inputs by name, in order."""
        at, specs = self.layout, self.program.specs
        out: dict[str, Shape] = {"theta": (at.values,), "lr": (at.values,)} if at.dense else {}
        out |= {f"items.{name}": ("n", width) for name, width in at.read.items()}
        out |= {f"lr.{name}": (1,) for name in at.tables}
        out |= {"label": ("n",), "weight": ("n",)} | self.pairs
        if self.phase.moments:
            out |= {"factor": (1,), "epsilon": (1,)}
            for name in self.moving():
                out |= {f"{name}.{moment}": out[name] for moment in MOMENTS}
        if self.reads_past:
            out |= {f"history.{name}": ("h", width) for name, width in at.read.items()}
            out |= {"label.history": ("h",), "weight.history": ("h",)}
        out |= {f"{specs[name].place}.{name}": specs[name].shape for name in at.given}
        return out | {name: tuple(constant.shape) for name, constant in constants_of(self.program).items()}

    def moving(self) -> list[str]:
        """Name the inputs that a step changes."""
        return [*(["theta"] if self.layout.dense else []), *(f"items.{name}" for name in self.layout.tables)]

    def outputs(self) -> list[str]:
        """Name the outputs, in order."""
        moments = MOMENTS if self.phase.moments else ()
        return ["loss", *(f"{n}.next" for name in self.moving() for n in (name, *(f"{name}.{m}" for m in moments)))]

    def loss(self, moving: tuple[Tensor, ...], given: Mapping[str, Tensor]) -> Tensor:
        """Return the client's loss with `moving` in place of the inputs of those names."""
        now = dict(given) | dict(zip(self.moving(), moving, strict=True))
        specs, at = self.program.specs, self.layout
        keys = {n: self.keys[n] for n in at.read if n in specs}
        tensors = {n: now[f"{specs[n].place}.{n}"] for n in at.given} | keys
        tensors |= {name: now[name] for name in constants_of(self.program)}
        if at.dense:
            tensors |= at.split(now["theta"])
        past = None
        if self.reads_past:
            tables = [(self.keys[n], now[f"history.{n}"]) for n in at.read]
            past = Gathered(tables, now["label.history"], now["weight.history"])
        tables = [(self.keys[n], now[f"items.{n}"]) for n in at.read]
        pairs = Pairs(*(now[name] for name in self.pairs)) if self.pairs else None
        batch = Gathered(tables, now["label"], now["weight"], past, training=past is not None, pairs=pairs)
        return self.program.loss(tensors, batch, self.phase)

    def gradients(self, moving: tuple[Tensor, ...], given: Mapping[str, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the gradients of the loss for `moving`, and the loss."""
        found: tuple[tuple[Tensor, ...], Tensor] = torch.func.grad_and_value(self.loss)(moving, given)
        return found

    def examples(self, client: Mapping[str, Tensor], number: int, sizes: Sizes) -> tuple[Tensor, Values]:
        """Draw what a client that has these tables learns from in step `number` of a step check.

        These are so many items, and all inputs that say what is to be learned of them, with so many past positives.
        """
        size, past, key = sizes.examples, sizes.past, keyed.key(0, purposes.REHEARSAL, number)
        keys = keyed.fold(key, np.arange(2))
        items, history = (
            torch.from_numpy(keyed.choose(int(key), np.arange(ITEMS), count))
            for key, count in zip(keys, (size, past), strict=True)
        )
        label = torch.from_numpy(keyed.uniform(keys[0], items.numpy())).float().round(decimals=1)
        out = {f"history.{n}": client[f"items.{n}"][history] for n in self.layout.read}
        out |= {"label": label, "weight": torch.full((size,), 1 / size)}
        for place, (name, shape) in enumerate(self.pairs.items(), 2):
            wide = filled(shape, {"p": sizes.pairs})
            drawn = keyed.integers(keyed.fold(key, place), np.arange(int(np.prod(wide))), size)
            out[name] = torch.from_numpy(drawn.astype(np.int64)).reshape(wide)
        out |= {"pairs.share": torch.full((sizes.pairs,), 1 / sizes.pairs)} if self.pairs else {}
        out |= {"pairs.there": (out["pairs.there"] % 3 > 0).float()} if "pairs.there" in self.pairs else {}
        return items, out | {"label.history": torch.ones(past), "weight.history": torch.ones(past) / past}

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(self.shapes(), inputs, strict=True))
        moving = tuple(given[name] for name in self.moving())
        gradients, loss = self.gradients(moving, given)
        if self.phase.clip is not None:
            square = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
            gradients = tuple(gradient * shrink(square, self.phase.clip) for gradient in gradients)
        out = [loss.reshape(1)]
        for name, value, gradient in zip(self.moving(), moving, gradients, strict=True):
            after = value.clone()
            lr = given["lr" + name.removeprefix("theta").removeprefix("items")]
            if not self.phase.moments:
                self.optimisers[self.phase.optimiser](after, gradient, lr)
                out.append(after)
                continue
            first, second = (given[f"{name}.{moment}"].clone() for moment in MOMENTS)
            size, beta_2 = lr * given["factor"], self.phase.beta_2
            self.optimisers[self.phase.optimiser](after, gradient, first, second, size, given["epsilon"], beta_2)
            out += [after, first, second]
        return tuple(out)
