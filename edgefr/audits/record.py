"""`audit.json` is what an audit leaves in a run's folder, with the bound in it.

Light: reports read it without torch.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from privacy.errors import InputError

SCHEMA = "edgefr.audit/2"
FILE = "audit.json"
ROW = {"attack", "unit", "eps_lb95", "claimed", "bounded", "counts", "looks", "of"}
"""What a finding must have to be kept."""


def read_bound(folder: Path) -> float | None:
    """Return the bound that audits of a run left in its folder; None if there was none, or none gave a bound.

    Raises `InputError` for a damaged file.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["schema"] != SCHEMA:
            raise ValueError(f"it is {report['schema']}")
        value = report["eps_lb95"]
        if value is None:
            return None
        if not (type(value) is float and 0 <= value < math.inf):
            raise ValueError(f"eps_lb95 is {str(value)[:20]!r}")
        return value
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}; run edgefr audit again") from None


def read_attacks(folder: Path) -> list[dict[str, Any]]:
    """Return what audits of a run have found so far, a row an attack; nothing where the file is missing or damaged."""
    try:
        report = json.loads((folder / FILE).read_text(encoding="utf-8"))
        rows = [row for row in report["attacks"] if report["schema"] == SCHEMA]
        return rows if all(set(row) >= ROW for row in rows) else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
