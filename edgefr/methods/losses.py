"""More than one method uses these losses and initial values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from edge.round_init import Normal
from edgefr.config import random_streams as purposes
from edgefr.methods.objectives import LOG_SCALE, OFFSET, ObjectiveSettings, RoundedSettings
from export.batches import Batch, inner
from export.program import LocalProgram, ScoreForm, Tensors, TensorSpec
from privacy import keyed


def bce(scores: Tensor, batch: Batch, of: str = "scores") -> Tensor:
    """Return the binary cross-entropy of scores against the batch's labels, mean over a client's examples.

    `of` "probabilities" takes the scores' sigmoids, as torch.nn.BCELoss does: from a score of 17 on (float32) a
    negative on the wrong side has no gradient.
    """
    return BCE[of](scores, batch.label, batch.weight)


def _of_scores(scores: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, label, weight, reduction="sum")


def _of_probabilities(scores: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    return F.binary_cross_entropy(torch.sigmoid(scores), label.to(scores), weight, reduction="sum")


BCE = {"scores": _of_scores, "probabilities": _of_probabilities}
"""What a binary cross-entropy is computed from, by name."""


def scores_of(program: LocalProgram, tensors: Tensors, batch: Batch) -> Tensor:
    """Return the program's score of each of the batch's examples, [..., n]."""
    history = None if batch.history is None else program.vectors(tensors, batch.history)
    vectors = program.vectors(tensors, batch)
    return program.score(tensors, batch, vectors, program.user(tensors, batch, history, vectors))


def learning(program: LocalProgram, settings: ObjectiveSettings) -> None:
    """Add to a program the shared numbers that its objective learns, in every phase that trains shared tensors."""
    own = settings.objective.learns
    if not own:
        return
    shared = {name for name, spec in program.specs.items() if spec.place == "shared"}
    program.specs = {**program.specs, **{name: TensorSpec((1,), "shared") for name in own}}
    program.phases = tuple(
        replace(
            phase,
            uses=(*phase.uses, *own),
            trains=(*phase.trains, *(own if phase.when == "round" and shared & set(phase.trains) else ())),
            lr={**phase.lr, **dict.fromkeys(own, settings.loss_lr)},
        )
        for phase in program.phases
    )


def first_of(settings: ObjectiveSettings) -> dict[str, Tensor]:
    """Return the first values of what an objective learns itself."""
    return {name: torch.zeros(1) for name in settings.objective.learns}


def worth(scores: Tensor, batch: Batch, settings: ObjectiveSettings, tensors: Tensors) -> Tensor:
    """Return the objective's loss of scores [..., n], the mean over a client's examples or positives.

    TransFR Eq. 6 and F3CRec sum over examples, which differs by the factor |D_u|: a learning rate would grow with
    activity.
    """
    if settings.objective.learns:
        scale, offset = (batch.own(tensors[name]).squeeze(-1) for name in (LOG_SCALE, OFFSET))
        scores = scores * scale.exp() + offset
    if settings.objective.compared is None:
        return bce(scores, batch, settings.bce_of if isinstance(settings, RoundedSettings) else "scores")
    assert batch.pairs is not None
    return compared(*batch.pairs.of(scores), batch, settings)


def form_of(settings: ObjectiveSettings, rows: str, weight: str, **own: str) -> ScoreForm | None:
    """Return the form of scores from these tensors for this objective; None where it learns, or weighs negatives."""
    if settings.objective.learns or settings.negative_weight != 1:
        return None
    rounded = isinstance(settings, RoundedSettings) and settings.bce_of == "probabilities" and settings.loss == "bce"
    loss = "probabilities" if rounded else settings.loss
    return ScoreForm(rows, weight, **own, loss=loss, temperature=settings.temperature)


def compared(positive: Tensor, negative: Tensor, batch: Batch, settings: ObjectiveSettings) -> Tensor:
    """Return the loss of positives [..., P] against their negatives [..., P, k], the mean over a client's positives."""
    assert batch.pairs is not None
    assert settings.objective.compared is not None
    over, stands = settings.temperature, math.log(settings.negative_weight)
    return batch.pairs.mean(settings.objective.compared(positive / over, negative / over + stands))


def mlp(tensors: Tensors, name: str, layers: int, x: Tensor, batch: Batch) -> Tensor:
    """Apply TransFR Eq. 12: linear layers with ReLU between them; `<name>.<k>.weight` is [in, out]."""
    for k in range(layers):
        x = batch.dense(x, tensors[f"{name}.{k}.weight"], tensors[f"{name}.{k}.bias"])
        x = x if k == layers - 1 else torch.relu(x)
    return x


