"""FedCAR is put together from registered parts: where its encoder normalises, and what travels for the contrast.

The tables are here without torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgefr.methods.fedcar.form import Form, Norm, Shown
from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.fedcar.encoder import Encoder


@dataclass(frozen=True)
class Negative:
    """A negative is the other side of the contrast (FedCAR Eq. 17).

    `values(encoder)` counts the numbers of a message. `told(encoder, tensors, shown)` makes a client's message [...,
    values]. `heard(encoder, message, shown)` is another client's c [..., P, K, d], or broadcasts to it.
    """

    name: str
    values: Callable[[Form], int]
    told: Callable[[Encoder, Mapping[str, Tensor], Shown], Tensor]
    heard: Callable[[Encoder, Tensor, Shown], Tensor]


NORMS: Table[Norm] = Table("norm", Norm, home="edgefr.methods.fedcar.known")
"""Every place where the encoder can normalise, by its name."""

NEGATIVES: Table[Negative] = Table("negative", Negative, home="edgefr.methods.fedcar.known")
"""Everything that can travel for the contrast, by its name; "none" is for no contrast."""
