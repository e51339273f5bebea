"""This gives FedCAR's gradients by the compiled encoder, where it has the form that was compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from export.batches import Batch
from export.program import Phase, Tensors

if TYPE_CHECKING:
    from edgefr.methods.fedcar.compiled_losses import Tensors as Arrays
    from edgefr.methods.fedcar.encoder import Encoder


def is_compiled(encoder: Encoder, negative: str, tensors: Tensors, batch: Batch) -> bool:
    """Say whether gradients on these tensors are compiled: those of the paper's encoder, on the host."""
    e, rows, pairs = encoder, tensors["item"], batch.pairs
    plain = e.heads == 1 and e.norm.after and not e.norm.before and not e.projected
    if not plain or negative not in ("none", "encoder") or pairs is None or pairs.context is None:
        return False
    return rows.ndim == 3 and rows.device.type == "cpu" and rows.dtype == torch.float32


def gradients(encoder: Encoder, margin: float, tensors: Tensors, batch: Batch, phase: Phase) -> dict[str, Tensor]:
    """Return the gradients of a phase's loss by the names of what it trains; only where `is_compiled`."""
    from edgefr.methods.fedcar import compiled_losses as compiled

    pairs = batch.pairs
    assert pairs is not None
    assert pairs.context is not None
    assert pairs.there is not None
    rows = tensors["item"]
    clients = len(rows)
    own = {n: _wide(tensors["encoder." + n], clients, shape) for n, shape in encoder.shapes.items()}
    now, out = _arrays(own), compiled.Tensors(*(np.zeros(value.shape, np.float32) for value in own.values()))
    shown = [_array(v) for v in (rows, pairs.context, pairs.there, pairs.candidates)]
    found: dict[str, Tensor] = {}
    if phase.name == "recommend":
        scorer, bias = tensors["scorer.weight"], tensors["scorer.bias"]
        made = compiled.recommend(now, *shown, _array(pairs.share), _array(scorer), _array(bias), out)
        found = dict(zip(("item", "scorer.weight", "scorer.bias"), map(torch.from_numpy, made), strict=True))
    else:
        message = tensors["message"]
        heard = tensors["previous.known"] * message.abs().amax(-1, keepdim=True).gt(0)
        before, other = _arrays({n: tensors["previous." + n] for n in own}), _arrays(encoder.parted(message))
        weight = _array(pairs.share * heard)
        compiled.contrast(now, before, other, *shown, weight, np.float32(margin), out)
    found |= {"encoder." + name: torch.from_numpy(getattr(out, name)) for name in own}
    return {name: found[name] for name in phase.trains}


def _arrays(tensors: Tensors) -> Arrays:
    from edgefr.methods.fedcar.compiled_losses import Tensors as Arrays

    return Arrays(**{name: _array(value) for name, value in tensors.items()})


def _wide(tensor: Tensor, clients: int, shape: tuple[int, ...]) -> Tensor:
    return tensor.expand(clients, *shape)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
