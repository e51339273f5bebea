"""This module reads XING's job postings: the sessions released with FCUCR, and the RecSys Challenge 2017."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.interactions import Dataset, Kinds, assemble
from edgefr.data.readers.archive import (
    Archive,
    Numbering,
    Public,
    check_ids,
    check_times,
    open_archive,
    open_file,
    refuse,
)
from edgefr.data.readers.events import SECONDS, Layout, read_events, untitled
from privacy.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

XING = Public(
    "https://www.recsyschallenge.com/2017/",
    "challenge data of XING, for research; no redistribution",
    "Sessions and parts as released with FCUCR, whose Table 1 counts 29,366 items and 6,165 sessions: that fits a "
    "count before held-out items that were not trained were dropped. The times are of August to November 2015.",
)
XING_2017 = Public("https://www.recsyschallenge.com/2017/", "challenge data of XING, for research; no redistribution")

KINDS = ("impression", "click", "bookmark", "reply", "delete", "recruiter interest")
_DROPPED = ("impression", "delete", "recruiter interest")  # FCUCR names delete; the others are not the user's doing
_FILE = "xing-sessions.parquet"
_COLUMNS = ("user_id", "item_id", "interaction_type", "created_at", "session_id")
_PARTS = ("train", "valid", "test")
_ROWS_AT_ONCE = 1 << 16

_Columns = tuple[npt.NDArray[np.integer], ...]


class ChallengeOptions(BaseModel):
    """The options say what is read of the challenge's interactions."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    impressions: bool = Field(False, description="also read postings that were only shown, which most rows are")


def read_sessions(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read the release: 877 users, 24,390 postings, 83,907 interactions in 5,982 sessions, each of one part."""
    with open_file(data_dir, _FILE, XING) as archive:
        users, items, parts = Numbering(), Numbering(), list[_Columns]()
        for row, block in _blocks(archive):
            parts.append(_checked(archive, row, block, users, items))
        if not parts:
            raise archive.fault(_FILE, None, "it has no rows")
        user, item, kind, time, session, part = (np.concatenate(column) for column in zip(*parts, strict=True))
        _check_sessions(archive, user, session, part)
        source = archive.source([_FILE])
    kinds, rows = Kinds(kind.astype(np.int8), KINDS, _DROPPED), (user, item, time)
    return assemble(
        "xing", users.ids(), untitled(items), rows, ("jobs",), True, source, session=session, part=part, kinds=kinds
    )


def read_challenge(data_dir: Path, options: ChallengeOptions, progress: Progress | None) -> Dataset:
    """Read the challenge's `interactions.csv` (tabs; user_id, item_id, interaction_type, created_at), in one table."""
    skipped = () if options.impressions else ("impression",)
    names = ("user_id", "item_id", "created_at", "interaction_type")
    layout = Layout(*names, SECONDS, KINDS, dropped=_DROPPED, skipped=skipped, separator="\t")
    with open_archive(data_dir, "recsys-challenge-2017", XING_2017) as archive:
        return read_events(archive, "interactions.csv", "xing-2017", "jobs", layout)


def _blocks(archive: Archive) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (number of the first row, from 1; rows) block by block, whole numbers as int64 and the part as text."""
    import pyarrow as pa
    from pyarrow import parquet

    row = 1
    schema = pa.schema([*((name, pa.int64()) for name in _COLUMNS), ("split", pa.string())])
    with archive.open(_FILE) as file, archive.faults(_FILE):
        table = parquet.ParquetFile(file)
        for name in schema.names:
            if name not in table.schema_arrow.names:
                raise archive.fault(_FILE, None, f"it has no column {name}")
        for block in table.iter_batches(_ROWS_AT_ONCE, columns=schema.names, use_threads=False):
            block = block.select(schema.names)
            for name in schema.names:
                if block.column(name).null_count:
                    raise archive.fault(_FILE, None, f"{name} has rows with nothing in them")
            yield row, block.cast(schema)
            row += block.num_rows


def _checked(archive: Archive, row: int, block: pa.RecordBatch, users: Numbering, items: Numbering) -> _Columns:
    """Return user, item, kind, time, session and part of a block, as numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in ("user_id", "item_id", "session_id"):
        check_ids(archive, _FILE, row, block.column(name), name)
    time = check_times(archive, _FILE, row, block.column("created_at"))
    kind = block.column("interaction_type").to_numpy()
    bad = (kind < 0) | (kind >= len(KINDS))
    refuse(archive, _FILE, row, bad, block.column("interaction_type"), "interaction_type must be from 0 to 5")
    split = block.column("split")
    part = pc.index_in(split, value_set=pa.array(_PARTS)).fill_null(-1).to_numpy(zero_copy_only=False)
    refuse(archive, _FILE, row, part < 0, split, "split must be train, valid or test")
    user, item = users.add(block.column("user_id")), items.add(block.column("item_id"))
    return user, item, kind, time, block.column("session_id").to_numpy(), part


def _check_sessions(archive: Archive, user: np.ndarray, session: np.ndarray, part: np.ndarray) -> None:
    """Every session must be of one user and one part, and a user must have at most one of valid and one of test."""
    _, first, of = np.unique(session, return_index=True, return_inverse=True)
    mixed = (user != user[first][of]) | (part != part[first][of])
    if mixed.any():
        row = int(mixed.argmax())
        raise archive.fault(_FILE, row + 1, f"session {session[row]} has another user or another split further up")
    held = part[first] > 0
    pairs, counts = np.unique(np.int64(user[first][held]) * len(_PARTS) + part[first][held], return_counts=True)
    if (counts > 1).any():
        who, which = divmod(int(pairs[counts > 1][0]), len(_PARTS))
        row = int(np.flatnonzero((user == who) & (part == which))[-1])
        raise archive.fault(_FILE, row + 1, f"a user has more than one session of {_PARTS[which]}")
