"""A record of learning has to agree with itself, with its bundle's tensors, and with what is learned from.

A wrong name, rate or shape would end a device in the middle of its work; absurd counts would take its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.bundle import Bundle
    from edge.learning import Learning

Shapes = Mapping[str, npt.NDArray[np.float32]]
MOST_EXAMPLES = 1 << 25  # of one round, all epochs
MOST_STEPS = 10**6  # of one round


def check_tensors(bundle: Bundle, learning: Learning, shared: Shapes, private: Shapes) -> None:
    """Check that the files of a bundle have the tensors that learning names, in their shapes.

    `shared` and `private`: what the files hold, a client's for private ones. Raises `InputError` naming the tensor.
    """
    items, tables = bundle.manifest.item_count, {table.name: table for table in bundle.config.tables}
    how = learning.exchange
    made_here = set() if how is None else {*how.keeps, *how.marks}  # bundles need not bring them
    for tensor in learning.tensors:
        if tensor.kind == "rows":
            table = tables.get(tensor.name)
            got: list[int] | None = None if table is None or table.dtype == "i32" else [items, table.width]
        else:
            found = {"shared": shared, "private": private}[tensor.place].get(tensor.name)
            kept = tensor.shape if tensor.name in made_here else None
            got = kept if found is None else list(found.shape)
        if got != tensor.shape:
            what = f"learning has {tensor.name} as {tensor.shape}, its files {got or 'none'}"
            raise InputError(f"bundle {bundle.root}: {what}; export again")
    if learning.negatives > items:
        raise InputError(
            f"bundle {bundle.root}: learning draws {learning.negatives:,} negatives of {items:,} items; export again"
        )


def check_work(learning: Learning, positives: int) -> None:
    """Check that a round of `positives` interactions fits a device. Raises `InputError` with what to change."""
    group, each = 1 + learning.negatives, positives * (1 + learning.negatives)
    of_pairs = max(learning.batch_size // group, 1) * group  # a batch of pairs parts none
    epochs = steps = 0
    for when in ("round", "final"):
        phases = [phase for phase in learning.phases if phase.when == when]
        epochs = max(epochs, sum(p.epochs for p in phases))
        steps = max(steps, sum(p.epochs * -(-each // (of_pairs if p.pairs else learning.batch_size)) for p in phases))
    if epochs * each > MOST_EXAMPLES or steps > MOST_STEPS:
        raise InputError(
            f"{positives:,} interactions with {learning.negatives:,} negatives each, {epochs:,} times over, are more "
            f"than the {MOST_EXAMPLES:,} examples and {MOST_STEPS:,} steps of a device's round; give fewer interactions"
        )
