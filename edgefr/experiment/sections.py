"""These sections of an experiment belong to no room: encoder, evaluation, sessions, engine, export."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cloud.distillation import DistillSettings
from cloud.settings import EncodeSettings
from edgefr.config.validation import Section, fault
from edgefr.experiment.text_encoder import ENCODERS
from privacy.setting_scope import ReadWith, named_in

STATIC = ("static", "static+tfidf")
TABLES = ("tfidf", *STATIC)
STUDENT, WORDS, TABLE = ReadWith("kind", "student"), ReadWith("kind", "hash", *TABLES), ReadWith("kind", *TABLES)


class EncoderSection(Section):
    """This section says how item texts become vectors: by a language model, or by their words alone."""

    kind: Annotated[str, named_in(ENCODERS)] = Field(
        "student",
        description="student: a BERT distilled on the texts, or its teacher; and without a language model on devices: "
        "static: a table of words that the teacher read one by one; tfidf: words by TF-IDF, on the main directions of "
        "the texts; static+tfidf: half of a vector by each; hash: hashed words, which learn nothing",
    )
    width: Annotated[int, WORDS] = Field(256, ge=2, le=4096, description="values of an item's vector (all but student)")
    pairs: Annotated[bool, WORDS] = Field(False, description="two neighbouring words are a word too (all but student)")
    words: Annotated[int, TABLE] = Field(
        10_000, ge=2, le=1 << 20, description="words of the table, those that most texts have (tfidf and static)"
    )
    fit: Annotated[Literal["source", "all"], TABLE] = Field(
        "all",
        description="across domains, whose words a table has: of the domain that is learned in, or of all items, "
        "those of the domain that is recommended in too (tfidf and static)",
    )
    distill: Annotated[DistillSettings | None, STUDENT] = Field(
        default_factory=lambda: DistillSettings(layers=2, layer_map=[3, 6], hidden=156, steps=150, max_tokens=32),
        description="the student to distil; none: items are read by the teacher itself",
    )
    teacher: Annotated[str, ReadWith("kind", "student", *STATIC)] = Field(
        "package",
        description="who reads the words of static, and all texts of student when distill is none: 'package', a "
        "transformers folder, or a hub id",
    )
    encode: Annotated[EncodeSettings, STUDENT] = Field(
        default_factory=EncodeSettings, description="pooling and length of texts (student)"
    )

    @model_validator(mode="after")
    def _halves_are_equal(self) -> Self:
        if self.kind == "static+tfidf" and self.width % 2:
            raise fault(f"half of it is of static, half of tfidf: give an even number, not {self.width}", "width")
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


class StudentSection(Section):
    """This is a smaller encoder, distilled from the run's own on the catalogue's texts."""

    layers: int = Field(ge=1, description="Transformer layers, at most the encoder's")
    hidden: int = Field(ge=1, description="width; a multiple of the encoder's attention heads, at most its width")
    steps: int = Field(200, ge=1, le=100_000, description="optimiser steps of its distillation")


class ExportSection(Section):
    """This section is about variants of the bundles: what they may lose, and limits of a recommendation on a device.

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
