"""These sections of an experiment belong to no room: encoder, evaluation, sessions, engine, export."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from cloud.settings import DistillSettings, EncodeSettings
from edgefr.encoders import ENCODERS
from edgefr.engine.backends import BACKENDS
from edgefr.metrics.cutoffs import METRICS, metrics_at, of_ranks
from privacy.belongs import ReadWith, Settings, named_in
from privacy.errors import unknown


class Section(Settings):
    """This is a part of an experiment: unknown keys are refused, and such as nothing reads."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)


STUDENT, WORDS, TFIDF = ReadWith("kind", "student"), ReadWith("kind", "hash", "tfidf"), ReadWith("kind", "tfidf")


class EncoderSection(Section):
    """This section says how item texts become vectors: by a language model, or by their words alone."""

    kind: Annotated[str, named_in(ENCODERS)] = Field(
        "student",
        description="student: a BERT distilled on the texts, or its teacher; and two references without a language "
        "model: hash: hashed words, which learn nothing; tfidf: words by TF-IDF, on the main directions of the texts",
    )
    width: Annotated[int, WORDS] = Field(256, ge=2, le=4096, description="values of an item's vector (hash and tfidf)")
    pairs: Annotated[bool, WORDS] = Field(False, description="two neighbouring words are a word too (hash and tfidf)")
    words: Annotated[int, TFIDF] = Field(
        10_000, ge=2, le=1 << 20, description="words of the table, those that most texts have (tfidf)"
    )
    fit: Annotated[Literal["source", "all"], TFIDF] = Field(
        "all",
        description="across domains, whose texts tfidf learns from: of the domain that is learned in, or of all items, "
        "those of the domain that is recommended in too",
    )
    distill: Annotated[DistillSettings | None, STUDENT] = Field(
        default_factory=lambda: DistillSettings(layers=2, layer_map=[3, 6], hidden=156, steps=150, max_tokens=32),
        description="the student to distil; none: items are read by the teacher itself",
    )
    teacher: Annotated[str, STUDENT, ReadWith("distill", None)] = Field(
        "package", description="used when distill is none: 'package', a transformers folder, or a hub id"
    )
    encode: Annotated[EncodeSettings, STUDENT] = Field(
        default_factory=EncodeSettings, description="pooling and length of texts (student)"
    )


class EvaluationSection(Section):
    """This section says what is measured, on whom, and how often."""

    k: list[Annotated[int, Field(ge=1)]] = Field(
        [10], min_length=1, description="cut-offs of HR@k, NDCG@k and Recall@k"
    )
    metrics: list[Annotated[str, named_in(METRICS)]] = Field(
        default_factory=list,
        description="further metrics beside HR, NDCG and Recall: of ranks (Precision, MRR, MAP), and of the lists that "
        "full ranking recommends (Coverage, Novelty, Diversity, Popularity, PopularityLift, Calibration, FairnessGap)",
    )
    every: int = Field(1, ge=1, description="rounds between points of the learning curve (validation items)")
    curve_ranking: Literal["sampled", "full"] = Field(
        "sampled",
        description="what the learning curve ranks a held-out item against, and so by what the best round is told: "
        "sampled candidates, or the full catalogue; blocks are always ranked in full",
    )
    full_ranking_users: int = Field(
        1000, ge=0, description="users ranked against the whole catalogue, a keyed sample; 0: no full ranking"
    )
    curve_users: int = Field(5000, ge=1, description="users of the learning curve, a keyed sample")
    keep: Literal["last", "best"] = Field(
        "last",
        description="the round whose model is tested after leave-one-out: the last, or the best on validation items",
    )
    judged_by: str = Field(
        "NDCG",
        description="the metric that says which round, or epoch of a central reference, is best: whole, as HR@20, or a "
        "name, which stands for its first cut-off; of equal rounds the latest, of equal epochs the first",
    )
    tables: Literal["server", "own"] = Field(
        "server",
        description="the item tables that clients recommend from: the server's, or each its own, as its last round "
        "left it (leave-one-out; so the released codes of PFedRec and GPFedRec evaluate)",
    )
    keep_blocks: bool = Field(False, description="keep every block's model and the clients' preference shifts (blocks)")

    @property
    def judge(self) -> str:
        """Return the metric that rounds are compared by, with its cut-off."""
        return self.judged_by if "@" in self.judged_by else f"{self.judged_by}@{self.k[0]}"

    @model_validator(mode="after")
    def _judged_by_what_is_measured(self) -> Self:
        known = metrics_at(self.k, self.metrics)
        of_lists = [name for name in self.metrics if name not in of_ranks(self.metrics)]
        if of_lists and not self.full_ranking_users:
            said = f"{of_lists[0]} is measured on lists of full ranking; set evaluation.full_ranking_users above 0"
            raise PydanticCustomError("unread", "{problem}", {"problem": said, "at": ("metrics",)})
        if self.judge not in known:
            problem = unknown("metric of evaluation.judged_by", self.judged_by, known)
            raise PydanticCustomError("unknown", "{problem}", {"problem": str(problem), "at": ("judged_by",)})
        return self


