"""A session program is put together from registered parts: its encoder, loss, teacher, distillation and prototype.

The tables are here without torch, so that names can be checked before anything heavy is imported. A program takes its
parts along to worker processes, so they are functions with names of their own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.fcucr.program import FCUCR, Encoder
    from edgefr.methods.fcucr.settings import FCUCRSettings
    from export.batches import Window
    from export.program import Tensors


@dataclass(frozen=True)
class Backbone:
    """A backbone has a name; `make(settings)` is its encoder: pure functions of the tensors of one client."""

    name: str
    make: Callable[[FCUCRSettings], Encoder]


@dataclass(frozen=True)
class PositionLoss:
    """A loss has a name; `load()` is the function that makes it, imported when a program is built.

    The function takes scores of targets [..., L] and of negatives [..., L, n], and returns errors [..., L]. `whole`: in
    the negatives' place it takes those of the whole catalogue, the target among them.
    """

    name: str
    load: Callable[[], Callable[[Tensor, Tensor], Tensor]]
    whole: bool = False


@dataclass(frozen=True)
class Teacher:
    """A teacher has a name; `features(program, tensors, batch)` are what a round's are held to (FCUCR Eq. 3).

    [..., L, d], from the tensors before training; None: nothing is. `kept`: a client keeps the encoder it trained as
    its next teacher, and has none at first.
    """

    name: str
    features: Callable[[FCUCR, Tensors, Window], Tensor | None]
    kept: bool = False


@dataclass(frozen=True)
class DistillWeight:
    """A weight of the distillation has a name; `weight(own, apart, most)` is it.

    `own` and `apart` [...] are each client's loss and distance to its teacher; `most` is the setting `distill_weight`.
    """

    name: str
    weight: Callable[[Tensor, Tensor, float], float | Tensor]


@dataclass(frozen=True)
class PrototypeForm:
    """A form of prototypes has a name, and says how a window's features [..., L, d] are sent and read.

    `size(dim, length)`: values of a prototype. `pooled(features, real)`: features as one, [..., P]; `real` [..., L] is
    0 at padding. `spread(reply, length)`: one beside each of the features, [..., L or 1, d].
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


def _gru4rec(settings: FCUCRSettings) -> Encoder:
    from edgefr.methods.fcucr.gru4rec import GRU4Rec

    return GRU4Rec(settings.dim, settings.length)


def _sasrec(settings: FCUCRSettings) -> Encoder:
    from edgefr.methods.fcucr.sasrec import SASRec

    return SASRec(settings.dim, settings.length, settings.heads, settings.layers, masked=settings.masked)


def _tisasrec(settings: FCUCRSettings) -> Encoder:
    from edgefr.methods.fcucr.tisasrec import TiSASRec

    return TiSASRec(settings.dim, settings.length, settings.heads, settings.layers, spans=settings.spans)


def _bce() -> Callable[[Tensor, Tensor], Tensor]:
    from edgefr.methods.losses import sampled_bce

    return sampled_bce


def _softmax() -> Callable[[Tensor, Tensor], Tensor]:
    from edgefr.methods.losses import sampled_softmax

    return sampled_softmax


def _full_softmax() -> Callable[[Tensor, Tensor], Tensor]:
    from edgefr.methods.losses import full_softmax

    return full_softmax


ENCODERS.register(Backbone("sasrec", _sasrec))
ENCODERS.register(Backbone("gru4rec", _gru4rec))
ENCODERS.register(Backbone("tisasrec", _tisasrec))
LOSSES.register(PositionLoss("bce", _bce))
LOSSES.register(PositionLoss("softmax", _softmax))
LOSSES.register(PositionLoss("full-softmax", _full_softmax, whole=True))


def _clamped(own: Tensor, apart: Tensor, most: float) -> Tensor:
    return (own.detach() / (apart.detach() + 1e-8)).clamp(max=most)


def _mean(features: Tensor, real: Tensor) -> Tensor:
    weight = real / real.sum(-1, keepdim=True).clamp_min(1.0)
    return (features * weight.unsqueeze(-1)).sum(-2)


def _widened(reply: Tensor, length: int) -> Tensor:
    return reply.unsqueeze(-2)


def _whole(features: Tensor, real: Tensor) -> Tensor:
    return features.flatten(-2)


def _cut(reply: Tensor, length: int) -> Tensor:
    return reply.unflatten(-1, (length, -1))


def _width(dim: int, length: int) -> int:
    return dim


def _constant(own: Tensor, apart: Tensor, most: float) -> float:
    return most


def _earlier(program: FCUCR, tensors: Tensors, batch: Window) -> Tensor | None:
    return program.earlier(tensors, batch)


def _received(program: FCUCR, tensors: Tensors, batch: Window) -> Tensor:
    return program.features(tensors, batch)


def _nobodys(program: FCUCR, tensors: Tensors, batch: Window) -> None:
    return None


TEACHERS.register(Teacher("previous_local", _earlier, kept=True))
TEACHERS.register(Teacher("received_global", _received))
TEACHERS.register(Teacher("none", _nobodys))

DISTILL_WEIGHTS.register(DistillWeight("constant", _constant))
DISTILL_WEIGHTS.register(DistillWeight("clamped", _clamped))

PROTOTYPE_FORMS.register(PrototypeForm("mean", _width, _mean, _widened))
PROTOTYPE_FORMS.register(PrototypeForm("map", operator.mul, _whole, _cut))
