"""A data set may come with its blocks: every row says which one it is of, and which part of it.

So are the files that were published with F3CRec, whose random split nobody can draw again. Owns: checking such rows.
Does not own: cutting a data set that comes without them, what a block is (`edgefr.data.blocks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgefr.data.interactions import Dataset
from privacy.belongs import default_of
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.data.blocks import Blocks

NOT_READ = ("min_interactions", "base", "increment_split")
"""Settings of the protocol that say how a data set is cut."""


def check_given(settings: Blocks, dataset: Dataset) -> None:
    """Raises `InputError` where the rows' blocks and parts are none that a run can go through, or are not asked for."""
    block, part, name = dataset.block, dataset.part, dataset.name
    assert block is not None
    if part is None:
        raise InputError(
            f"'{name}' says which block a row is of and not which part (train, valid or test): add a column split, or "
            "set data_options.columns.block=- to cut it by time"
        )
    for setting in NOT_READ:
        if getattr(settings, setting) != default_of(type(settings).model_fields[setting]):
            raise InputError(
                f"protocol.{setting} says how data are cut into blocks, and '{name}' comes with its blocks: drop it, "
                "or set data_options.columns.block=-"
            )
    there = np.unique(block)
    if there.tolist() != list(range(len(there))):
        raise InputError(f"'{name}': blocks are numbered 0, 1, 2, ... without a gap, not {there[:20].tolist()}")
    if len(there) != settings.learned:
        raise InputError(f"'{name}' comes with {len(there)} blocks; set protocol.increments={len(there) - 1}")
    group = (dataset.user.astype(np.int64) * len(there) + block) * len(dataset.catalogue) + dataset.item
    _, first, times = np.unique(group, return_index=True, return_counts=True)
    if (times > 1).any():
        at = first[int((times > 1).argmax())]
        who, what = dataset.users[dataset.user[at]], dataset.catalogue.ids[dataset.item[at]]
        raise InputError(f"'{name}': user '{who}' has item '{what}' twice in block {block[at]}; leave one of them out")
    lost = np.setdiff1d(group // len(dataset.catalogue), (group // len(dataset.catalogue))[part == 0])
    if len(lost):
        who, number = divmod(int(lost[0]), len(there))
        raise InputError(
            f"'{name}': user '{dataset.users[who]}' has nothing to train on in block {number}; give it some, or leave "
            "its rows there out"
        )
