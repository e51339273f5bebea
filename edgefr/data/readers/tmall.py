"""This module reads Tmall's logs by Tianchi: of repeat buyers (dates), and of the mobile task (hours)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgefr.data.interactions import Dataset
from edgefr.data.readers.archive import Archive, Public, open_archive, refuse
from edgefr.data.readers.events import Layout, Time, read_events, written
from privacy.errors import InputError
from privacy.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

TMALL = Public(
    "https://tianchi.aliyun.com/dataset/42",
    "Tianchi's terms: research use, no redistribution",
    "The log of the repeat buyers has dates without a year, read as 2014; a day is then a session.",
)

_YEAR = np.datetime64("2014-01-01", "D")
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def _dates(archive: Archive, member: str, line: int, column: pa.Array) -> npt.NDArray[np.int64]:
    """Read month and day as one number, 1111 for the 11th of November, as seconds of its midnight."""
    month, day = np.divmod(column.to_numpy(), 100)
    inside = (month >= 1) & (month <= 12)
    bad = ~(inside & (day >= 1) & (day <= _DAYS[np.where(inside, month, 1) - 1]))
    refuse(archive, member, line, bad, column, "a time must be month and day in one number, e.g. 1111")
    before = np.append(0, np.cumsum(_DAYS))[month - 1]
    return (_YEAR.astype(np.int64) + before + day - 1) * 86_400


_LAYOUTS = {
    "user_log_format1.csv": Layout(
        "user_id",
        "item_id",
        "time_stamp",
        "action_type",
        Time("int", _dates),
        ("click", "addtocart", "purchase", "favourite"),
    ),
    "tianchi_mobile_recommend_train_user.csv": Layout(
        "user_id",
        "item_id",
        "time",
        "behavior_type",
        written("%Y-%m-%d %H", "2014-12-06 02"),
        ("", "click", "favourite", "addtocart", "purchase"),
    ),
}


def read(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read the log that the archive `tmall` holds, of every kind of action."""
    with open_archive(data_dir, "tmall", TMALL) as archive:
        for member, layout in _LAYOUTS.items():
            found = [name for name in archive.members if name.rpartition("/")[2] == member]
            if found:
                return read_events(archive, min(found), "tmall", "products", layout)
        raise InputError(f"{archive.path} has neither {' nor '.join(_LAYOUTS)}; get one of them from {TMALL.url}")
