"""FCUCR's programs are made of these parts: backbones, losses, teachers, weights, forms of prototypes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgefr.methods.fcucr.parts import (
    DISTILL_WEIGHTS,
    ENCODERS,
    LOSSES,
    PROTOTYPE_FORMS,
    TEACHERS,
    Backbone,
    DistillWeight,
    PositionLoss,
    PrototypeForm,
    Teacher,
)

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.fcucr.layers import Encoder
    from edgefr.methods.fcucr.program import FCUCR
    from edgefr.methods.fcucr.settings import FCUCRSettings
    from export.batches import Window
    from export.program import Tensors


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
    from edgefr.methods.position_losses import sampled_bce

    return sampled_bce


def _softmax() -> Callable[[Tensor, Tensor], Tensor]:
    from edgefr.methods.position_losses import sampled_softmax

    return sampled_softmax


def _full_softmax() -> Callable[[Tensor, Tensor], Tensor]:
    from edgefr.methods.position_losses import full_softmax

    return full_softmax


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


ENCODERS.register(Backbone("sasrec", _sasrec))
ENCODERS.register(Backbone("gru4rec", _gru4rec))
ENCODERS.register(Backbone("tisasrec", _tisasrec))
LOSSES.register(PositionLoss("bce", _bce))
LOSSES.register(PositionLoss("softmax", _softmax))
LOSSES.register(PositionLoss("full-softmax", _full_softmax, whole=True))


TEACHERS.register(Teacher("previous_local", _earlier, kept=True))
TEACHERS.register(Teacher("received_global", _received))
TEACHERS.register(Teacher("none", _nobodys))

DISTILL_WEIGHTS.register(DistillWeight("constant", _constant))
DISTILL_WEIGHTS.register(DistillWeight("clamped", _clamped))

PROTOTYPE_FORMS.register(PrototypeForm("mean", _width, _mean, _widened))
PROTOTYPE_FORMS.register(PrototypeForm("map", operator.mul, _whole, _cut))
