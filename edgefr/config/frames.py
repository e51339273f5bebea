"""Tables of a run's folder are read as data frames of pandas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privacy.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

EVENT = ("time", "seq", "round", "client", "kind")
"""Every event has these columns; what else it says stands in columns of its own."""
COUNTS = ("round", "client", "users", "seq", "invited")
"""Columns of whole numbers, which may be missing."""


def table(path: Path, otherwise: tuple[str, ...] | None = None) -> DataFrame:
    """Read a parquet file of a run; without one, an empty frame with the columns `otherwise`, if there are any.

    Raises `InputError` for a file that is missing or damaged.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    if otherwise is not None and not path.exists():
        return pd.DataFrame({name: pd.Series(dtype=object) for name in otherwise})
    try:
        return _typed(pq.ParquetFile(path).read().to_pandas())
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"cannot read {path}: {reason}; run the experiment again") from error


def of_columns(columns: Mapping[str, Any]) -> DataFrame:
    """Return columns as a frame."""
    import pandas as pd

    return _typed(pd.DataFrame(dict(columns)))


def events(path: Path) -> DataFrame:
    """Read the log of the virtual clock. Raises `InputError` for a log that is damaged."""
    import pandas as pd

    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        frame = pd.DataFrame(rows, columns=[*EVENT, *dict.fromkeys(k for row in rows for k in row if k not in EVENT)])
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"cannot read {path}: {error}; run the experiment again") from error
    return _typed(frame.astype({"time": "float64"}))


def _typed(frame: DataFrame) -> DataFrame:
    """Return the frame with numbers that may be missing as whole numbers."""
    return frame.astype({name: "Int64" for name in COUNTS if name in frame.columns})
