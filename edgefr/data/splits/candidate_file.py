"""This saves the candidates of a split: what every target was ranked against, in the data set's own ids.

A row per held-out item: `which` ("valid" or "test"), `user`, `items` (the target, then its negatives). With the file
another model can be ranked on the same candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Dataset
from edgefr.data.splits.split import Items, Split, Which
from privacy.errors import InputError
from privacy.files import write_atomic

if TYPE_CHECKING:
    import pyarrow as pa

_PARTS: tuple[Which, ...] = ("valid", "test")
_ROWS_AT_ONCE = 1 << 13
_MOST_VALUES = 1 << 31  # of a file that is read


def write_candidates(path: Path, dataset: Dataset, split: Split) -> Path:
    """Save the candidates of both parts as parquet, in row groups that bound memory.

    The file reveals interactions, so only its owner may read it. Raises `InputError` when the disk is full or not
    writable.
    """
    from pyarrow import parquet

    def write(file: object) -> None:
        with parquet.ParquetWriter(file, _schema(), compression="zstd") as out:
            for block in _blocks(dataset, split):
                out.write_table(block)

    return write_atomic(path, write, mode=0o600)


def read_candidates(path: Path, dataset: Dataset, split: Split) -> Split:
    """Return the split with the candidates of the file instead of its own.

    Raises `InputError` for a damaged file, or other users, targets or items than the split's.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as file:
            source = parquet.ParquetFile(file)
            if source.schema_arrow != _schema():
                raise InputError(
                    f"{path} is no table of candidates (which, user, items); name one that a run has saved"
                )
            if (
                sum(source.metadata.row_group(g).column(2).num_values for g in range(source.num_row_groups))
                > _MOST_VALUES
            ):
                raise InputError(f"{path} holds more than {_MOST_VALUES:,} candidates; use fewer users or negatives")
            table = source.read(use_threads=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; name a file that a run has saved") from error
    except pa.ArrowException as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}); save it again") from error
    found = {which: _part(path, table, dataset, split, which) for which in _PARTS}
    return replace(split, valid_candidates=found["valid"], test_candidates=found["test"])


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("which", pa.string()), ("user", pa.string()), ("items", pa.list_(pa.string()))])


def _blocks(dataset: Dataset, split: Split) -> Iterator[pa.Table]:
    import pyarrow as pa

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


def _part(path: Path, table: pa.Table, dataset: Dataset, split: Split, which: Which) -> Items:
    """Return the candidates of one part, int32 [n, 1 + negatives], checked against the split."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = table.filter(pc.equal(table["which"], which)).combine_chunks()
    users, target = split.users(which), split.valid if which == "valid" else split.test
    if rows["user"].to_pylist() != dataset.users[users].tolist():
        raise InputError(f"{path} has other {which} users than this run; read it with the data and protocol it is of")
    if not len(users):
        return np.empty((0, 1), np.int32)
    lists = cast("pa.ListArray", rows["items"].chunk(0))
    width = np.unique(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))
    if len(width) != 1 or width[0] < 2:
        raise InputError(f"{path}: every {which} row must have as many candidates, at least 2; save it again")
    listed = pa.array(dataset.catalogue.ids[split.pool].tolist(), pa.string())
    found = pc.index_in(lists.flatten(), value_set=listed).fill_null(-1).to_numpy(zero_copy_only=False)
    if (found < 0).any():
        raise InputError(f"{path} names items that this run does not rank; read it with the data and protocol it is of")
    out = split.pool[found].reshape(len(users), int(width[0])).astype(np.int32)
    _check(path, out, target[users], which)
    return out


def _check(path: Path, rows: Items, target: npt.NDArray[np.int32], which: Which) -> None:
    ascending = np.sort(rows, axis=1)
    if (rows[:, 0] != target).any() or (ascending[:, 1:] == ascending[:, :-1]).any():
        raise InputError(
            f"{path}: a {which} row must be this run's target and then other items, each once; read it with the data "
            "and protocol it is of"
        )
