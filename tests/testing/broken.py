"""Programs that break one promise each: what a newcomer's first method may well do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.batches import Batch
from export.program import LocalProgram, Phase, Tensors, TensorSpec

ITEMS = 40


class Plain(FedMF):
    """FedMF with rows padded as those of programs with dense layers; it keeps every promise."""

    pointwise = False

    def __init__(self) -> None:
        super().__init__(FedMFSettings(dim=4, lr=0.5, item_lr=20.0, init_scale=0.3), ITEMS, local_epochs=2)

    def scores(self, tensors: Tensors, batch: Batch) -> Tensor:
        vectors = self.vectors(tensors, batch)
        return self.score(tensors, batch, vectors, self.user(tensors, batch, None, vectors))


class Mixing(Plain):
    """Subtracts from a score the mean over the clients of a shard."""

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        out = super().score(tensors, batch, vectors, user)
        return out - out.mean(0, keepdim=True) if out.ndim > 1 else out


class Unkeyed(Plain):
    """Drops a tenth of the vectors by draws of torch's own."""

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return torch.dropout(super().vectors(tensors, batch), 0.1, train=True)


class OverPadding(Plain):
    """Takes the mean over all that stands in a client's row, padding too."""

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        scores = self.scores(tensors, batch)
        return (softplus(scores) - batch.label * scores).mean(-1).sum()


class Undeclared(Plain):
    """Trains a bias of items that no spec declares."""

    def __init__(self) -> None:
        super().__init__()
        (phase,) = self.phases
        names = ("item", "user", "bias")
        self.phases = (replace(phase, uses=names, trains=names, lr={**phase.lr, "bias": 1.0}),)


class InPlace(Plain):
    """Wears a shared number down where it lies."""

    def __init__(self) -> None:
        super().__init__()
        self.specs["worn"] = TensorSpec((1,), "shared")
        self.phases = tuple(replace(phase, uses=(*phase.uses, "worn")) for phase in self.phases)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {**super().init_shared(seed), "worn": torch.ones(1)}

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        with torch.no_grad():
            tensors["worn"].mul_(0.99)
        return super().loss(tensors, batch, phase)


class ByPlace(Plain):
    """Weighs a client by its place in the shard."""

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        each = batch.weight * softplus(-(2 * batch.label - 1) * self.scores(tensors, batch))
        return (each.sum(-1) * torch.arange(1, 1 + each[..., 0].numel())).sum()


class ByShard(Plain):
    """Takes the mean over clients where their sum is asked for."""

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        return super().loss(tensors, batch, phase) / max(batch.label[..., 0].numel(), 1)


class OneByOne(Plain):
    """Gives the first of several clients another sign than the only one."""

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        out = super().score(tensors, batch, vectors, user)
        return out if out.ndim > 1 else out * 0.5


class NoNumbers(Plain):
    """Takes the logarithm of a score."""

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return super().score(tensors, batch, vectors, user).log()


class WithLambda(Plain):
    """Holds a function that no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = lambda scores: 2 * scores

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return self.scale(super().score(tensors, batch, vectors, user))


class NotInONNX(Plain):
    """Adds a Bessel function, which no device has."""

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        out = super().score(tensors, batch, vectors, user)
        return out + torch.special.i0e(out)


class ByRound(Plain):
    """Weighs its loss by the round's number, which a graph that was traced once does not know."""

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        return super().loss(tensors, batch, phase) * (1 + phase.number)


BROKEN: dict[str, tuple[Callable[[], LocalProgram], str]] = {
    "a tensor trained that is not declared": (Undeclared, "specs"),
    "values that are no numbers": (NoNumbers, "numbers"),
    "an unkeyed draw": (Unkeyed, "same bytes"),
    "a loss that mixes clients of a shard": (Mixing, "clients apart"),
    "a mean over padding": (OverPadding, "padding"),
    "a weight by the place in a shard": (ByPlace, "order"),
    "a mean over clients": (ByShard, "shards"),
    "another score for one client than for many": (OneByOne, "loop"),
    "a shared tensor changed in place": (InPlace, "left alone"),
    "an operation that ONNX has not": (NotInONNX, "bundle"),
    "a loss that changes with the round": (ByRound, "device"),
    "a lambda": (WithLambda, "workers"),
}
