"""A session program is put together from registered parts: the encoder that reads a window, and the loss of a position.

The tables are here without torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.fcucr.program import Encoder
    from edgefr.methods.fcucr.settings import FCUCRSettings


@dataclass(frozen=True)
class Backbone:
    """A backbone has a name; `make(settings)` is its encoder: pure functions of the tensors of one client."""

    name: str
    make: Callable[[FCUCRSettings], Encoder]


@dataclass(frozen=True)
class PositionLoss:
    """A loss has a name; `load()` is the function that makes it, imported when a program is built.

    The function takes scores of targets [..., L] and of negatives [..., L, n], and returns errors [..., L].
    """

    name: str
    load: Callable[[], Callable[[Tensor, Tensor], Tensor]]


ENCODERS: Table[Backbone] = Table("encoder", Backbone)
"""What can read a window of a session."""

LOSSES: Table[PositionLoss] = Table("loss", PositionLoss)
"""How a position's scores become its error."""


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


ENCODERS.register(Backbone("sasrec", _sasrec))
ENCODERS.register(Backbone("gru4rec", _gru4rec))
ENCODERS.register(Backbone("tisasrec", _tisasrec))
LOSSES.register(PositionLoss("bce", _bce))
LOSSES.register(PositionLoss("softmax", _softmax))