def mlp_shapes(name: str, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of an MLP's tensors, in order."""
    out: dict[str, tuple[int, ...]] = {}
    for k, (wide, narrow) in enumerate(pairwise(widths)):
        out[f"{name}.{k}.weight"] = (wide, narrow)
        out[f"{name}.{k}.bias"] = (narrow,)
    return out


def init_mlp(seed: int, name: str, widths: Sequence[int], gain: float = 2.0) -> dict[str, Tensor]:
    """Draw He-normal weights (variance gain / fan-in), keyed by `seed` and `name`; biases are zero."""
    out: dict[str, Tensor] = {}
    for tensor, shape in mlp_shapes(name, widths).items():
        values = np.zeros(shape, np.float32)
        if len(shape) == 2:
            draws = keyed.generator(seed, purposes.init(tensor)).standard_normal(shape, dtype=np.float32)
            values = draws * np.float32(np.sqrt(gain / shape[0]))
        out[tensor] = torch.from_numpy(values)
    return out


def init_vectors(seed: int, purpose: str, ids: Tensor, width: int, scale: float) -> Tensor:
    """Draw one keyed normal vector per id: [len(ids), width], standard deviation `scale`."""
    return torch.from_numpy(Normal(purpose, scale).values(seed, ids.cpu().numpy(), (width,)))


def init_rows(seed: int, name: str, shape: tuple[int, ...], scale: float) -> Tensor:
    """Draw a table of keyed normal numbers, standard deviation `scale`."""
    draws = keyed.generator(seed, purposes.init(name)).standard_normal(shape, dtype=np.float32)
    return torch.from_numpy(draws * np.float32(scale))


RATE_OF_ITEMS = 80
"""How many times a scorer's learning rate x number of items PFedRec's and GPFedRec's own code gives to item vectors."""

RATE_OF_VECTORS = 170
"""How many times a scorer's learning rate the released F3CRec code gives to vectors (lr_eta)."""


def init_scorer(seed: int, width: int, clients: int) -> dict[str, Tensor]:
    """Draw `scorer.weight` [clients, width], `scorer.bias` [clients, 1] uniformly in ±1/sqrt(width).

    All clients start from one copy, as in the literature's code.
    """
    bound = 1 / math.sqrt(width)
    draws = keyed.generator(seed, purposes.INIT_SCORER).uniform(-bound, bound, width + 1)
    first = torch.from_numpy(draws.astype(np.float32)).repeat(clients, 1)
    return {"scorer.weight": first[:, :width].contiguous(), "scorer.bias": first[:, width:].contiguous()}


def init_linear(seed: int, name: str, wide: int, narrow: int) -> dict[str, Tensor]:
    """Draw a layer uniformly in ±1/sqrt(wide), as torch.nn.Linear: `weight` [1, wide, narrow], `bias` [1, narrow]."""
    bound = 1 / math.sqrt(wide)
    draws = keyed.generator(seed, purposes.init(name)).uniform(-bound, bound, (wide + 1, narrow)).astype(np.float32)
    both = torch.from_numpy(draws)
    return {"weight": both[:-1].unsqueeze(0), "bias": both[-1:]}


def linear_scores(batch: Batch, weight: Tensor, vectors: Tensor, constant: Tensor) -> Tensor:
    """Return weight · vector + constant for every example [..., n]; `vectors` are [..., n, d], `constant` [..., 1]."""
    return inner(weight, vectors) + batch.own(constant).squeeze(-1)


def layered_scores(tensors: Tensors, batch: Batch, name: str, rows: Tensor, user: Tensor) -> Tensor:
    """Return what layers `<name>.<k>` with ReLU between make of [user, row], for every example [..., n].

    The first layer reads `user` [..., 1, d] once, not beside each of `rows` [..., n, d].
    """
    of_user, of_item = tensors[f"{name}.0.weight"].split(rows.shape[-1], dim=-2)
    constant = torch.matmul(user, of_user) + tensors[f"{name}.0.bias"].unsqueeze(-2)
    x, k = torch.matmul(rows, of_item) + constant, 1
    while f"{name}.{k}.weight" in tensors:
        x = batch.dense(x.relu_(), tensors[f"{name}.{k}.weight"], tensors[f"{name}.{k}.bias"])
        k += 1
    return x.squeeze(-1)
