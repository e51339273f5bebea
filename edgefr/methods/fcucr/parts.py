"""A session program is put together from registered parts: its encoder, loss, teacher, distillation and prototype.

Names are checked before anything heavy is imported, so torch and encoders are imported in the calls that need them. A
program takes its parts along to worker processes, so they are functions with names of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefr.experiment.method import late
from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from export.batches import Window
    from export.program import Tensors


@dataclass(frozen=True)
class Backbone:
    """A backbone has a name; `make(settings)` is its encoder (`edgefr.methods.fcucr.layers.SequenceEncoder`)."""

    name: str
    make: Callable[[Any], Any]


@dataclass(frozen=True)
class PositionLoss:
    """A loss has a name; `load()` imports and returns the function from scores to errors [..., L].

    It takes scores of targets [..., L] and of negatives [..., L, n]; with `whole`, of all items in the negatives'
    place.
    """

    name: str
    load: Callable[[], Callable[[Tensor, Tensor], Tensor]]
    whole: bool = False


@dataclass(frozen=True)
class Teacher:
    """A teacher has a name; `features(program, tensors, batch)` are its features for a round (FCUCR Eq. 3).

    They are [..., L, d], from the tensors before training, or None. `kept`: a client's trained encoder is its next
    teacher.
    """

    name: str
    features: Callable[[Any, Tensors, Window], Tensor | None]
    kept: bool = False


@dataclass(frozen=True)
class DistillWeight:
    """`weight(own, apart, most)` is the distillation's, of clients' losses and distances to their teachers [...]."""

    name: str
    weight: Callable[[Tensor, Tensor, float], float | Tensor]


@dataclass(frozen=True)
class PrototypeForm:
    """A form of prototypes says how a window's features [..., L, d] are sent and read.

    `size(dim, length)`: values of a prototype. `pooled(features, real)`: one vector [..., P]; `real` [..., L] is 0 at
    padding. `spread(reply, length)`: a vector beside each of the features, [..., L or 1, d].
    """

    name: str
    size: Callable[[int, int], int]
    pooled: Callable[[Tensor, Tensor], Tensor]
    spread: Callable[[Tensor, int], Tensor]


ENCODERS: Table[Backbone] = Table("encoder", Backbone, group="edgefr.encoders")
"""What can read a window of a session."""

LOSSES: Table[PositionLoss] = Table("loss", PositionLoss, group="edgefr.losses")
"""How a position's scores become its error."""

TEACHERS: Table[Teacher] = Table("teacher", Teacher)
"""Whose features are kept."""

DISTILL_WEIGHTS: Table[DistillWeight] = Table("distill", DistillWeight)
"""How much the distillation counts beside the loss."""

PROTOTYPE_FORMS: Table[PrototypeForm] = Table("pooling", PrototypeForm)
"""What a window's prototype is."""


def sampled_bce(positive: Tensor, negative: Tensor) -> Tensor:
    """Return each position's binary cross-entropy [..., L]: its target's, and the mean over negatives [..., L, n]."""
    import torch

    # where torch takes softplus for its argument: a difference of exp(-20), which float32 does not see
    straight = 40.0 if positive.dtype == torch.float64 else 20.0
    each = torch.nn.functional.softplus(negative, threshold=straight).sum(-1) / max(negative.shape[-1], 1)
    return torch.nn.functional.softplus(-positive, threshold=straight) + each


def sampled_softmax(positive: Tensor, negative: Tensor) -> Tensor:
    """Return each position's cross-entropy of its target [..., L] among itself and its negatives [..., L, n]."""
    import torch

    return torch.logsumexp(torch.cat([positive.unsqueeze(-1), negative], dim=-1), dim=-1) - positive


def full_softmax(positive: Tensor, every: Tensor) -> Tensor:
    """Return each position's cross-entropy of its target [..., L] among all items [..., L, items], itself included."""
    return every.logsumexp(-1) - positive


def _earlier(program: Any, tensors: Tensors, batch: Window) -> Any:
    return program.earlier(tensors, batch)


def _received(program: Any, tensors: Tensors, batch: Window) -> Any:
    return program.features(tensors, batch)


def _nobodys(program: Any, tensors: Tensors, batch: Window) -> None:
    return None


def _constant(own: Tensor, apart: Tensor, most: float) -> float:
    return most


def _clamped(own: Tensor, apart: Tensor, most: float) -> Tensor:
    return (own.detach() / (apart.detach() + 1e-8)).clamp(max=most)


def _width(dim: int, length: int) -> int:
    return dim


def _mean(features: Tensor, real: Tensor) -> Tensor:
    weight = real / real.sum(-1, keepdim=True).clamp_min(1.0)
    return (features * weight.unsqueeze(-1)).sum(-2)


def _widened(reply: Tensor, length: int) -> Tensor:
    return reply.unsqueeze(-2)


def _whole(features: Tensor, real: Tensor) -> Tensor:
    return features.flatten(-2)


def _cut(reply: Tensor, length: int) -> Tensor:
    return reply.unflatten(-1, (length, -1))


ENCODERS.register(Backbone("sasrec", late("edgefr.methods.fcucr.encoders:SASRec.of")))
ENCODERS.register(Backbone("gru4rec", late("edgefr.methods.fcucr.encoders:GRU4Rec.of")))
ENCODERS.register(Backbone("tisasrec", late("edgefr.methods.fcucr.encoders:TiSASRec.of")))
LOSSES.register(PositionLoss("bce", lambda: sampled_bce))
LOSSES.register(PositionLoss("softmax", lambda: sampled_softmax))
LOSSES.register(PositionLoss("full-softmax", lambda: full_softmax, whole=True))
TEACHERS.register(Teacher("previous_local", _earlier, kept=True))
TEACHERS.register(Teacher("received_global", _received))
TEACHERS.register(Teacher("none", _nobodys))
DISTILL_WEIGHTS.register(DistillWeight("constant", _constant))
DISTILL_WEIGHTS.register(DistillWeight("clamped", _clamped))
PROTOTYPE_FORMS.register(PrototypeForm("mean", _width, _mean, _widened))
PROTOTYPE_FORMS.register(PrototypeForm("map", operator.mul, _whole, _cut))
