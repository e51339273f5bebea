"""HearInt (Wang et al., IJCAI 2024) joins the short-term intent of a session, read in order, to that of its graph.

    items with places → attention of the newest item → two layers ─┐
    graph by order and by weight → gate → soft attention ──────────┴ gate → one vector

Intents are told apart while a client trains: in order what points away from the newest item counts less, in the graph
what points away from the session's mean. Shared: item table and encoder. Private: nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgefr.methods.fcucr.layers import MASKED, dense, dense_shapes
from edgefr.methods.hearint.settings import HearIntSettings
from edgefr.methods.prefixes import Prefixes, PrefixProgram, identity, mean_of, unit
from edgefr.methods.session_graph import KINDS, attended, attention, graph, levels, logged, relations
from export.batches import Window
from export.program import Tensors

SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772
"""Of the self-normalising rectifier: unit variance stays unit variance."""


class HearInt(PrefixProgram):
    """HearInt predicts the next item of a session; see `HearIntSettings`."""

    name = "hearint"
    settings: HearIntSettings
    inner = True

    def encoder_shapes(self) -> dict[str, tuple[int, ...]]:
        d = self.settings.dim
        shapes: dict[str, tuple[int, ...]] = {"position": (self.settings.length, d)}
        shapes |= {"order": (KINDS, d), "level": (KINDS, d)}
        for name in ("query", "inner", "outer", "asked"):
            shapes |= dense_shapes(name, d, d)
        shapes |= dense_shapes("mix", 2 * d, d) | {"place.weight": (2 * d, d), "whole.weight": (d, d)}
        return shapes | {"share.weight": (d, 1), "blend.weight": (2 * d, d)}

    def intents(self, tensors: Tensors, made: Prefixes, training: bool) -> Tensor:
        newest, middle = made.x[..., -made.seen.shape[-2] :, :], mean_of(made.x, made.seen)
        weights = (made.seen * self._near(made, of) if training else made.seen for of in (newest, middle))
        short = self._short(tensors, made, newest + tensors["position"][..., :1, :], next(weights))
        long = self._long(tensors, made, next(weights))
        gate = torch.sigmoid(torch.matmul(torch.cat([short, long], dim=-1), tensors["blend.weight"]))
        return unit(gate * short + (1 - gate) * long).unsqueeze(-2)

    def match(self, intents: Tensor, vectors: Tensor) -> Tensor:
        return torch.matmul(vectors, intents.transpose(-1, -2)).squeeze(-1)

    def beside(self, made: Prefixes, intents: Tensor, targets: Tensor, batch: Window) -> Tensor | None:
        """Return the contrast: a prefix lies near its target, far from other prefixes and other targets."""
        pair = torch.cat([intents.squeeze(-2), targets.detach()], dim=-2)  # [..., 2 T, d]
        number, weight = (torch.cat([part, part], dim=-1) for part in (batch.positive, batch.weight))
        own = identity(made.seen.shape[-2], pair)
        none = torch.zeros_like(own)
        partner = torch.cat([torch.cat([none, own], dim=-1), torch.cat([own, none], dim=-1)])
        other = (number.unsqueeze(-1) != number.unsqueeze(-2)) & (weight > 0).unsqueeze(-2)
        cosines = torch.matmul(pair, pair.transpose(-1, -2)) / self.settings.contrast_temperature
        among = cosines + (1 - torch.maximum(other.to(pair.dtype), partner)) * MASKED
        each = torch.logsumexp(among, dim=-1) - (cosines * partner).sum(-1)
        return self.settings.contrast * (each * weight).sum(-1) / 2

    def _near(self, made: Prefixes, of: Tensor) -> Tensor:
        """Return how much items count [..., T, L] that are told apart by a vector of each prefix [..., T, d]."""
        along = torch.matmul(of.detach(), made.x.detach().transpose(-1, -2))
        return torch.where(along > 0, 1.0, 1 - self.settings.apart)

    def _short(self, tensors: Tensors, made: Prefixes, newest: Tensor, weight: Tensor) -> Tensor:
        query = selu(dense(tensors, "query", newest))
        x = made.x.index_select(-2, made.at) + tensors["position"].index_select(-2, made.away)  # [..., P, d]
        scores = (query.index_select(-2, made.of) * x).sum(-1, keepdim=True) * x.shape[-1] ** -0.5
        share = torch.softmax(made.spread(scores).squeeze(-1) + logged(weight), dim=-1)
        found = torch.matmul(made.members * made.reached(share).unsqueeze(-2), x)
        return found + dense(tensors, "outer", selu(dense(tensors, "inner", found)))

    def _long(self, tensors: Tensors, made: Prefixes, weight: Tensor) -> Tensor:
        of = graph(made)
        by_order, by_weight = (
            attended(attention(made, tensors[name], kinds, weight * of.nodes), made.x)
            for name, kinds in (("order", relations(of)), ("level", levels(made, of)))
        )
        gate = torch.sigmoid(dense(tensors, "mix", torch.cat([by_order, by_weight], dim=-1)))
        nodes = gate * by_order + (1 - gate) * by_weight  # [..., P, d]
        upper, lower = tensors["place.weight"].split(self.settings.dim, dim=-2)
        place = torch.matmul(tensors["position"], upper).index_select(-2, made.away)
        told = torch.tanh(place + torch.matmul(nodes, lower))
        counts = made.members * made.reached(weight).unsqueeze(-2)  # [..., T, P]
        middle = torch.matmul(counts / weight.sum(-1, keepdim=True), nodes)
        whole = torch.matmul(middle, tensors["whole.weight"]).index_select(-2, made.of)
        share = torch.matmul(torch.sigmoid(dense(tensors, "asked", told) + whole), tensors["share.weight"])
        return torch.matmul(counts * share.transpose(-1, -2), nodes)


def selu(x: Tensor) -> Tensor:
    """Return the self-normalising rectifier of x (Klambauer et al., 2017), in operators that a device has."""
    return SCALE * torch.where(x > 0, x, ALPHA * (x.clamp_max(0.0).exp() - 1))
