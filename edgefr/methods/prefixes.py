"""Some programs over sessions encode every prefix of a window on its own, as the originals do with cut sessions.

item rows → unit vectors → prefixes [T, L] → the method's encoder → K vectors each → scores of items

A session encoder sees all items of a prefix, and their distance from its end. So a round encodes L prefixes and a
recommendation one, by the same code. Owns: prefixes, the item table, the loss. Does not own: encoders.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cloud.host_transfer import there
from edgefr.config import random_streams as purposes
from edgefr.methods.fcucr.layers import init_xavier
from edgefr.methods.fcucr.parts import LOSSES
from edgefr.methods.losses import init_rows
from edgefr.methods.prefix_settings import PrefixSettings
from export.batches import Batch, Window
from export.given import Given
from export.program import Phase, SessionProgram, Tensors, TensorSpec

ENCODER = "encoder."
SMALLEST = 1e-12
"""Added to a squared length, so that a vector of zeros stays one and has a gradient."""


@dataclass(frozen=True)
class Prefixes:
    """These are T prefixes of a window of L positions: every one, or the longest alone.

    Values of positions are computed for P pairs of a prefix and a position in it, so that one product serves all
    prefixes. `x` [..., L, d]: unit item vectors, zeros at padding. `real` [..., L]: 1 where there is an item. `seen`
    [..., T, L]: 1 for positions in the prefix; an empty prefix sees its padding, so that means stay numbers. `same`
    [..., L, L]: 1 where two positions have one item. `of` and `at` [P]: each pair's prefix and position; `away` [P]:
    items of the prefix after it.
    """

    x: Tensor
    real: Tensor
    seen: Tensor
    same: Tensor
    of: Tensor
    at: Tensor
    away: Tensor

    @cached_property
    def members(self) -> Tensor:
        """Say whose a pair is: [T, P], 1 at its prefix."""
        return one_hot(self.of, self.seen.shape[-2], self.x)

    @cached_property
    def places(self) -> Tensor:
        """Say where a pair is: [L, P], 1 at its position."""
        return one_hot(self.at, self.seen.shape[-1], self.x)

    def reached(self, values: Tensor) -> Tensor:
        """Return what prefixes have at the positions that they reach: [..., T, L] -> [..., P]."""
        return values.flatten(-2).index_select(-1, self.of * self.seen.shape[-1] + self.at)

    def beside(self, values: Tensor) -> Tensor:
        """Return what positions have at the position of each pair: [..., L] -> [..., P]."""
        return torch.matmul(values, self.places)

    def among(self, values: Tensor) -> Tensor:
        """Return what the prefix of each pair has at every position: [..., T, L] -> [..., L, P]."""
        return torch.matmul(values.transpose(-1, -2), self.members)

    def spread(self, values: Tensor) -> Tensor:
        """Lay out values of pairs, zeros where a prefix does not reach: [..., P, w] -> [..., T, L, w]."""
        count, length = self.seen.shape[-2:]
        if count == 1:
            return values.unsqueeze(-3)
        place = self.of * length + self.at
        return (
            values.new_zeros(*values.shape[:-2], count * length, values.shape[-1])
            .index_copy(-2, place, values)
            .unflatten(-2, (count, length))
        )


def prefixes(rows: Tensor, real: Tensor, every: bool) -> Prefixes:
    """Make the prefixes of a window of item rows [..., L, d]; without `every` the longest alone.

    Two positions have the same item where their rows are equal, since a device's graph has no item numbers.

    >>> made = prefixes(torch.tensor([[9.0], [4.0], [8.0], [4.0]]), torch.tensor([0.0, 1.0, 1.0, 1.0]), True)
    >>> made.seen.int().tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
    >>> made.away[-4:].tolist(), made.reached(made.seen)[-4:].tolist(), made.same[3].tolist()
    ([3, 2, 1, 0], [0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0])
    """
    length = int(real.shape[-1])
    position = torch.arange(length, device=real.device)
    ends = position if every else position[-1:]
    last = np.arange(length) if every else np.arange(length)[-1:]
    pairs = np.nonzero(np.arange(length) <= last[:, None])
    of, at, away = (there(part, real.device) for part in (*pairs, last[pairs[0]] - pairs[1]))
    rows = rows * real.unsqueeze(-1)
    past = (position <= ends.unsqueeze(-1)).to(rows.dtype)
    own = (position == ends.unsqueeze(-1)).to(rows.dtype)
    alike = (rows.unsqueeze(-2) == rows.unsqueeze(-3)).all(-1).to(rows.dtype)
    same = alike * real.unsqueeze(-1) * real.unsqueeze(-2)
    return Prefixes(unit(rows), real, torch.maximum(real.unsqueeze(-2) * past, own), same, of, at, away)


def one_hot(index: Tensor, size: int, like: Tensor) -> Tensor:
    """Return [size, n] in numbers of `like`: 1 where a row's number is the index."""
    return (torch.arange(size, device=index.device).unsqueeze(-1) == index).to(like.dtype)


