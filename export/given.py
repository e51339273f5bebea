"""A method is given this to make its local program of, beside its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Given:
    """This is the catalogue and the epochs of local work: all that a program may need beside its settings.

    `items`: how many there are; `present`: how many users can have so far, where rates count these. `local_epochs`:
    passes over a client's examples in a round. `text` [items, width]: the items' vectors, where the method reads text.
    `reader` opens titles and encoder for clients that read on the device. `source`: the items of the domain that is
    learned in, int64 [n] (None: all).
    """

    items: int
    local_epochs: int
    text: Tensor | None = None
    reader: Callable[[], Any] | None = None
    present: int | None = None
    source: Tensor | None = None

    @property
    def counted(self) -> int:
        """Return the items that multiply a learning rate of item rows."""
        return self.items if self.present is None else self.present
