"""Several prototypes become one (FCUCR Eq. 6): this says what a fusion is, and takes the mean that all start from.

A fusion is one entry of `FUSIONS`, in a file of its own under `cloud/fusions`. Owns: the contract. Does not own: the
fusions, which prototypes are fused (`cloud.prototypes`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.settings import KnowledgeSettings


class Fusion(ABC):
    """A fusion is everything that its name means. `citation`: where it is from."""

    name: str
    settings: type[KnowledgeSettings]
    citation: str

    @abstractmethod
    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        """Make one vector per client of the prototypes that were found for it: float64 [C, P].

        `sets` [C, k, P]; `cosines` [C, k] to the client's query; `present` bool [C, k] says which of them there are;
        `queries` [C, P]. Without any prototype: zeros.
        """


FUSIONS: Table[Fusion] = Table("fusion", Fusion, home="cloud.fusions")


def fused(sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor, settings: KnowledgeSettings) -> Tensor:
    """Make one vector per client as the settings' fusion does, see `Fusion.fused`.

    >>> import torch
    >>> from cloud.settings import KnowledgeSettings
    >>> sets, present = torch.tensor([[[0.0, 2.0], [4.0, 2.0], [2.0, 2.0]]]), torch.tensor([[True, True, True]])
    >>> cosines, query = torch.tensor([[0.9, 0.5, 0.7]]), torch.tensor([[3.0, 7.0]])
    >>> fused(sets, cosines, present, query, KnowledgeSettings(fusion="mean")).tolist()
    [[2.0, 2.0]]
    >>> fused(sets, cosines, present, query, KnowledgeSettings(fusion="pca")).round(decimals=9).tolist()
    [[3.0, 2.0]]
    """
    made: Tensor = settings.entry.fused(settings, sets, cosines, present, queries)
    return made


def weighted_mean(sets: Tensor, present: Tensor, counted: Tensor) -> Tensor:
    """Return the mean over the prototypes that are there, float64 [C, P].

    `counted` float64 [C, k] says how much each counts.
    """
    weights = counted / counted.sum(1, keepdim=True).clamp_min(float(np.finfo(np.float64).tiny))
    return (weights.unsqueeze(1) @ sets.double().masked_fill(~present.unsqueeze(2), 0.0)).squeeze(1)
