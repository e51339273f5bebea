"""The encoder turns a context into what a candidate sees of it (FedCAR Eq. 10-13): one Transformer layer, attention.

A context is [..., P, L, d], `there` [..., P, L] is 1 where it has an item; tensors are one client's, over their last
dimensions. What is open in the paper is a setting: heads, width, where it normalises, whether the attention learns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from edgefr.methods.fedcar.parts import EncoderForm, Shown
from edgefr.methods.losses import init_rows

NOWHERE = -1e9
"""The logit of a place without an item: its share of the attention is exactly 0."""

POSITIONS = 0.02
"""Standard deviation of the first positions, as usual for Transformers."""


class ContextEncoder(EncoderForm):
    """An encoder of some form says what its first values are, and what is computed with its tensors."""

    def first(self, seed: int, prefix: str) -> dict[str, Tensor]:
        out = {}
        for name, shape in self.shapes.items():
            scale = POSITIONS if name == "position" else 0.0 if len(shape) == 1 else 1 / math.sqrt(shape[0])
            out[prefix + name] = init_rows(seed, prefix + name, shape, scale)
        return out

    def joined(self, tensors: Mapping[str, Tensor], *more: Tensor) -> Tensor:
        """Return an encoder as one vector [..., values], with other vectors behind."""
        flat = [tensors[name].flatten(-len(shape)) for name, shape in self.shapes.items()]
        return torch.cat([*flat, *more], dim=-1)

    def parted(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the encoder that a vector [..., values] is."""
        parts = torch.split(vector, [math.prod(shape) for shape in self.shapes.values()], dim=-1)
        return {n: part.unflatten(-1, shape) for (n, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def context(self, tensors: Mapping[str, Tensor], shown: Shown) -> Tensor:
        """Return c of every candidate, [..., P, K, d] (FedCAR Eq. 10-13)."""
        share, values = self.attended(tensors, shown)
        return share.transpose(-1, -2) @ values

    def attended(self, tensors: Mapping[str, Tensor], shown: Shown) -> tuple[Tensor, Tensor]:
        """Return each place's share for a candidate [..., P, L, K], and the values [..., P, L, d].

        Shares sum to 1 (0: no context). The query may be [K, d], the same for all clients.
        """
        keys = values = self._hidden(tensors, shown)
        query = shown.query
        if self.projected:
            keys, values = (through(keys, tensors[name]) for name in ("context_key", "context_value"))
            asked = tensors["candidate"]
            query = query @ asked if query.ndim == 2 else through(query, asked)
        logits = torch.matmul(keys, query.transpose(-1, -2)) / math.sqrt(self.dim)
        some = shown.there.amax(-1, keepdim=True).unsqueeze(-1)
        return torch.softmax(logits + _mask(shown), dim=-2) * some, values  # FedCAR Eq. 13

    def _hidden(self, tensors: Mapping[str, Tensor], shown: Shown) -> Tensor:
        """Return H [..., P, L, d]."""
        z = shown.rows + tensors["position"].unsqueeze(-3)  # FedCAR Eq. 10
        z = self._after(z + self._mixed(tensors, self._before(z), _mask(shown)))
        inner = torch.relu(through(self._before(z), tensors["wide"], tensors["wide_bias"]))
        return self._after(z + through(inner, tensors["narrow"], tensors["narrow_bias"]))  # FedCAR Eq. 11

    def _mixed(self, tensors: Mapping[str, Tensor], z: Tensor, mask: Tensor) -> Tensor:
        """Return what self-attention adds; of each head the matrices that meet are one product."""
        width, found = self.dim // self.heads, []
        for head in range(self.heads):
            own = slice(head * width, (head + 1) * width)
            meet = tensors["query"][..., own] @ tensors["key"][..., own].transpose(-1, -2) / math.sqrt(width)
            value = tensors["value"][..., own]
            value = value @ tensors["output"][..., own, :] if self.heads > 1 else value
            share = torch.softmax(z @ through(z, meet).transpose(-1, -2) + mask, dim=-2)
            found.append(through(share.transpose(-1, -2) @ z, value))
        return found[0] if len(found) == 1 else torch.stack(found).sum(0)

    def _before(self, z: Tensor) -> Tensor:
        return _normed(z) if self.norm.before else z

    def _after(self, z: Tensor) -> Tensor:
        return _normed(z) if self.norm.after else z


def through(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x [..., P, L, d] through a client's own layer [..., d, e]: one product of matrices for all positions."""
    length = x.shape[-2]
    found = x.flatten(-3, -2) @ weight
    return (found if bias is None else found + bias.unsqueeze(-2)).unflatten(-2, (-1, length))


def _mask(shown: Shown) -> Tensor:
    return (1.0 - shown.there).unsqueeze(-1) * NOWHERE


def _normed(z: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(z, z.shape[-1:])
