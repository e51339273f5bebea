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
from edgefr.methods.given import Given
from edgefr.methods.prefixes import Prefixes, PrefixProgram, placed, unit
from edgefr.methods.session_graph import KINDS, attended, graph, relations
from export.batches import Window
from export.program import Tensors


class DMIGNN(PrefixProgram):
    """DMI-GNN predicts the next item of a session; see `DMIGNNSettings`.

    >>> DMIGNN(DMIGNNSettings(dim=4, length=3), items=10, local_epochs=4).specs["encoder.share.weight"].shape
    (3, 4)
    """

    name = "dmi-gnn"

    def __init__(self, settings: DMIGNNSettings, items: int, local_epochs: int) -> None:
        self.settings, d, k = settings, settings.dim, settings.interests
        shapes: dict[str, tuple[int, ...]] = {"position": (settings.length, d), "order": (KINDS, d)}
        shapes |= {"place.weight": (2 * d, d)} | dense_shapes("pattern", d, k * d)
        super().__init__(settings, items, local_epochs, shapes | {"share.weight": (k, d), "share.bias": (k,)})

    def intents(self, tensors: Tensors, made: Prefixes, training: bool) -> Tensor:
        """Return a vector per interest, and behind it its share of every position: [..., T, K, d + L]."""
        of = graph(made)
        nodes = attended(made.x, tensors["order"], relations(of), of.nodes)
        place = placed(tensors["position"], made.away).expand_as(nodes)
        told = torch.tanh(torch.matmul(torch.cat([place, nodes], dim=-1), tensors["place.weight"]))
        pattern = torch.tanh(dense(tensors, "pattern", told)).unflatten(-1, (self.settings.interests, -1))
        share = (pattern * tensors["share.weight"].unsqueeze(-3)).sum(-1) + tensors["share.bias"].unsqueeze(-2)
        share = share.transpose(-1, -2) * made.seen.unsqueeze(-2)  # [..., T, K, L]
        return torch.cat([torch.matmul(share, nodes), share], dim=-1)

    def match(self, intents: Tensor, vectors: Tensor) -> Tensor:
        return torch.matmul(vectors, intents[..., : self.settings.dim].transpose(-1, -2)).amax(-1)

    def beside(self, made: Prefixes, intents: Tensor, targets: Tensor, batch: Window) -> Tensor | None:
        """Return how alike the patterns of long sessions are, and how unlike those of short ones.

        Patterns of one item are alike whatever they are: a gradient would be rounding, of which Adam makes whole steps.
        """
        shares = unit(intents[..., self.settings.dim :]).unbind(-2)
        pairs = [(one * other).sum(-1).abs() for one, other in combinations(shares, 2)]
        alike = torch.stack(pairs, dim=-1).mean(-1)
        count = made.seen.sum(-1)
        alike, beyond = torch.where(count > 1, alike, alike.detach()), count - self.settings.long
        return self.settings.regular * (torch.sigmoid(alike * beyond) * batch.weight).sum(-1)


def build(settings: DMIGNNSettings, given: Given) -> DMIGNN:
    """Build the program by these settings."""
    return DMIGNN(settings, given.items, given.local_epochs)
