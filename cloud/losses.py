"""These are the terms of hierarchical distillation (TransFR §3.2.2), one registered object each. Padding never counts.

Each term is a mean over the true positions of a text, then over the texts of the batch: the sum over texts of
Eq. 1, scaled so that neither the batch size nor the length of a text changes the learning rate that fits. The table is
here without torch, so that names can be checked before anything heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cloud.distillation import TERMS, Lesson, Term

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.distillation import DistillSettings


def attention_loss(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Return the squared difference of attention matrices (TransFR Eq. 2): a scalar.

    `student`, `teacher`: [texts, heads, L, L] attention probabilities, rows sum to 1; `mask`: [texts, L], 0 = padding.
    The mean is over heads and query positions; over keys it is a sum, since a row is one distribution.
    """
    weight = mask.to(student.dtype)
    per_query = (student - teacher).square().mean(1).mul(weight[:, None, :]).sum(-1)  # TransFR Eq. 2
    return _mean_over_tokens(per_query, weight)


def state_loss(projected: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """Return the squared difference of projected student states and teacher states (TransFR Eq. 3): a scalar.

    `projected`: the student's states times W, `teacher`: both [texts, L, f']; `mask`: [texts, L], 0 = padding.
    """
    weight = mask.to(projected.dtype)
    return _mean_over_tokens((projected - teacher).square().mean(-1), weight)  # TransFR Eq. 3


def _mean_over_tokens(values: Tensor, weight: Tensor) -> Tensor:
    return ((values * weight).sum(-1) / weight.sum(-1)).mean()


def _embedding(student: Any, lesson: Lesson, project: Callable[[Tensor], Tensor]) -> list[Tensor]:
    return [state_loss(project(student.hidden_states[0].float()), lesson.embedding.float(), lesson.mask)]


def _attention(student: Any, lesson: Lesson, project: Callable[[Tensor], Tensor]) -> list[Tensor]:
    pairs = zip(student.attentions, lesson.attention, strict=True)
    return [attention_loss(mine.float(), its.float(), lesson.mask) for mine, its in pairs]


def _last_hidden(student: Any, lesson: Lesson, project: Callable[[Tensor], Tensor]) -> list[Tensor]:
    return [state_loss(project(student.last_hidden_state.float()), lesson.last_hidden.float(), lesson.mask)]


def _by_layer(settings: DistillSettings) -> Sequence[float]:
    return settings.layer_weights or [1.0] * (settings.layers + 1)


TERMS.register(Term("embedding", _embedding, projects=True, weights=lambda s: _by_layer(s)[:1]))
TERMS.register(Term("attention", _attention, projects=False, weights=lambda s: _by_layer(s)[1:]))
TERMS.register(
    Term(
        "last_hidden",
        _last_hidden,
        projects=True,
        weights=lambda s: [s.last_hidden_weight] if s.last_hidden_weight else [],
    )
)
