"""TransFR is put together from registered parts: what a client runs, how its adapter starts, what its head adds.

The tables are here without torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.given import Given
    from edgefr.methods.transfr.program import TransFR
    from edgefr.methods.transfr.settings import TransFRSettings


@dataclass(frozen=True)
class Client:
    """A client has a name; `build(settings, given)` makes the program that it runs.

    `reads`: it runs the encoder itself, with LoRA matrices of the run's own, which are kept in peft's format too.
    """

    name: str
    build: Callable[[TransFRSettings, Given], TransFR]
    reads: bool


@dataclass(frozen=True)
class AdapterInit:
    """A start of the adapter has a name; `start(adapter, text, widths, settings)` changes random weights in place.

    `text` [items, f] are vectors of the items that it may look at, `widths` those of the layers, the text's first.
    """

    name: str
    start: Callable[[dict[str, Tensor], Tensor, Sequence[int], TransFRSettings], None]


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


CLIENTS: Table[Client] = Table("client", Client)
"""What a client can run."""

ADAPTER_INITS: Table[AdapterInit] = Table("adapter_init", AdapterInit)
"""How the adapter can start."""

HEADS: Table[Head] = Table("head_form", Head)
"""What a client's own head can do to the vectors that all learned together."""


def _mlp(settings: TransFRSettings, given: Given) -> TransFR:
    from edgefr.methods.transfr.program import TransFR

    assert given.text is not None
    return TransFR(settings, given.text, given.local_epochs, given.source)


def _lora(settings: TransFRSettings, given: Given) -> TransFR:
    from edgefr.methods.transfr.lora import LoRATransFR

    assert given.reader is not None
    return LoRATransFR(settings, given.reader(), given.text, given.local_epochs, given.source)


def _pca(adapter: dict[str, Tensor], text: Tensor, widths: Sequence[int], settings: TransFRSettings) -> None:
    from edgefr.methods.transfr.adapter import carry_main_directions

    carry_main_directions(adapter, text, widths, settings.adapter_norm)


def _plain(vectors: Tensor, out: Tensor) -> Tensor:
    return out


CLIENTS.register(Client("mlp", _mlp, reads=False))
CLIENTS.register(Client("lora", _lora, reads=True))
ADAPTER_INITS.register(AdapterInit("pca", _pca))
ADAPTER_INITS.register(AdapterInit("random", lambda adapter, text, widths, settings: None))
HEADS.register(Head("residual", operator.add, zero=True))
HEADS.register(Head("plain", _plain, zero=False))
HEADS.register(Head("adapter", _plain, zero=False, own_adapter=True))
