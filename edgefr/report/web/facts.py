"""A page is made from the files of a finished run that may be shown to anybody."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgefr.report.audit import FILE as AUDIT
from edgefr.report.audit import SCHEMA as AUDIT_SCHEMA
from privacy.errors import InputError
from privacy.files import sha256_of

HASHED = ("experiment.yaml", "devices.yaml", "metrics.parquet", "ledger.parquet", AUDIT)
"""Files whose digests a page prints, where they exist."""
METRIC_COLUMNS = ("on", "after", "stage", "group", "which", "ranking", "round", "metric", "value", "users")


@dataclass(frozen=True)
class Facts:
    """These are the facts of the run in `path`; nothing of its private part is among them.

    `measured`: its table of measurements (None: that in its folder).
    """

    path: Path
    summary: dict[str, Any]
    measured: list[dict[str, Any]] | None = None

    @property
    def name(self) -> str:
        """Return the name of the run's folder."""
        return self.path.resolve().name

    @property
    def title(self) -> str:
        """Return method and data set, with the strategy where it is a choice."""
        s = self.summary
        strategy = f" ({s['backbone']}, {s['strategy']})" if "continual" in s else ""
        return f"{s['method']}{strategy} on {s['data']}"

    @property
    def federated(self) -> bool:
        """Say whether devices learned; a central reference has neither fleet nor privacy."""
        return "central" not in self.summary

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return the table of measurements, row by row; none where it is missing or of another form."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.measured is not None:
            return self.measured
        try:
            found = pq.ParquetFile(self.path / "metrics.parquet").read()
        except FileNotFoundError:
            return []
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(f"cannot read {self.path / 'metrics.parquet'}: {reason}; run it again") from error
        return found.to_pylist() if set(METRIC_COLUMNS) <= set(found.column_names) else []

    @cached_property
    def audit(self) -> dict[str, Any] | None:
        """Return what attacks on the run found, if it was audited in today's form."""
        try:
            found = json.loads((self.path / AUDIT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {self.path / AUDIT}: {error}; run edgefr audit again") from None
        return found if isinstance(found, dict) and found.get("schema") == AUDIT_SCHEMA else None

    @cached_property
    def experiment(self) -> str:
        """Return the resolved experiment, as it was written."""
        return (self.path / "experiment.yaml").read_text(encoding="utf-8")

    def digests(self) -> list[tuple[str, str]]:
        """Return (file, sha256) of the files that decide or hold the results."""
        return [(name, sha256_of(self.path / name)) for name in HASHED if (self.path / name).is_file()]

    def typical_round(self) -> list[dict[str, Any]]:
        """Return the events of the round that took the median time; none where single clients were not logged."""
        path = self.path / "events.jsonl"
        rounds = _rounds(path) if path.is_file() else []
        if not rounds:
            return []
        _, begin, end = sorted(rounds)[len(rounds) // 2]
        with open(path, "rb") as file:
            file.seek(begin)
            return [json.loads(line) for line in file.read(end - begin).splitlines()]


def _rounds(path: Path) -> list[tuple[float, int, int]]:
    """Return the seconds of every round of a log, and where in the file the round begins and ends.

    A log of many clients is long, so lines are read only where a round starts or closes.
    """
    found: list[tuple[float, int, int]] = []
    start: tuple[float, int] | None = None
    place = 0
    with open(path, "rb") as file:
        for line in file:
            if b'"kind": "started"' in line and b'"client": null' in line:
                start = (_time(line), place)
            place += len(line)
            if b'"kind": "closed"' in line and start is not None:
                found.append((_time(line) - start[0], start[1], place))
                start = None
    return found


def _time(line: bytes) -> float:
    try:
        return float(json.loads(line)["time"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"a line of events.jsonl is damaged: {error}; run the experiment again") from error


def metrics_of(rows: Sequence[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]
