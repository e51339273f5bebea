"""A central reference learns epoch after epoch; this is what each of them is, and the loop that some share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from cloud import random_streams as purposes
from cloud.references.pooling import Pooled
from privacy import keyed
from privacy.errors import InputError


class AdamSteps:
    """These are steps of Adam on `leaves`, which move every row, those too that a batch did not read.

    Gradients of rows that are read by `embedding(..., sparse=True)` are laid into tables that are kept. `fused`: a step
    is one pass over a table, several times as fast, which rounds otherwise; where ReLUs make more than rounding of
    that, it is left.
    """

    def __init__(self, leaves: Sequence[Tensor], lr: float, fused: bool):
        self.leaves, self.adam = leaves, torch.optim.Adam(leaves, lr, fused=fused)
        self.slopes = [torch.zeros_like(leaf) for leaf in leaves]  # room for gradients of whole tables

    def take(self, loss: Tensor) -> None:
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for leaf, slope in zip(self.leaves, self.slopes, strict=True):
            if leaf.grad is not None and leaf.grad.is_sparse:
                rows, values = leaf.grad._indices()[0], leaf.grad._values()
                leaf.grad = slope.zero_().index_add_(0, rows, values)
        self.adam.step()


class Reference(ABC):
    """This learns from everybody's interactions at once.

    `epochs`: at most so many passes over them. `patience`: epochs without a better validation after which it ends.
    """

    epochs: int
    patience: float = math.inf

    def follow(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:  # noqa: B027 - most begin anew
        """Take over, before epoch 1, the tensors that another learner of the same reference ended with."""

    @abstractmethod
    def epoch(self, number: int) -> None:
        """Learn for one epoch, number 1 or later."""

    @abstractmethod
    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return what scores are made of as it is now: of items and layers, and of users [users, ...]."""


def bpr(scores: Tensor) -> Tensor:
    """Return -ln sigma(positive - negative) of scores [b, 1 + n], positives first, as a mean (Rendle 2009, BPR-Opt)."""
    return torch.nn.functional.softplus(scores[:, 1:] - scores[:, :1]).mean()


def bce(scores: Tensor) -> Tensor:
    """Return the binary cross-entropy of scores [b, 1 + n], positives first (He et al. 2017, Eq. 7), as a mean."""
    label = torch.zeros_like(scores)
    label[:, 0] = 1.0
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, label)


def squared(scores: Tensor) -> Tensor:
    """Return half the squared error of scores [b, 1 + n], positives first, against 1 and 0 (PMF Eq. 4), as a mean.

    The Gaussian priors of Eq. 4 are the `l2` of `Batches`, which a row meets whenever it is read.
    """
    label = torch.zeros_like(scores)
    label[:, 0] = 1.0
    return (scores - label).square().mean() / 2


LOSSES: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType({"bpr": bpr, "bce": bce, "squared": squared})
"""What compares an interaction with the negatives drawn for it, by name."""


def first(seed: int, name: str, shape: tuple[int, ...], scale: float) -> Tensor:
    """Draw a tensor's first values: keyed normal numbers of standard deviation `scale`."""
    draws = keyed.generator(seed, f"{purposes.FIRST_FACTORS} {name}").standard_normal(shape, dtype=np.float32)
    return torch.from_numpy(draws * np.float32(scale))


@dataclass(frozen=True)
class Batches:
    """This says how to learn from batches: `size` interactions each, with `negatives` for every one of them.

    `epochs` at most, `patience` as of `Reference`. `lr` is Adam's. `l2` weighs half the squared length of the rows that
    a batch reads, per interaction.
    """

    epochs: int
    patience: float
    size: int
    negatives: int
    lr: float
    l2: float = 0.0


class InBatches(Reference):
    """This learns by Adam from batches of interactions with sampled negatives; `fused` as of `AdamSteps`."""

    fused: ClassVar[bool] = False

    def __init__(self, pooled: Pooled, loss: str, how: Batches):
        if how.negatives < 1:
            raise InputError("negatives: a reference that learns from batches compares with some; use at least 1")
        self.pooled, self.loss, self.how = pooled, LOSSES[loss], how
        self.epochs, self.patience = how.epochs, how.patience
        self.shared, self.own = self.start()
        self.leaves = [value.requires_grad_() for value in (*self.shared.values(), *self.own.values())]
        self.steps = AdamSteps(self.leaves, how.lr, self.fused)

    @abstractmethod
    def start(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Make the first tensors: of items and layers, and of users."""

    @abstractmethod
    def scores(self, user: Tensor, items: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Score items [b, n] for users [b]: [b, n], and the rows that were read."""

    def cost(self, scores: Tensor, items: Tensor) -> Tensor:
        """Return what scores [b, n] of items [b, n] cost, positives first."""
        return self.loss(scores)

    def epoch(self, number: int) -> None:
        for user, items in self.pooled.batches(number, self.how.negatives, self.how.size):
            self.step(torch.from_numpy(user), torch.from_numpy(items))

    def step(self, user: Tensor, items: Tensor) -> None:
        """Take one step on a batch: users [b], items [b, 1 + negatives]."""
        scores, read = self.scores(user, items)
        loss = self.cost(scores, items)
        if self.how.l2:
            loss = loss + self.how.l2 / 2 / len(user) * sum(rows.square().sum() for rows in read)
        self.steps.take(loss)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        shared, own = ({name: value.detach() for name, value in part.items()} for part in (self.shared, self.own))
        return shared, own
