"""GRU4Rec (Hidasi et al., 2016) is a recurrent unit over a window of items.

Owns: the encoder's tensors and its forward pass. Does not own: the item table, the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from edgefr.methods.fcucr.layers import Drop, dense, dense_shapes, dropped, init_xavier
from export.program import Tensors


@dataclass(frozen=True)
class GRU4Rec:
    """This is a layer of gated recurrent units; its states are the features, and padding leaves the state as it is.

    Gates stand in the order reset, update, candidate, as in torch's GRU, with one bias each: the candidate alone has a
    second bias inside its reset gate, since elsewhere the two would add up.

    >>> encoder = GRU4Rec(dim=4, length=3)
    >>> encoder.specs()
    {'input.weight': (4, 12), 'input.bias': (12,), 'state.weight': (4, 12), 'state.bias': (4,)}
    """

    dim: int = 50
    length: int = 15

    def specs(self) -> dict[str, tuple[int, ...]]:
        d = self.dim
        return dense_shapes("input", d, 3 * d) | {"state.weight": (d, 3 * d), "state.bias": (d,)}

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {"embedding": (self.length, self.dim)}

    def init(self, seed: int) -> dict[str, Tensor]:
        return init_xavier(seed, self.specs(), dict.fromkeys(("input.weight", "state.weight"), 2 * self.dim))

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor, drop: Drop | None = None) -> Tensor:
        given = dense(tensors, "input", dropped(drop, "embedding", x))
        return cast(
            Tensor, _Recurrence.apply(given, tensors["state.weight"], tensors["state.bias"], real.unsqueeze(-1))
        )


class _Recurrence(torch.autograd.Function):
    """This computes states [..., L, d] from what inputs add to the gates [..., L, 3d].

    The backward pass is by hand: the weights' gradient is then one product over all positions, not a sum of L matrices
    per client.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        dim = weight.shape[-2]
        state = torch.zeros_like(given[..., :1, :dim])
        before, gates, inner, candidates = [], [], [], []
        offset = torch.cat([torch.zeros_like(weight[..., 0, : 2 * dim]), bias], dim=-1).unsqueeze(-2)
        for t in range(given.shape[-2]):
            at = given[..., t : t + 1, :]
            added = torch.matmul(state, weight) + offset
            gate = torch.sigmoid(at[..., : 2 * dim] + added[..., : 2 * dim])
            candidate = torch.tanh(torch.addcmul(at[..., 2 * dim :], gate[..., :dim], added[..., 2 * dim :]))
            before.append(state)
            gates.append(gate)
            inner.append(added[..., 2 * dim :])
            candidates.append(candidate)
            kept = 1 - (1 - gate[..., dim:]) * mask[..., t : t + 1, :]
            state = torch.lerp(candidate, state, kept)
        states = torch.cat([*before[1:], state], dim=-2)
        kept_back = (torch.cat(parts, dim=-2) for parts in (before, gates, inner, candidates))
        ctx.save_for_backward(weight, mask, *kept_back)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, mask, before, gates, inner, candidate = ctx.saved_tensors
        dim = weight.shape[-2]
        reset, update = gates[..., :dim], gates[..., dim:]
        moved = (1 - update) * mask  # share of the candidate in the new state
        # what a state's gradient is multiplied with to be that of a gate's input
        of_candidate = moved * (1 - candidate * candidate)
        of_reset = of_candidate * inner * reset * (1 - reset)
        of_update = (before - candidate) * update * moved
        into_state = torch.stack([of_reset, of_update, of_candidate * reset], dim=-2)  # [..., L, 3, d]
        turned, kept = weight.transpose(-1, -2), 1 - moved
        after = torch.zeros_like(before[..., :1, :])
        of_states, of_added = [], []
        for t in reversed(range(before.shape[-2])):
            now = gradients[0][..., t : t + 1, :] + after
            added = (now.unsqueeze(-2) * into_state[..., t : t + 1, :, :]).flatten(-2)
            after = torch.addcmul(torch.matmul(added, turned), now, kept[..., t : t + 1, :])
            of_states.append(now)
            of_added.append(added)
        state, added = torch.cat(of_states[::-1], dim=-2), torch.cat(of_added[::-1], dim=-2)
        given = torch.cat([added[..., : 2 * dim], state * of_candidate], dim=-1)
        of_weight = torch.matmul(before.transpose(-1, -2), added).sum_to_size(weight.shape)
        of_bias = added[..., 2 * dim :].sum(-2)
        while of_bias.dim() >= weight.dim():
            of_bias = of_bias.sum(0)
        return given, of_weight, of_bias, None
