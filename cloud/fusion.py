"""Several prototypes become one (FCUCR Eq. 6) by a fusion; a plug-in registers its own in `FUSIONS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from cloud.index import INDEXES
from privacy.setting_scope import named_in
from privacy.table import Choice, Table

if TYPE_CHECKING:
    from torch import Tensor

TIED = 1e-6
"""Relative difference below which two variances of fusion pca count as equal."""


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


FUSIONS: Table[Fusion] = Table("fusion", Fusion)


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


class MeanSettings(KnowledgeSettings):
    fusion: Literal["mean"] = "mean"


class Mean(Fusion):
    name, settings, citation = "mean", MeanSettings, "FCUCR Eq. 6"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        return _weighted_mean(sets, present, present.double())


class SoftmaxSettings(KnowledgeSettings):
    fusion: Literal["softmax"] = "softmax"
    temperature: float = Field(1.0, gt=0, description="the lower, the more the nearest counts")


class Softmax(Fusion):
    """This fusion weighs prototypes by softmax(cosine / temperature); at the released 1 it is nearly a mean."""

    name, settings, citation = "softmax", SoftmaxSettings, "FCUCR Eq. 6"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        assert isinstance(settings, SoftmaxSettings)
        return _by_softmax(sets, present, cosines.double() / settings.temperature)


class AttentionSettings(KnowledgeSettings):
    fusion: Literal["attention"] = "attention"


class Attention(Fusion):
    """This fusion weighs prototypes by softmax(query · prototype / sqrt(width)), without layers of its own.

    The released code names "attention-weighted pooling" and does not write it down; this is scaled dot-product
    attention (Vaswani et al., 2017). Unlike `softmax` it depends on how long prototypes are.
    """

    name, settings, citation = "attention", AttentionSettings, "FCUCR Eq. 6, as its article's code suggests"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        logits = (sets.double() @ queries.double().unsqueeze(2)).squeeze(2) / queries.shape[1] ** 0.5
        return _by_softmax(sets, present, logits)


class PCASettings(KnowledgeSettings):
    fusion: Literal["pca"] = "pca"


class PCA(Fusion):
    """This fusion takes the point closest to the query on the line along which prototypes vary most.

    The line goes through their mean along the first principal axis. Axes of equal variance are all taken, so the result
    does not depend on the basis that the linear algebra returns. The released code projects the centred mean, which is
    zero for everybody.
    """

    name, settings, citation = "pca", PCASettings, "FCUCR Eq. 6, mended"

    def fused(
        self, settings: KnowledgeSettings, sets: Tensor, cosines: Tensor, present: Tensor, queries: Tensor
    ) -> Tensor:
        mean = _weighted_mean(sets, present, present.double())
        centred = (sets.double() - mean.unsqueeze(1)).masked_fill(~present.unsqueeze(2), 0.0)
        return mean + _along_first_axis(centred, queries.double() - mean)


def _weighted_mean(sets: Tensor, present: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of the prototypes that are there, float64 [C, P]; `counted` [C, k] says how much each counts."""
    weights = counted / counted.sum(1, keepdim=True).clamp_min(float(np.finfo(np.float64).tiny))
    return (weights.unsqueeze(1) @ sets.double().masked_fill(~present.unsqueeze(2), 0.0)).squeeze(1)


def _by_softmax(sets: Tensor, present: Tensor, logits: Tensor) -> Tensor:
    logits = logits.masked_fill(~present, -np.inf)
    highest = logits.amax(1, keepdim=True).clamp_min(float(np.finfo(np.float64).min))
    return _weighted_mean(sets, present, (logits - highest).exp())


def _along_first_axis(centred: Tensor, towards: Tensor) -> Tensor:
    """Project `towards` [C, P] on the first principal axis of `centred` [C, k, P], or on all that tie with it."""
    import torch

    values, vectors = torch.linalg.eigh(centred @ centred.mT)  # [C, k], ascending: the set's own k dimensions suffice
    first = values[:, -1:]
    length = centred.square().amax((1, 2)).unsqueeze(1)
    taken = (values >= first * (1 - TIED)) & (first > torch.finfo(torch.float64).eps * length) & (first > 0)
    axes = (vectors.mT @ centred) * torch.where(taken, values, 1.0).rsqrt().unsqueeze(2)  # [C, k, P], of length 1
    share = torch.where(taken, (axes @ towards.unsqueeze(2)).squeeze(2), 0.0)
    return (share.unsqueeze(1) @ torch.where(taken.unsqueeze(2), axes, 0.0)).squeeze(1)


for _fusion in (Mean(), Softmax(), PCA(), Attention()):
    FUSIONS.register(_fusion)
