"""Nothing that a user reads has a phrase of `forbidden_phrases.txt`: messages, help, settings, pages, notebooks."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("edgefr", "edge", "export", "privacy")
LIST = Path(__file__).with_name("forbidden_phrases.txt")
PHRASES = [line.split(" -> ")[0] for line in LIST.read_text().splitlines() if not line.startswith("#")]


def texts_of_code(source: str) -> Iterator[str]:
    """Yield the strings of a module in one piece each, but for docstrings; what an f-string puts in is `{}`."""
    tree = ast.parse(source)
    bare = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    left_out = {id(part) for one in bare for part in ast.walk(one) if isinstance(part, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            left_out |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def texts_of(path: Path) -> Iterator[str]:
    """Yield what a user reads of a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from texts_of_code(source)
    elif path.suffix == ".ipynb":
        yield from ("".join(cell["source"]) for cell in json.loads(source)["cells"])
    else:
        yield source


def commands_help(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module of commands, which `--help` shows."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def forbidden(text: str) -> list[str]:
    """Return the phrases that a text has, in any case and over line ends."""
    plain = re.sub(r"[\s*`]+", " ", text).lower()
    return [phrase for phrase in PHRASES if re.search(rf"\b{re.escape(phrase)}\b", plain)]


def read_by_users() -> list[Path]:
    """Return the files that have something for users to read."""
    code = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb"), ROOT / "README.md"]
    return sorted([*code, *pages, *(ROOT / "edgefr").rglob("*.html")])


def test_no_forbidden_phrase_is_read_by_a_user() -> None:
    paths = read_by_users()
    found = {(path, phrase) for path in paths for text in texts_of(path) for phrase in forbidden(text)}
    shown = [path for path in paths if path.parent == ROOT / "edgefr" / "cli"]
    found |= {(path, phrase) for path in shown for text in commands_help(path) for phrase in forbidden(text)}
    assert sorted(f"{path.relative_to(ROOT)}: {phrase}" for path, phrase in found) == []
    assert len(paths) > 400
    assert len(shown) > 15


def test_a_planted_phrase_is_found_in_each_kind_of_file(tmp_path: Path) -> None:
    cell = {"cell_type": "markdown", "source": ["It is Known\n", "from three runs."]}
    planted = {
        "page.md": "The figure is known\nfrom **three** runs.",
        "page.html": "<b>Known from</b>",
        "book.ipynb": json.dumps({"cells": [cell]}),
        "code.py": 'x = 1\nprint(f"{x} is known " "from here")\n',
    }
    for name, content in planted.items():
        (tmp_path / name).write_text(content)
        assert [phrase for text in texts_of(tmp_path / name) for phrase in forbidden(text)] == ["known from"], name
    (tmp_path / "quiet.py").write_text('"""Known from."""\nfaces = 1  # known from\n')
    assert [phrase for text in texts_of(tmp_path / "quiet.py") for phrase in forbidden(text)] == []
