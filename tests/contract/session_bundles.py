"""Bundles of programs that learn from sessions, and the devices that hold them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from edge.ragged import Ragged
from export.model import TrainedModel
from export.program import SessionProgram
from tests.contract.bundles import CLASS, LEARNING, fresh, named, ship
from tests.contract.sessions import CLIENTS, ITEMS, NEGATIVES, private_of, program, sessions

SHIPPED = (
    "sasrec, two heads and blocks, softmax",
    "sasrec, full softmax",
    "fcucr, clipped",
    "fcucr",
    "fcucr on tisasrec",
    "fcucr as released on gru4rec",
    "fcucr to the letter, shippable",
    "miasrec",
    "hearint",
    "dmi-gnn",
)
"""Every encoder, teacher, order of prototypes, pooling and loss."""


@cache
def bundle(variant: str, **changes: object) -> Path:
    """The bundle of untrained tensors, whose devices draw as `sessions.work` does. Read only."""
    out, local = fresh(), program(variant)
    write(out, local, private_of(local, np.arange(CLIENTS)), **changes)
    return out / CLASS


def write(out: Path, local: SessionProgram, private: dict[str, torch.Tensor], **changes: object) -> None:
    """Write the bundle of a program's first tensors."""
    items, times = sessions()
    seen = Ragged.from_lists([np.unique(items[client]).tolist() for client in range(CLIENTS)])
    model = TrainedModel(local, local.init_shared(3), private, named(CLIENTS, ITEMS), seen, history=items, times=times)
    ship(out, model, replace(LEARNING, negatives=NEGATIVES, **changes))  # type: ignore[arg-type]
