r"""A further term of distillation, as a plug-in (ours): a title's student vector is to be told from other titles' ones.

    edgefr distill --plugin experiments/transfr/contrast.py --texts TITLES \
        --set encoder.distill.terms.titles=1 --out student

In a batch each title's pooled vector is matched with all teachers' pooled vectors by their cosines, a softmax at
temperature .05 (InfoNCE, van den Oord et al., 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cloud.distillation import TERMS, Lesson, Term

TEMPERATURE = 0.05


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    """Return each text's mean state over its true tokens, at unit length [texts, f]."""
    weight = mask.to(states.dtype).unsqueeze(-1)
    return F.normalize((states * weight).sum(1) / weight.sum(1), dim=-1)


def titles(student: Any, lesson: Lesson, project: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return the cross-entropy of telling which teacher's vector is of the same title."""
    mine = pooled(project(student.last_hidden_state.float()), lesson.mask)
    cosines = mine @ pooled(lesson.last_hidden.float(), lesson.mask).T
    return [F.cross_entropy(cosines / TEMPERATURE, torch.arange(len(cosines), device=cosines.device))]


TERMS.register(Term("titles", titles, projects=True))
