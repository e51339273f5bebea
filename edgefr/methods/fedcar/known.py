"""These are FedCAR's registered parts: where its encoder normalises, and what travels for the contrast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgefr.methods.fedcar.form import Form, Norm, Shown
from edgefr.methods.fedcar.parts import NEGATIVES, NORMS, Negative

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.fedcar.encoder import Encoder


def _encoder_values(encoder: Form) -> int:
    return encoder.values


def _vector_values(encoder: Form) -> int:
    return encoder.dim


def _both_values(encoder: Form) -> int:
    return encoder.values + encoder.length * encoder.dim


def _no_values(encoder: Form) -> int:
    return 0


def _encoder_told(encoder: Encoder, tensors: Mapping[str, Tensor], shown: Shown) -> Tensor:
    return encoder.joined(tensors)


def _encoder_heard(encoder: Encoder, message: Tensor, shown: Shown) -> Tensor:
    return encoder.context(encoder.parted(message), shown)


def _vector_told(encoder: Encoder, tensors: Mapping[str, Tensor], shown: Shown) -> Tensor:
    return encoder.context(tensors, shown)[..., -1, -1, :]  # FedCAR Eq. 17


def _vector_heard(encoder: Encoder, message: Tensor, shown: Shown) -> Tensor:
    return message.unsqueeze(-2).unsqueeze(-2)


def _both_told(encoder: Encoder, tensors: Mapping[str, Tensor], shown: Shown) -> Tensor:
    rows = (shown.rows * shown.there.unsqueeze(-1))[..., -1, :, :]
    return encoder.joined(tensors, rows.flatten(-2))


def _both_heard(encoder: Encoder, message: Tensor, shown: Shown) -> Tensor:
    own, rows = message[..., : encoder.values], message[..., encoder.values :]
    theirs = rows.unflatten(-1, (encoder.length, encoder.dim)).unsqueeze(-3).expand_as(shown.rows)
    everywhere = shown.there.new_ones(()).expand_as(shown.there)
    return encoder.context(encoder.parted(own), Shown(theirs, everywhere, shown.query))  # FedCAR Eq. 17


for _norm in (Norm("post", False, True), Norm("pre", True, False), Norm("none", False, False)):
    NORMS.register(_norm)
for _negative in (
    Negative("encoder", _encoder_values, _encoder_told, _encoder_heard),
    Negative("vectors", _vector_values, _vector_told, _vector_heard),
    Negative("both", _both_values, _both_told, _both_heard),
    Negative("none", _no_values, _encoder_told, _encoder_heard),
):
    NEGATIVES.register(_negative)
