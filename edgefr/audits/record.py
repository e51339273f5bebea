"""`audit.json` is what an audit leaves in a run's folder, with the bound in it.

Light: reports read it without torch.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from privacy.errors import InputError

SCHEMA = "edgefr.audit/1"
FILE = "audit.json"


def read_bound(folder: Path) -> float | None:
    """Return the bound that the last audit of a run left in its folder; None if there was none, or it gave no bound.

    Raises `InputError` for a damaged file.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        report = json.loads(path.read_text())
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
