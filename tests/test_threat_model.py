"""The page on threats names tests, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "threat-model.md"


def test_every_test_it_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text())
    assert len(named) > 20
    missing = []
    for file, test in named:
        path = ROOT / file
        known = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
        if test and test not in known:
            missing.append(f"{file}::{test}")
    assert missing == []
