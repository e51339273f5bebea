"""FedCAR's encoder has a form: widths, heads, where it normalises, and the shapes of its tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Norm:
    """A place to normalise has a name: what goes into a sublayer, and what comes out with what it is added to."""

    name: str
    before: bool
    after: bool


@dataclass(frozen=True)
class Form:
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
