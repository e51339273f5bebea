"""FedCAR is put together from these parts: the form of its encoder, where it normalises, what travels for the contrast.

They import no torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Norm:
    """A place to normalise has a name: what goes into a sublayer, and what comes out with what it is added to."""

    name: str
    before: bool
    after: bool


@dataclass(frozen=True)
class EncoderForm:
    """This is what an encoder is made of; `wide` is its hidden layer's width."""

    dim: int
    length: int
    heads: int
    wide: int
    norm: Norm
    projected: bool

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor, by name."""
        d = self.dim
        out: dict[str, tuple[int, ...]] = {"position": (self.length, d)}
        out |= {name: (d, d) for name in ("query", "key", "value", *(["output"] if self.heads > 1 else []))}
        out |= {"wide": (d, self.wide), "wide_bias": (self.wide,), "narrow": (self.wide, d), "narrow_bias": (d,)}
        asked = ("candidate", "context_key", "context_value") if self.projected else ()
        return out | {name: (d, d) for name in asked}

    @property
    def values(self) -> int:
        """Count the numbers of an encoder."""
        return sum(math.prod(shape) for shape in self.shapes.values())


@dataclass(frozen=True)
class Shown:
    """These are candidates `query` [..., P, K, d] in contexts of rows [..., P, L, d], of items where `there` is 1."""

    rows: Tensor
    there: Tensor
    query: Tensor


@dataclass(frozen=True)
class Negative:
    """A negative is the other side of the contrast (FedCAR Eq. 17).

    `values(encoder)` counts the numbers of a message. `told(encoder, tensors, shown)` makes a client's message [...,
    values]. `heard(encoder, message, shown)` is another client's c [..., P, K, d], or broadcasts to it.
    """

    name: str
    values: Callable[[EncoderForm], int]
    told: Callable[[Any, Mapping[str, Tensor], Shown], Tensor]
    heard: Callable[[Any, Tensor, Shown], Tensor]


NORMS: Table[Norm] = Table("norm", Norm)
"""Every place where the encoder can normalise, by its name."""

NEGATIVES: Table[Negative] = Table("negative", Negative)
"""Everything that can travel for the contrast, by its name; "none" is for no contrast."""


def _encoder_values(encoder: EncoderForm) -> int:
    return encoder.values


def _vector_values(encoder: EncoderForm) -> int:
    return encoder.dim


def _both_values(encoder: EncoderForm) -> int:
    return encoder.values + encoder.length * encoder.dim


def _no_values(encoder: EncoderForm) -> int:
    return 0


def _encoder_told(encoder: Any, tensors: Mapping[str, Tensor], shown: Shown) -> Any:
    return encoder.joined(tensors)


def _encoder_heard(encoder: Any, message: Tensor, shown: Shown) -> Any:
    return encoder.context(encoder.parted(message), shown)


def _vector_told(encoder: Any, tensors: Mapping[str, Tensor], shown: Shown) -> Any:
    return encoder.context(tensors, shown)[..., -1, -1, :]  # FedCAR Eq. 17


def _vector_heard(encoder: Any, message: Tensor, shown: Shown) -> Any:
    return message.unsqueeze(-2).unsqueeze(-2)


def _both_told(encoder: Any, tensors: Mapping[str, Tensor], shown: Shown) -> Any:
    rows = (shown.rows * shown.there.unsqueeze(-1))[..., -1, :, :]
    return encoder.joined(tensors, rows.flatten(-2))


def _both_heard(encoder: Any, message: Tensor, shown: Shown) -> Any:
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
