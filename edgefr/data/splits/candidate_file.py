"""This saves the candidates of a split: what every target was ranked against, in the data set's own ids.

A row per held-out item: `which` ("valid" or "test"), `user`, `items` (the target, then its negatives). So another model
can be ranked on the same candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgefr.data.files.arrow import pa, parquet
from edgefr.data.interactions import Dataset
from edgefr.data.splits.split import Split, Which
from privacy.files import write_atomic

_PARTS: tuple[Which, ...] = ("valid", "test")
_ROWS_AT_ONCE = 1 << 13


def write_candidates(path: Path, dataset: Dataset, split: Split) -> Path:
    """Save the candidates of both parts as parquet, in row groups that bound memory.

    The file reveals interactions, so only its owner may read it. Raises `InputError` when the disk is full or not
    writable.
    """

    def write(file: object) -> None:
        with parquet.ParquetWriter(file, _schema(), compression="zstd") as out:
            for block in _blocks(dataset, split):
                out.write_table(block)

    return write_atomic(path, write, mode=0o600)


def _schema() -> pa.Schema:
    return pa.schema([("which", pa.string()), ("user", pa.string()), ("items", pa.list_(pa.string()))])


def _blocks(dataset: Dataset, split: Split) -> Iterator[pa.Table]:
    ids = pa.array(dataset.catalogue.ids.tolist(), pa.string())
    for which in _PARTS:
        users = split.users(which)
        candidates = split.valid_candidates if which == "valid" else split.test_candidates
        for start in range(0, len(users), _ROWS_AT_ONCE):
            rows = candidates[start : start + _ROWS_AT_ONCE]
            some = dataset.users[users[start : start + _ROWS_AT_ONCE]].tolist()
            ends = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
            items = pa.ListArray.from_arrays(ends, ids.take(pa.array(rows.ravel())))
            yield pa.table([pa.array([which] * len(some)), pa.array(some), items], schema=_schema())
