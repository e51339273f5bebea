"""These are the stages of TransFR's ablation (§4.2.2) before anything federated is learned.

Random has the encoder with random weights, Pretrain the distilled one. Both score by inner product with an untrained
adapter, p_u the mean of the user's item vectors. Finetune and Localtrain are the run itself.
"""

from __future__ import annotations

from torch import Tensor

from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.given import Given
from export.program import LocalProgram


def untrained_stages(
    settings: TransFRSettings, given: Given, random_text: Tensor | None, seed: int
) -> list[tuple[str, LocalProgram, dict[str, Tensor]]]:
    """Return the stages of the ablation that need no training: (name, program, shared tensors)."""
    mean = settings.model_copy(update={"user_encoder": "mean", "match": "inner"})
    out: list[tuple[str, LocalProgram, dict[str, Tensor]]] = []
    for name, table in (("random", random_text), ("pretrain", given.text)):
        if table is not None:
            program = TransFR(mean, table, 1, given.source)
            out.append((name, program, program.init_shared(seed)))
    return out
