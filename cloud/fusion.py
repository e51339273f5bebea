"""Several prototypes become one (FCUCR Eq. 6) by a fusion, one entry of `FUSIONS` in a file under `cloud/fusions`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from cloud.index import INDEXES
from privacy.setting_scope import named_in
from privacy.table import Choice, Table

if TYPE_CHECKING:
    from torch import Tensor


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
    >>> from cloud.fusion import KnowledgeSettings
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
    """Return the mean of the prototypes that are there, float64 [C, P]; `counted` [C, k] says how much each counts."""
    weights = counted / counted.sum(1, keepdim=True).clamp_min(float(np.finfo(np.float64).tiny))
    return (weights.unsqueeze(1) @ sets.double().masked_fill(~present.unsqueeze(2), 0.0)).squeeze(1)


class KnowledgeSettings(Choice):
    """This is what the server does with clients' prototypes.

    It is FCUCR §4.2; the defaults are what its authors released.

    >>> [number for number in range(1, 8) if KnowledgeSettings(interval=3).transfers(number)]
    [1, 4, 7]
    """

    model_config = ConfigDict(allow_inf_nan=False)
    table: ClassVar[Table[Any]] = FUSIONS
    key: ClassVar[str] = "fusion"

    top_k: int = Field(20, ge=1, description="prototypes an answer is made of (Eq. 5); 1 hands one over as it is")
    window: int | None = Field(
        None, ge=1, description="rounds whose prototypes are kept, the present one included; empty: all (Table 4)"
    )
    replace: bool = Field(
        True,
        description="whether a session's prototype takes the place of its older one, as released; "
        "false: every round's is kept (Eq. 4)",
    )
    interval: int = Field(1, ge=1, description="rounds from one transfer to the next (Table 5)")
    fusion: str = Field(
        "softmax",
        description="how they become one (Eq. 6): mean; softmax: mean weighted by softmax(cosine / temperature); "
        "pca: the point closest to the query on the line along which they vary most; attention: mean weighted by "
        "softmax(query · prototype / sqrt(width))",
    )
    least_clients: int = Field(
        1, ge=1, description="an answer made of fewer other clients than this is zeros; 1: as published, any answer"
    )
    index: Annotated[str, named_in(INDEXES)] = Field(
        "auto",
        description="exact: compares with all; faiss: with the nearest clusters (needs the extra faiss); "
        "auto: exact up to 100,000 prototypes, then faiss",
    )

    @model_validator(mode="after")
    def _enough_clients(self) -> KnowledgeSettings:
        if self.least_clients > self.top_k:
            raise ValueError(
                f"least_clients must be at most top_k: {self.top_k} prototypes are of {self.top_k} clients at most"
            )
        return self

    def transfers(self, number: int) -> bool:
        """Say whether prototypes are sent and answered in round `number`, counted from 1; the first round is one."""
        return (number - 1) % self.interval == 0
