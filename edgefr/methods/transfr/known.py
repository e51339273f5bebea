"""These are TransFR's registered parts: its clients, the starts of its adapter, the forms of its head."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefr.methods.transfr.parts import ADAPTER_INITS, CLIENTS, HEADS, AdapterInit, Client, Head

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.methods.transfr.program import TransFR
    from edgefr.methods.transfr.settings import TransFRSettings
    from export.given import Given


def _mlp(settings: TransFRSettings, given: Given) -> TransFR:
    from edgefr.methods.transfr.program import TransFR

    assert given.text is not None
    return TransFR(settings, given.text, given.local_epochs, given.source)


def _lora(settings: TransFRSettings, given: Given) -> TransFR:
    from edgefr.methods.transfr.lora import LoRATransFR

    assert given.reader is not None
    return LoRATransFR(settings, given.reader(), given.text, given.local_epochs, given.source)


def _pca(adapter: dict[str, Tensor], text: Tensor, widths: Sequence[int], settings: TransFRSettings) -> None:
    from edgefr.methods.transfr.program import carry_main_directions

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
