"""A client has its own scorer of one linear layer: first values, the scores, and the learning rate of its rows."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from export.batches import Batch, inner
from privacy import keyed

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
