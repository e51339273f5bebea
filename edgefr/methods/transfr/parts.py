"""TransFR is put together from registered parts: what a client runs, how its adapter starts, what its head adds.

They import no torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefr.experiment.method import late
from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from export.given import Given
    from export.program import LocalProgram


@dataclass(frozen=True)
class Client:
    """`build(settings, given)` makes a client's program. `reads`: it runs the encoder with LoRA matrices."""

    name: str
    build: Callable[[Any, Given], LocalProgram]
    reads: bool


@dataclass(frozen=True)
class AdapterInit:
    """A start of the adapter: `start(adapter, text, widths, settings)` changes random weights in place.

    `text` [items, f] are the item vectors that it may read, `widths` those of the layers, the text's first.
    """

    name: str
    start: Callable[[dict[str, Tensor], Tensor, Sequence[int], Any], None]


@dataclass(frozen=True)
class Head:
    """`apply(vectors, out)` joins the local head's input and its MLP's output; it travels to worker processes.

    `zero`: the MLP's last layer starts at 0. `own_adapter`: the head replaces the adapter on the client; its tensors
    are the client's changes, zeros at first.
    """

    name: str
    apply: Callable[[Tensor, Tensor], Tensor]
    zero: bool
    own_adapter: bool = False


CLIENTS: Table[Client] = Table("client", Client)
"""What a client can run."""

ADAPTER_INITS: Table[AdapterInit] = Table("adapter_init", AdapterInit)
"""How the adapter can start."""

HEADS: Table[Head] = Table("head_form", Head)
"""What a client's own head can do to the vectors that all learned together."""


def _plain(vectors: Tensor, out: Tensor) -> Tensor:
    return out


CLIENTS.register(Client("mlp", late("edgefr.methods.transfr.program:TransFR.build"), reads=False))
CLIENTS.register(Client("lora", late("edgefr.methods.transfr.lora:LoRATransFR.build"), reads=True))
ADAPTER_INITS.register(AdapterInit("pca", late("edgefr.methods.transfr.main_directions:start")))
ADAPTER_INITS.register(AdapterInit("random", lambda adapter, text, widths, settings: None))
HEADS.register(Head("residual", operator.add, zero=True))
HEADS.register(Head("plain", _plain, zero=False))
HEADS.register(Head("adapter", _plain, zero=False, own_adapter=True))
