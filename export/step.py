"""A step graph has a layout: what it reads and writes, in which order, and of which sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from export import random_streams as purposes
from export.batches import Pairs, shrink
from export.graphs import Gathered, keys_of_rows, table_widths
from export.program import LocalProgram, Phase
from export.trace import Shape, filled
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
class Step:
    """This is one step as a function of the graph's inputs in order. `negatives` are drawn for each positive.

    Raises `InputError` for a phase that a graph cannot hold.
    """

    program: LocalProgram
    phase: Phase
    optimisers: Optimisers
    negatives: int = 1

    def __post_init__(self) -> None:
        if self.tables and self.reads_past:
            what = f"phase '{self.phase.name}' of {self.program.name}"
            raise InputError(f"{what} trains table '{self.tables[0]}' through a history")

    def _trained(self, kind: str) -> list[str]:
        return [n for n, spec in self.program.specs.items() if n in self.phase.trains and spec.kind == kind]

    @cached_property
    def dense(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the trained dense tensors, which are flat in `theta`."""
        return {name: tuple(self.program.specs[name].shape) for name in self._trained("dense")}

    @cached_property
    def tables(self) -> list[str]:
        """Name the trained tables."""
        return self._trained("rows")

    @cached_property
    def given(self) -> dict[str, Shape]:
        """Return the inputs that dense tensors are which the loss reads and the phase leaves alone."""
        specs, phase = self.program.specs, self.phase
        names = [n for n in specs if n in phase.uses and n not in phase.trains and specs[n].kind == "dense"]
        return {f"{specs[name].place}.{name}": specs[name].shape for name in names}

    @cached_property
    def read(self) -> dict[str, int]:
        """Return all per-item tables that the loss reads with their width."""
        program, used = self.program, (*self.phase.uses, *self.program.frozen)
        widths = {name: width for name, width in table_widths(program).items() if name in used}
        return widths | {name: int(key.shape[1]) for name, key in program.prepared.items()}

    @cached_property
    def keys(self) -> dict[str, Tensor]:
        """Return every per-item table that the loss may ask its batch for, by name."""
        return keys_of_rows(self.program) | self.program.frozen | dict(self.program.prepared)

    @property
    def values(self) -> int:
        """Return the length of `theta`."""
        return sum(math.prod(shape) for shape in self.dense.values())

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the dense tensors in `theta`."""
        parts = torch.split(theta, [math.prod(shape) for shape in self.dense.values()])
        return {name: part.reshape(shape) for (name, shape), part in zip(self.dense.items(), parts, strict=True)}

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
        return self.program.needs_history and self.program.window is None

    @property
    def shown(self) -> dict[str, Shape]:
        """Return the inputs that say what is to be learned."""
        return {"label": ("n",), "weight": ("n",)} | self.pairs

    def shapes(self) -> dict[str, Shape]:
        """Return the inputs by name, in order."""
        out: dict[str, Shape] = {"theta": (self.values,), "lr": (self.values,)} if self.dense else {}
        out |= {f"items.{name}": ("n", width) for name, width in self.read.items()}
        out |= {f"lr.{name}": (1,) for name in self.tables} | self.shown
        if self.phase.moments:
            out |= {"factor": (1,), "epsilon": (1,)}
            out |= {f"{name}.{moment}": out[name] for name in self.moving() for moment in MOMENTS}
        if self.reads_past:
            out |= {f"history.{name}": ("h", width) for name, width in self.read.items()}
            out |= {"label.history": ("h",), "weight.history": ("h",)}
        return out | self.given | {name: tuple(constant.shape) for name, constant in self.program.constants.items()}

    def moving(self) -> list[str]:
        """Name the inputs that a step changes."""
        return [*(["theta"] if self.dense else []), *(f"items.{name}" for name in self.tables)]

    def outputs(self) -> list[str]:
        """Name the outputs, in order."""
        moments = MOMENTS if self.phase.moments else ()
        return ["loss", *(f"{n}.next" for name in self.moving() for n in (name, *(f"{name}.{m}" for m in moments)))]

    def loss(self, moving: tuple[Tensor, ...], given: Mapping[str, Tensor]) -> Tensor:
        """Return the client's loss with `moving` in place of the inputs of those names."""
        now = dict(given) | dict(zip(self.moving(), moving, strict=True))
        tensors = {name.partition(".")[2]: now[name] for name in self.given} | self.rows(now)
        tensors |= {name: now[name] for name in self.program.constants}
        tensors |= self.split(now["theta"]) if self.dense else {}
        return self.program.loss(tensors, self.batch(now), self.phase)

    def rows(self, now: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what the loss is given as `rows` tensors."""
        return {name: self.keys[name] for name in self.read if name in self.program.specs}

    def batch(self, now: Mapping[str, Tensor]) -> Any:
        """Return the batch that the loss is about."""
        past = None
        if self.reads_past:
            tables = [(self.keys[n], now[f"history.{n}"]) for n in self.read]
            past = Gathered(tables, now["label.history"], now["weight.history"])
        tables = [(self.keys[n], now[f"items.{n}"]) for n in self.read]
        pairs = Pairs(*(now[name] for name in self.pairs)) if self.pairs else None
        return Gathered(tables, now["label"], now["weight"], past, training=past is not None, pairs=pairs)

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
        out = {f"history.{n}": client[f"items.{n}"][history] for n in self.read}
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
