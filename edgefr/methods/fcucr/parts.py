"""A session program is put together from registered parts: its encoder, loss, teacher, distillation and prototype.

The tables are here without torch, so that names can be checked before anything heavy is imported. A program takes its
parts along to worker processes, so they are functions with names of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.fcucr.layers import Encoder
    from export.batches import Window
    from export.program import Tensors


@dataclass(frozen=True)
class Backbone:
    """A backbone has a name; `make(settings)` is its encoder."""

    name: str
    make: Callable[[Any], Encoder]


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


ENCODERS: Table[Backbone] = Table("encoder", Backbone, home="edgefr.methods.fcucr.known", group="edgefr.encoders")
"""What can read a window of a session."""

LOSSES: Table[PositionLoss] = Table("loss", PositionLoss, home="edgefr.methods.fcucr.known", group="edgefr.losses")
"""How a position's scores become its error."""

TEACHERS: Table[Teacher] = Table("teacher", Teacher, home="edgefr.methods.fcucr.known")
"""Whose features are kept."""

DISTILL_WEIGHTS: Table[DistillWeight] = Table("distill", DistillWeight, home="edgefr.methods.fcucr.known")
"""How much the distillation counts beside the loss."""

PROTOTYPE_FORMS: Table[PrototypeForm] = Table("pooling", PrototypeForm, home="edgefr.methods.fcucr.known")
"""What a window's prototype is."""
