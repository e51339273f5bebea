"""One small table of interactions, and one of items, written in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from edgefr.data.interactions import Dataset

ITEMS = 40


def interactions(rows: int = 400) -> pa.Table:
    """Users and items with numbers for ids, half stars, seconds; some rows stand twice."""
    draw = np.random.default_rng(0)
    user, item = draw.integers(1000, 1030, rows), draw.integers(7, 7 + ITEMS, rows)
    time = draw.integers(1_500_000_000, 1_600_000_000, rows)
    table = pa.table({"userId": user, "movieId": item, "rating": draw.integers(1, 11, rows) / 2, "timestamp": time})
    return pa.concat_tables([table, table.slice(0, 20)])


def items() -> pa.Table:
    """Titles and genres of the items, and of some that nobody had."""
    number = np.arange(0, ITEMS + 20)
    genres = ["Drama|War" if n % 2 else "Comedy" for n in number]
    return pa.table({"movieId": number, "title": [f'Film "{n}", part 2' for n in number], "genres": genres})


def write(table: pa.Table, path: Path) -> Path:
    """Write a table in the format that the file's name says; packed where it says so."""
    form = path.suffixes[0]
    if form == ".parquet":
        parquet.write_table(table, path)
    else:
        text = {".csv": _csv, ".tsv": _tsv, ".inter": _atomic, ".item": _atomic, ".jsonl": _json}[form](table)
        packing = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
        with pa.output_stream(str(path), compression=packing) as file:
            file.write(text)
    return path


def tensors(dataset: Dataset) -> dict[str, Any]:
    """Return all that a run reads of a data set."""
    listed = dataset.catalogue
    return {
        "users": dataset.users.tolist(),
        "items": listed.ids.tolist(),
        "title": listed.title,
        "text": listed.text,
        "domain": listed.domain.tolist(),
        "clock": dataset.clock,
        "domains": dataset.domains,
        **{name: getattr(dataset, name).tolist() for name in ("user", "item", "time", "offsets")},
    }


def _csv(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return b"\xef\xbb\xbf" + sink.getvalue().to_pybytes().replace(b"\n", b"\r\n")


def _tsv(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(delimiter="\t"))
    return sink.getvalue().to_pybytes()


def _atomic(table: pa.Table) -> bytes:
    types = {"rating": "float", "timestamp": "float", "title": "token_seq", "genres": "token_seq"}
    lines = ["\t".join(f"{name}:{types.get(name, 'token')}" for name in table.column_names)]
    lines += ["\t".join(map(str, row.values())) for row in table.to_pylist()]
    return "\n".join(lines).encode() + b"\n"


def _json(table: pa.Table) -> bytes:
    import json

    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
