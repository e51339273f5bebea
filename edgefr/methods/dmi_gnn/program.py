"""DMI-GNN (Lv, Liu & Xu, AAAI 2025) makes several interests of a session's graph; the best of them scores an item.

    unit item vectors → attention over the session's graph → nodes with places → K patterns of shares → K interests

A term holds the patterns of long sessions apart and those of short ones together. Shared: item table and encoder.
Private: nothing.
"""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from edgefr.methods.dmi_gnn.settings import DMIGNNSettings
from edgefr.methods.fcucr.layers import dense, dense_shapes
from edgefr.methods.prefixes import Prefixes, PrefixProgram, identity, unit
from edgefr.methods.session_graph import KINDS, attended, attention, graph, relations
from export.batches import Window
from export.program import Tensors


class DMIGNN(PrefixProgram):
    """DMI-GNN predicts the next item of a session; see `DMIGNNSettings`."""

    name = "dmi-gnn"
    settings: DMIGNNSettings

    def encoder_shapes(self) -> dict[str, tuple[int, ...]]:
        s, d, k = self.settings, self.settings.dim, self.settings.interests
        shapes: dict[str, tuple[int, ...]] = {"position": (s.length, d), "order": (KINDS, d)}
        shapes |= {"place.weight": (2 * d, d)} | dense_shapes("pattern", d, k * d)
        return shapes | {"share.weight": (k, d), "share.bias": (k,)}

    def intents(self, tensors: Tensors, made: Prefixes, training: bool) -> Tensor:
        of, (upper, lower) = graph(made), tensors["place.weight"].split(self.settings.dim, dim=-2)
        links = attention(made, tensors["order"], relations(of), of.nodes)
        place = torch.matmul(tensors["position"], upper).index_select(-2, made.away)
        told = torch.tanh(place + attended(links, torch.matmul(made.x, lower)))
        pattern = torch.tanh(dense(tensors, "pattern", told))
        share = torch.matmul(apart(tensors["share.weight"]), pattern.transpose(-1, -2))
        share = (share + tensors["share.bias"].unsqueeze(-1)) * made.reached(made.seen).unsqueeze(-2)  # [..., K, P]
        of_items = torch.matmul(share.unsqueeze(-2) * links.unsqueeze(-3), made.members.transpose(-1, -2))
        of_items = of_items.movedim(-1, -3)  # [..., T, K, L]
        found = torch.matmul(of_items.flatten(-3, -2), made.x).unflatten(-2, of_items.shape[-3:-1])
        return torch.cat([found, made.spread(share.transpose(-1, -2)).transpose(-1, -2)], dim=-1)

    def match(self, intents: Tensor, vectors: Tensor) -> Tensor:
        return torch.matmul(vectors, intents[..., : self.settings.dim].transpose(-1, -2)).amax(-1)

    def beside(self, made: Prefixes, intents: Tensor, targets: Tensor, batch: Window) -> Tensor | None:
        """Return how alike patterns of long sessions are, less short ones'; single items have no gradient."""
        shares = unit(intents[..., self.settings.dim :]).unbind(-2)
        pairs = [(one * other).sum(-1).abs() for one, other in combinations(shares, 2)]
        alike = torch.stack(pairs, dim=-1).mean(-1)
        count = made.seen.sum(-1)
        alike, beyond = torch.where(count > 1, alike, alike.detach()), count - self.settings.long
        return self.settings.regular * (torch.sigmoid(alike * beyond) * batch.weight).sum(-1)


def apart(weight: Tensor) -> Tensor:
    """Return vectors [..., K, d] each in a block of its own, [..., K, K d].

    >>> apart(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0]]
    """
    return (identity(weight.shape[-2], weight).unsqueeze(-1) * weight.unsqueeze(-2)).flatten(-2)
