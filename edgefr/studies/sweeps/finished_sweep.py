"""A sweep that ended is read back from its folder: what was asked for, and what each run came to."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.simulation.runs.run import Run
from edgefr.studies.sweeps.grid import Point
from edgefr.studies.sweeps.plan import RECORD, SCHEMA
from edgefr.studies.sweeps.results import Entry
from edgefr.studies.sweeps.search import Trial
from privacy.errors import InputError

RUNS = "runs.csv"


@dataclass(frozen=True)
class Kept:
    """This is a sweep as its folder keeps it: the `record` of its command, and its runs.

    `speaking`: those that count for their point, which are all unless a search chose among them.
    """

    folder: Path
    record: dict[str, Any]
    entries: tuple[Entry, ...]
    speaking: tuple[Entry, ...]

    @classmethod
    def read(cls, folder: Path) -> Kept:
        """Read all that a sweep left. Raises `InputError` where something is missing or damaged."""
        if not (folder / RUNS).is_file():
            raise InputError(f"the sweep in {folder} did not end (no {RUNS}); go on with it by --resume {folder}")
        try:
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            if record["schema"] != SCHEMA:
                raise ValueError(f"{RECORD} is of schema {record['schema']}")
            with open(folder / RUNS, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            found = [(_entry(folder, record, row), row.get("best", "True") == "True") for row in rows]
        except InputError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(f"cannot read the sweep in {folder}: {error}; run it again with another --out") from None
        return cls(folder, record, tuple(e for e, _ in found), tuple(e for e, best in found if best))


def _entry(folder: Path, record: Mapping[str, Any], row: Mapping[str, str]) -> Entry:
    point = Point.of([(field, row[field]) for field in record["grid"]])
    chosen = {field: float(row[field]) for field in (record["search"] or {"space": {}})["space"] if row.get(field)}
    trial = Trial(int(row["trial"]), chosen) if "trial" in row else None
    path = Path(row["folder"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{RUNS} names a folder outside the sweep's")
    problem = row["problem"] or None
    summary = Run(folder / path).summary if problem is None else None
    return Entry(point, int(row["seed"]), trial, path, summary, problem)
