"""Windows of sessions for the encoders that read prefixes, and what a program makes of all prefixes of one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from edgefr.experiment.method import METHODS
from edgefr.methods.prefixes import PrefixProgram, prefixes
from export.batches import Window
from export.given import Given

DIM, LENGTH, ITEMS = 6, 5, 12
SESSIONS = ([3, 7, 3, 3, 9], [4, 8, 4, 8, 5], [2, 2], [11])
"""Items of windows, the newest last: they come back, stand beside themselves, go to and fro, and are alone."""


def program(method: str, **settings: object) -> PrefixProgram:
    """Return the program, of a small width."""
    row = METHODS[method]
    made = row.program(row.settings.model_validate({"dim": DIM, "length": LENGTH, **settings}), Given(ITEMS, 2))
    assert isinstance(made, PrefixProgram)
    return made


def drawn(local: PrefixProgram, seed: int) -> dict[str, Tensor]:
    """Return values with which nothing is 0 or 1 by chance."""
    random = np.random.default_rng(seed)
    return {
        name: torch.from_numpy(random.normal(0.0, 0.6, spec.shape).astype(np.float32))
        for name, spec in local.specs.items()
    }


def window(session: list[int]) -> Window:
    """Return the window of a session, left-padded by an item that it may hold: every position is to predict item 1."""
    pad = LENGTH - len(session)
    items = torch.tensor([session[0]] * pad + session)
    real = (torch.arange(LENGTH) >= pad).float()
    ones = torch.ones(LENGTH, dtype=torch.int64)
    share = real / real.sum()
    return Window(items, items, real, share, times=real, positive=ones, negative=ones[:, None] * torch.tensor([0, 2]))


def scores(local: PrefixProgram, tensors: dict[str, Tensor], session: list[int], training: bool = False) -> Tensor:
    """Return every item's score after every prefix of a session [n, items]."""
    batch = window(session)
    made = prefixes(batch.rows(tensors["item"]), batch.label, every=True)
    intents = local.intents(local.encoder(tensors), made, training)
    found = local.match(intents, torch.nn.functional.normalize(tensors["item"], dim=-1))
    assert found.isfinite().all(), "padding too"
    return found[LENGTH - len(session) :]
