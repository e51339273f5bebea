"""Reading needs these modules of pyarrow, which are imported when something of them is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.config.faces import Later

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv
    from pyarrow import json as arrow_json
    from pyarrow import parquet
else:
    pa, pc, parquet = Later("pyarrow"), Later("pyarrow.compute"), Later("pyarrow.parquet")
    arrow_csv, arrow_json = Later("pyarrow.csv"), Later("pyarrow.json")

__all__ = ["arrow_csv", "arrow_json", "pa", "parquet", "pc"]
