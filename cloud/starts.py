"""A student's first weights: one registered object for each way to choose them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloud.distillation import STARTS, Start

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.batches import Tokens
    from cloud.distillation import DistillSettings


def _teacher(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Tokens) -> Tensor:
    import numpy as np
    import torch

    from cloud.init_from_teacher import start_from_teacher

    counts = np.bincount(tokens.values, minlength=student.config.vocab_size)
    return start_from_teacher(student, teacher, layers, torch.from_numpy(counts))


def _random(settings: DistillSettings, student: Any, teacher: Any, layers: list[int], tokens: Tokens) -> Tensor:
    import torch

    from cloud import random_streams as purposes
    from cloud.seeded_torch import seeded

    width, its = student.config.hidden_size, teacher.get_input_embeddings().weight.shape[1]
    with seeded(settings.seed, purposes.PROJECTION):
        return torch.randn(width, its) * width**-0.5


STARTS.register(Start("teacher", _teacher))
STARTS.register(Start("random", _random))
