"""This gives FedCAR's gradients by the compiled encoder, where it has the form that was compiled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from export.batches import Batch
from export.program import Phase, Tensors

if TYPE_CHECKING:
    from edgefr.methods.fedcar.compiled import Layers
    from edgefr.methods.fedcar.program import FedCAR

LAYERS = ("position", "value", "wide", "wide_bias", "narrow", "narrow_bias")
"""Tensors of an encoder that are compiled as they are; query and key come in as their product."""


def is_compiled(program: FedCAR, tensors: Tensors, batch: Batch) -> bool:
    """Say whether gradients of this program on these tensors are compiled: the paper's encoder, on the host."""
    e, rows, pairs = program.encoder, tensors["item"], batch.pairs
    plain = program.needs_history and e.heads == 1 and e.norm.after and not e.norm.before and not e.projected
    if not plain or program.settings.negative not in ("none", "encoder") or pairs is None or pairs.context is None:
        return False
    return rows.ndim == 3 and rows.device.type == "cpu" and rows.dtype == torch.float32


def gradients(program: FedCAR, tensors: Tensors, batch: Batch, phase: Phase) -> dict[str, Tensor]:
    """Return the gradients of a phase's loss by the names of what it trains; only where `is_compiled`."""
    from edgefr.methods.fedcar import compiled

    pairs = batch.pairs
    assert pairs is not None
    assert pairs.context is not None
    assert pairs.there is not None
    rows = tensors["item"]
    clients = len(rows)
    own = {n: _wide(tensors["encoder." + n], clients, shape) for n, shape in program.encoder.shapes.items()}
    layers = _layers(program, own)
    out = compiled.Layers(*(torch.zeros_like(torch.from_numpy(value)).numpy() for value in layers))
    contexts, places = pairs.context, pairs.candidates
    shown = [_array(v) for v in (rows, contexts, pairs.there, places)]
    found: dict[str, Tensor] = {}
    if phase.name == "recommend":
        scorer, bias = tensors["scorer.weight"], tensors["scorer.bias"]
        made = compiled.recommend(layers, *shown, _array(pairs.share), _array(scorer), _array(bias), out)
        found = dict(zip(("item", "scorer.weight", "scorer.bias"), map(torch.from_numpy, made), strict=True))
    else:
        message = tensors["message"]
        heard = tensors["previous.known"] * message.abs().amax(-1, keepdim=True).gt(0)
        before = _layers(program, {n: tensors["previous." + n] for n in own})
        other = _layers(program, program.encoder.parted(message))
        weight, margin = _array(pairs.share * heard), rows.new_tensor(program.settings.margin).numpy()[()]
        compiled.contrast(layers, before, other, *shown, weight, margin, out)
    found |= {"encoder." + name: torch.from_numpy(getattr(out, name)) for name in LAYERS}
    meet = torch.from_numpy(out.meet) / math.sqrt(program.encoder.dim)
    found["encoder.query"], found["encoder.key"] = meet @ own["key"], meet.transpose(-1, -2) @ own["query"]
    return {name: found[name] for name in phase.trains}


def _layers(program: FedCAR, tensors: Tensors) -> Layers:
    """Return an encoder's tensors as arrays of all clients."""
    from edgefr.methods.fedcar.compiled import Layers

    meet = tensors["query"] @ tensors["key"].transpose(-1, -2) / math.sqrt(program.encoder.dim)
    return Layers(meet=_array(meet), **{name: _array(tensors[name]) for name in LAYERS})


def _wide(tensor: Tensor, clients: int, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of each client, also of one that all have in common."""
    return tensor.expand(clients, *shape)


def _array(tensor: Tensor) -> object:
    return tensor.detach().contiguous().numpy()
