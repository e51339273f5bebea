"""A pooling makes one vector of a text's token vectors: one registered object each.

The same function encodes the catalogue, is traced into bundles and is trained through on devices; it is without torch's
import, so that names can be checked before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Pooling:
    """A pooling has a name; `pool(states, mask)` makes vectors [..., f] of states [..., L, f].

    `mask` [..., L] is 0 at padding; a text of padding alone becomes zeros.
    """

    name: str
    pool: Callable[[Tensor, Tensor], Tensor]


def _first(states: Tensor, mask: Tensor) -> Tensor:
    """Take the first token's state (TransFR Eq. 11)."""
    return states[..., 0, :] * mask[..., :1].to(states.dtype)


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    """Take the mean over all tokens."""
    weight = mask.to(states.dtype)
    return (states * weight.unsqueeze(-1)).sum(-2) / weight.sum(-1, keepdim=True).clamp(min=1.0)


POOLINGS: Table[Pooling] = Table("pooling", Pooling)
"""How token vectors can become one."""

POOLINGS.register(Pooling("cls", _first))
POOLINGS.register(Pooling("mean", _mean))
