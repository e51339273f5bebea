"""This module registers the formats that ship: one more is one more line."""

from edgefr.data.files.delimited import ATOMIC, CSV, TSV
from edgefr.data.files.formats import FORMATS
from edgefr.data.files.jsonl import JSONL
from edgefr.data.files.parquet import PARQUET

for _format in (CSV, TSV, PARQUET, JSONL, ATOMIC):
    FORMATS.register(_format)
