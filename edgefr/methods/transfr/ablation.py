"""TransFR's ablation (§4.2.2) shows what is there before anything federated is learned.

Random: the encoder with random weights. Pretrain: the distilled encoder. Both score with an untrained adapter, p_u =
mean of the user's item vectors and an inner product, since an untrained user vector or MLP says nothing. Finetune
(after the rounds) and Localtrain (after local training) are the run itself.
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