class SessionsSection(Section):
    """This section is about runs over sessions: when they end, and what is measured beside."""

    patience: int | None = Field(
        None, ge=1, description="rounds without a better validation after which a run ends; none: it never does early"
    )
    first_session: bool = Field(
        False, description="measure each round what is still known of every client's first session (FCUCR Fig. 2a)"
    )
    history_bonus: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="score added to items of the client's own history, in its sessions and the present one: ours, not "
        "FCUCR's; 0: none",
    )
    popularity_weight: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="score added per log(1 + clients who had the item), to model scores of unit spread over the "
        "catalogue; counts that clients would have to tell the server: ours, not FCUCR's; 0: none",
    )


WHO_WORKS = ("executor", "workers", "ray_address", "device")
"""Settings of the engine that decide no result, and may be others when a run goes on."""


class EngineSection(Section):
    """This section says how clients are run. `shard_size` decides the order of sums: it belongs to the experiment."""

    executor: Annotated[str, named_in(BACKENDS)] = Field(
        "inline",
        description="inline: vectorised; processes: the same in worker processes; ray: the same on a Ray cluster; "
        "debug: one client at a time",
    )
    workers: Annotated[int, ReadWith("executor", "processes", "ray")] = Field(
        2,
        ge=1,
        le=256,
        description="workers of executor processes, and of ray without a cluster; results do not depend on it",
    )
    ray_address: Annotated[str, ReadWith("executor", "ray")] = Field(
        "local",
        min_length=1,
        max_length=200,
        description="Ray cluster of executor ray: HOST:PORT, auto (the one of this machine) or local (one of its own)",
    )
    shard_size: int | None = Field(
        None, ge=1, description="clients per vectorised call; none: from memory_mb, recorded"
    )
    memory_mb: Annotated[int, ReadWith("shard_size", None)] = Field(
        64, ge=16, description="working memory of a shard, MB: decides shard_size; near the cache is fastest"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where clients are trained: cpu or cuda")


class StudentSection(Section):
    """This is a smaller encoder, distilled from the run's own on the catalogue's texts."""

    layers: int = Field(ge=1, description="Transformer layers, at most the encoder's")
    hidden: int = Field(ge=1, description="width; a multiple of the encoder's attention heads, at most its width")
    steps: int = Field(200, ge=1, le=100_000, description="optimiser steps of its distillation")


class ExportSection(Section):
    """This section is about variants of the bundles:

    what they may lose, and what a device may spend on a recommendation.

    Deadline and energy are for one recommendation and, with an encoder, the reading of one new text.
    """

    learning: bool | None = Field(
        None,
        description="whether devices learn from their bundles: none, where they can; true, or the run is refused; "
        "false, bundles only recommend",
    )
    max_quality_loss: float = Field(
        0.05, ge=0, lt=1, description="share of HR@10 on validation items that a variant may lose"
    )
    min_overlap: float = Field(
        0.8, ge=0, le=1, description="share of the fp32 model's top 10 that a variant must keep, mean over users"
    )
    vocabulary: int | None = Field(
        8192,
        ge=1,
        description="pieces of the encoder's vocabulary that bundles keep (the catalogue's always are); none: all. "
        "onnxruntime's CoreML provider takes at most 16384",
    )
    students: list[StudentSection] = Field(
        default_factory=list, description="smaller encoders to distil and offer; each takes up to minutes"
    )
    deadline_ms: float | None = Field(1000.0, gt=0, description="longest time of it on the device, ms; none: any")
    budget_j: float | None = Field(None, gt=0, description="most energy of it on the device, J; none: any")