def unit(x: Tensor) -> Tensor:
    """Return vectors [..., d] at unit length; zeros stay zeros."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + SMALLEST)


def identity(size: int, like: Tensor) -> Tensor:
    """Return the identity [size, size] in numbers of `like`; torch traces its own to an operator old runtimes lack."""
    return one_hot(torch.arange(size, device=like.device), size, like)


def mean_of(x: Tensor, seen: Tensor) -> Tensor:
    """Return the mean of what each prefix sees: x [..., L, d], seen [..., T, L] -> [..., T, d]."""
    return torch.matmul(seen / seen.sum(-1, keepdim=True), x)


class PrefixProgram(SessionProgram):
    """A client learns to predict the next item from each prefix; item table and encoder are shared."""

    inner = False
    settings: Any

    def __init__(self, settings: PrefixSettings, items: int, local_epochs: int) -> None:
        self.settings, self.errors = settings, LOSSES[settings.loss].load()
        self.window, self.frozen, self.shapes = settings.length, dict[str, Tensor](), self.encoder_shapes()
        self.specs = {"item": TensorSpec((items, settings.dim), "shared", "rows")}
        self.specs |= {ENCODER + name: TensorSpec(shape, "shared") for name, shape in self.shapes.items()}
        trained, rates = tuple(self.specs), dict.fromkeys(self.specs, settings.lr)
        self.phases = (
            Phase("round", trained, trained, local_epochs, "adam", rates, draws=purposes.ROUND, beta_2=settings.beta_2),
        )

    @classmethod
    def build(cls, settings: Any, given: Given) -> Self:
        """Make the program of a row of the table of methods."""
        return cls(settings, given.items, given.local_epochs)

    @abstractmethod
    def encoder_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the encoder's tensors, by their own names."""

    @abstractmethod
    def intents(self, tensors: Tensors, made: Prefixes, training: bool) -> Tensor:
        """Return K vectors of a prefix, [..., T, K, w]; `training`: for a loss, not to recommend."""

    @abstractmethod
    def match(self, intents: Tensor, vectors: Tensor) -> Tensor:
        """Return how well items [..., n, d] go with what a prefix was made into [..., K, w]: [..., n]."""

    def beside(self, made: Prefixes, intents: Tensor, targets: Tensor, batch: Window) -> Tensor | None:
        """Return what each client's loss adds to the prediction, [...], or None; `targets` are [..., T, d]."""
        return None

    def encoder(self, tensors: Tensors) -> dict[str, Tensor]:
        return {name: tensors[ENCODER + name] for name in self.shapes}

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        item = init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)
        return {"item": item} | {ENCODER + name: value for name, value in init_xavier(seed, self.shapes).items()}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {}

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return unit(batch.rows(tensors["item"]))

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        window = batch.history
        assert isinstance(window, Window)
        made = prefixes(window.rows(tensors["item"]), window.label, every=False)
        return self.intents(self.encoder(tensors), made, training=False).squeeze(-3)

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return self.match(user, vectors)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        assert isinstance(batch, Window)
        made = prefixes(batch.rows(tensors["item"]), batch.label, every=True)
        intents = self.intents(self.encoder(tensors), made, training=True)
        numbers = torch.cat([batch.positive.unsqueeze(-1), batch.negative], dim=-1)
        items = unit(F.embedding(numbers, tensors["item"]))  # [..., T, 1 + n, d]
        scores = self.match(intents, items) / self.settings.temperature
        own = (self.errors(scores[..., 0], scores[..., 1:]) * batch.weight).sum(-1)
        more = self.beside(made, intents, items[..., 0, :], batch)
        return (own if more is None else own + more).sum()
