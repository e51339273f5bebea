"""Text is read and written as UTF-8 by name, since Windows takes another encoding where none is named."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("privacy", "edge", "cloud", "export", "edgefr", "benchmarks")


def unnamed(source: str) -> list[int]:
    """The lines that open, read or write text, or the text of a process, and do not say in which encoding."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name == "read_text":
            text = not call.args
        elif name == "write_text":
            text = len(call.args) < 2
        elif name == "open" and isinstance(call.func, ast.Name):
            text = "b" not in str(getattr(call.args[1], "value", "")) if len(call.args) > 1 else "mode" not in given
        elif name == "open":  # of a path: its first argument is the mode; of anything else it is no mode
            mode = getattr(call.args[0], "value", None) if call.args else given and "r"
            text = isinstance(mode, str) and set(mode) <= set("rwatx+") and bool(mode)
        else:
            text = "text" in given and name in ("run", "Popen", "check_output")
        if text and "encoding" not in given:
            found.append(call.lineno)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_text_has_a_named_encoding(room: str) -> None:
    paths = sorted((ROOT / room).rglob("*.py"))
    assert paths
    assert [f"{p.relative_to(ROOT)}:{n}" for p in paths for n in unnamed(p.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("path.read_text()", [1]),
        ("path.read_text('utf-8'); path.read_text(encoding='utf-8')", []),
        ("path.write_text(x)", [1]),
        ("open(path)\nopen(path, 'w')", [1, 2]),
        ("open(path, 'rb')\nopen(path, mode='wb')\nopen(path, 'w', encoding='utf-8')", []),
        ("path.open('w')\npath.open(newline='')", [1, 2]),
        ("path.open('rb')\narchive.open(member)\nRun.open('runs/demo')\njournal.open()", []),
        ("subprocess.run(command, text=True)", [1]),
    ],
)
def test_what_is_found(source: str, lines: list[int]) -> None:
    assert unnamed(source) == lines
