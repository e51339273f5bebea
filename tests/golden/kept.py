"""The values that are kept, a file per method: read and written."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.golden.values import Values

FOLDER = Path(__file__).parent / "kept"
HOW = "python -m tests.golden.make --missing adds values of new cases"


def kept() -> dict[str, Values]:
    """Values of every case, by name."""
    found: dict[str, Values] = {}
    for path in sorted(FOLDER.glob("*.json")):
        found |= json.loads(path.read_text())
    return found


def keep(values: dict[str, Values]) -> None:
    """Write all values, and nothing else: a file per method or strategy, a line per part of a case."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name in sorted({file_of(case) for case in values}):
        own = {case: found for case, found in values.items() if file_of(case) == name}
        cases = ",\n".join(f"{json.dumps(case)}: {{\n{_lines(own[case])}\n}}" for case in sorted(own))
        (FOLDER / f"{name}.json").write_text(f"{{\n{cases}\n}}\n")


def file_of(case: str) -> str:
    """The file a case's values are in: that of its method or strategy."""
    return re.split("[ ,]", case)[0]


def _lines(values: Values) -> str:
    return ",\n".join(
        f"{json.dumps(part)}: {json.dumps(found, separators=(',', ':'))}" for part, found in values.items()
    )
