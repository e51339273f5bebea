"""These are the steps of programs that learn from a window of a session: what `export.steps` traces, with other inputs.

    in   items.T             rows of the trained table T that the round reads    [n, width]
         label, weight       1 at real positions; shares of the loss, sum 1      [L]
         window.times        seconds since the first real one                    [L]
         window.inputs       which of the n rows a position reads, int64         [L]
         window.positives    and is to predict                                   [L]
         window.negatives    and is not to                                       [L, negatives]
         window.taught       the teacher's features                              [L, d]

and theta, learning rates, moments, corrections and other dense tensors as there. All rows of a round take part in all
of its steps, read or not, so they come whole and go whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from export import random_streams as purposes
from export.batches import Window
from export.graphs import example_history
from export.program import SessionProgram
from export.step import Sizes, Step, Values
from export.trace import Shape, filled, noise
from privacy import keyed


@dataclass(frozen=True)
class SessionStep(Step):
    """This is one step as a function of the graph's inputs in order; `taught`: shape of the teacher's features."""

    program: SessionProgram
    taught: tuple[int, ...] | None = None

    @property
    def shown(self) -> dict[str, Shape]:
        length = self.program.window
        wide: dict[str, Shape] = {f"window.{name}": (length,) for name in ("times", "inputs", "positives")}
        out: dict[str, Shape] = {"label": (length,), "weight": (length,), **wide}
        out |= {"window.negatives": (length, self.negatives)} if self.negatives else {}
        return out | ({} if self.taught is None else {"window.taught": self.taught})

    @cached_property
    def read(self) -> dict[str, int]:
        return {name: width for name, width in super().read.items() if name in self.program.specs}

    def rows(self, now: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: now[f"items.{name}"] for name in self.read}

    def batch(self, now: Mapping[str, Tensor]) -> Window:
        inputs, positives = now["window.inputs"], now["window.positives"]
        return Window(
            inputs,
            inputs,
            now["label"],
            now["weight"],
            times=now["window.times"],
            positive=positives,
            negative=now.get("window.negatives", positives.new_empty(len(positives), 0)),
            taught=now.get("window.taught"),
            target=positives,  # read by programs of the whole catalogue alone, whose rows are those of all items
        )

    def gradients(self, moving: tuple[Tensor, ...], given: Mapping[str, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return gradients by autograd, which takes gradients that are written by hand, as a recurrent unit's.

        `torch.func` does not.
        """
        leaves = tuple(value.detach().requires_grad_() for value in moving)
        loss = self.loss(leaves, given)
        return torch.autograd.grad(loss, leaves), loss.detach()

    def examples(self, client: Mapping[str, Tensor], number: int, sizes: Sizes) -> tuple[Tensor, Values]:
        out: Values = {}
        for name, shape in self.shown.items():
            places, key = np.arange(math.prod(filled(shape, {}))), keyed.key(0, purposes.rehearsal(name), number)
            drawn = keyed.integers(key, places, sizes.examples).astype(np.int64)
            out[name] = torch.from_numpy(drawn).reshape(filled(shape, {}))
        shown = example_history(self.program, sizes.past)
        real = shown["label.history"]
        out |= {"label": real, "weight": real / real.sum(), "window.times": shown["times.history"] * number}
        if self.taught is not None:
            out["window.taught"] = noise(f"taught {number}", self.taught)
        return torch.arange(sizes.examples), out
