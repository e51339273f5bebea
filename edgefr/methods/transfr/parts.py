"""TransFR is put together from registered parts: what a client runs, how its adapter starts, what its head adds.

The tables are here without torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from export.given import Given
    from export.program import LocalProgram


@dataclass(frozen=True)
class Client:
    """A client has a name; `build(settings, given)` makes the program that it runs.

    `reads`: it runs the encoder itself, with LoRA matrices of the run's own, which are kept in peft's format too.
    """

    name: str
    build: Callable[[Any, Given], LocalProgram]
    reads: bool


@dataclass(frozen=True)
class AdapterInit:
    """A start of the adapter has a name; `start(adapter, text, widths, settings)` changes random weights in place.

    `text` [items, f] are vectors of the items that it may look at, `widths` those of the layers, the text's first.
    """

    name: str
    start: Callable[[dict[str, Tensor], Tensor, Sequence[int], Any], None]


@dataclass(frozen=True)
class Head:
    """A form of the local head has a name; `apply(vectors, out)` is what is made of its input and its MLP's output.

    `zero`: the MLP's last layer starts at 0. `own_adapter`: it stands on the encoder in the adapter's place, and is
    the adapter as rounds left it until the client trains it: its tensors are what the client changed, zeros at first. A
    program takes it along to other processes, so it has a name of its own.
    """

    name: str
    apply: Callable[[Tensor, Tensor], Tensor]
    zero: bool
    own_adapter: bool = False


CLIENTS: Table[Client] = Table("client", Client, home="edgefr.methods.transfr.known")
"""What a client can run."""

ADAPTER_INITS: Table[AdapterInit] = Table("adapter_init", AdapterInit, home="edgefr.methods.transfr.known")
"""How the adapter can start."""

HEADS: Table[Head] = Table("head_form", Head, home="edgefr.methods.transfr.known")
"""What a client's own head can do to the vectors that all learned together."""
