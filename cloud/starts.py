"""A student's first weights: one registered object for each way to choose them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.batches import Tokens
    from cloud.settings import DistillSettings


@dataclass(frozen=True)
class Start:
    """A start has a name; `start(settings, student, teacher, layers, tokens)` sets the student's weights in place.

    The student comes with random weights of the seed. `layers`: the teacher's layer of each of the student's, `tokens`
    those of the texts. Returns the first W of the states that are compared, float32 [f, f'].
    """

    name: str
    start: Callable[[DistillSettings, Any, Any, list[int], Tokens], Tensor]


def _teacher(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Tokens) -> Tensor:
    import numpy as np
    import torch

    from cloud.init_from_teacher import start_from_teacher

    counts = np.bincount(tokens.values, minlength=student.config.vocab_size)
    return start_from_teacher(student, teacher, layers, torch.from_numpy(counts))


def _random(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Tokens) -> Tensor:
    import torch

    from cloud import purposes
    from cloud.seeded import seeded

    width, its = student.config.hidden_size, teacher.get_input_embeddings().weight.shape[1]
    with seeded(settings.seed, purposes.PROJECTION):
        return torch.randn(width, its) * width**-0.5


STARTS: Table[Start] = Table("init", Start)
"""How a student can start."""

STARTS.register(Start("teacher", _teacher))
STARTS.register(Start("random", _random))
