"""Bundles of programs that learn from sessions, and the devices that hold them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from edge.ragged import Ragged
from export.program import SessionProgram
from export.variants import ClassLimits
from tests.contract.bundles import CLASS, LEARNING, fresh, user
from tests.contract.sessions import CLIENTS, ITEMS, NEGATIVES, private_of, program, sessions
from tests.export import worlds

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
    worlds.export(
        out=out,
        program=local,
        shared=local.init_shared(3),
        private=private,
        users=[user(client) for client in range(CLIENTS)],
        history=items,
        times=times,
        seen=Ragged.from_lists([np.unique(items[client]).tolist() for client in range(CLIENTS)]),
        item_ids=[f"i{n}" for n in range(ITEMS)],
        titles=[f"item {n}" for n in range(ITEMS)],
        encoder=None,
        pooling="mean",
        max_tokens=8,
        classes={CLASS: ClassLimits(8000, 20)},
        users_of={CLASS: list(range(CLIENTS))},
        created="2026-11-21T10:00:00+00:00",
        provenance={},
        learning=replace(LEARNING, negatives=NEGATIVES, **changes),  # type: ignore[arg-type]
        key=worlds.KEY,
    )
