"""How long a file of somebody's own takes to read, and how much memory: python benchmarks/own_data.py [ROWS]

Rows are drawn with seed 0: uniform users, a tenth as many, and items by a power law; half stars and unix seconds. Every
file is read by a process of its own, whose peak memory is that of the whole process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

READ = """
import resource, sys, time
from edgefr.data import datasets as data
began = time.perf_counter()
found = data.load(sys.argv[1])
spent = resource.getrusage(resource.RUSAGE_SELF)
wall, cpu = time.perf_counter() - began, spent.ru_utime + spent.ru_stime
print(f"{len(found.user):,} rows: {wall:.1f} s, {cpu:.1f} s of a core, {spent.ru_maxrss / 1024:.0f} MB")
"""


def write(folder: Path, rows: int) -> list[Path]:
    """Write the same rows as parquet with numbers for ids, as parquet with text for ids, and as CSV."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv, parquet

    draw = np.random.default_rng(0)
    user, item = (
        draw.integers(0, rows // 10, rows),
        np.minimum(draw.pareto(1.2, rows) * 50, rows // 100).astype(np.int64),
    )
    rest = {"rating": draw.integers(1, 11, rows) / 2, "timestamp": draw.integers(1_400_000_000, 1_500_000_000, rows)}
    numbers = pa.table({"user_id": user, "item_id": item, **rest})
    named = {
        name: pc.binary_join_element_wise(pa.scalar(start), pa.array(ids).cast(pa.string()), "")
        for name, start, ids in (("reviewerID", "AU", user), ("asin", "B00", item))
    }
    paths = [folder / name for name in ("numbers.parquet", "text.parquet", "numbers.csv")]
    parquet.write_table(numbers, paths[0])
    parquet.write_table(pa.table({**named, **rest}), paths[1])
    csv.write_csv(numbers, paths[2])
    return paths


def main() -> None:
    """Write the files and read each of them."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), rows):
            done = subprocess.run(
                [sys.executable, "-c", READ, path], capture_output=True, text=True, encoding="utf-8", check=True
            )
            print(f"{path.name} ({path.stat().st_size / 2**20:.0f} MB): {done.stdout.strip()}")


if __name__ == "__main__":
    main()
