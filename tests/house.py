"""The house as its own code has it: rooms, floors, arrows between files, lines. `python -m tests.house` prints it.

An arrow goes from a file to one that defines a name which it imports: at its top, for types alone, or inside a
function. An `__init__` that only hands names on draws no arrow; what is imported from it leads to the file that defines
it. A room is a folder of `edgefr`, or one of the other packages.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGES = ("privacy", "edge", "cloud", "export", "edgefr")
FACES = ("edgefr/__init__.py", "edgefr/testing/", "edgefr/tracking/")
"""Files that hand names on by paths that people know."""


@dataclass
class Source:
    """This is a file: its tree, its imports by the name they give, and what it defines itself."""

    path: str
    text: str
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self.imports |= {alias.asname or alias.name: (alias.name, None) for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imports |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self.defined.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.defined |= {name.id for t in targets for name in ast.walk(t) if isinstance(name, ast.Name)}

    @cached_property
    def tree(self) -> ast.Module:
        """Return the parsed file."""
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """Return the module's dotted name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def docstring(self) -> str:
        """Return the module's docstring on one line."""
        return " ".join((ast.get_docstring(self.tree) or "").split())

    @property
    def face(self) -> bool:
        """Say whether the file only hands names on."""
        return self.path.startswith(FACES) or (
            self.path.endswith("__init__.py") and all(name.startswith("_") for name in self.defined)
        )

    @property
    def code(self) -> int:
        """Count lines that are no blank, comment or docstring."""
        skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in (*skipped, tokenize.ENDMARKER):
                lines |= set(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return len(lines)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yield every function's name and its lines without the docstring; of a command its body's alone."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0].lineno if self.path.startswith("edgefr/cli/") else node.lineno
                said = len((ast.get_docstring(node) or "").splitlines())
                yield node.name, (node.end_lineno or 0) - first + 1 - said


def room(path: str) -> str:
    """Return the room of a file.

    >>> room("edgefr/data/files/rows.py"), room("edge/device.py"), room("edgefr/__main__.py")
    ('edgefr/data', 'edge', 'edgefr/cli')
    """
    parts = path.split("/")
    if path == "edgefr/__main__.py":
        return "edgefr/cli"
    return "/".join(parts[:2]) if parts[0] == "edgefr" and len(parts) > 2 else parts[0]


class House:
    """All files of the packages below a folder, and the arrows between them."""

    def __init__(self, root: Path) -> None:
        paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
        found = [Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in paths]
        self.sources = {source.module: source for source in found}

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Return the files that each file uses."""
        out: dict[str, set[str]] = {}
        for source in self.sources.values():
            used = {self._home(*target) for target in source.imports.values()}
            out[source.path] = set() if source.face else {path for path in used if path and path != source.path}
        return out

    def _home(self, module: str, name: str | None, seen: tuple[str, ...] = ()) -> str | None:
        """Return the file that defines what is imported; None where it is nobody's here."""
        if name is not None and f"{module}.{name}" in self.sources:
            module, name = f"{module}.{name}", None
        source = self.sources.get(module)
        if source is None or module in seen:
            return None
        if name is not None and name not in source.defined and name in source.imports:
            return self._home(*source.imports[name], (*seen, module)) or source.path
        return None if source.face else source.path

    @cached_property
    def rooms(self) -> dict[str, set[str]]:
        """Return the rooms that each room uses."""
        out: dict[str, set[str]] = defaultdict(set)
        for path, used in self.arrows.items():
            if not path.startswith(FACES):
                out[room(path)] |= {room(other) for other in used} - {room(path)}
        return dict(out)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of more than one that reach each other.

    >>> circles({"a": {"b"}, "b": {"a"}, "c": {"a"}})
    [['a', 'b']]
    """
    reach = {start: _reached(arrows, start) for start in arrows}
    groups = {tuple(sorted({a, *(b for b in reach[a] if a in reach.get(b, ()))})) for a in arrows}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reached(arrows: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in arrows.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def floors(arrows: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how high each lies above what uses nothing, from 1; there must be no circle.

    >>> floors({"a": {"b"}, "b": set()})
    {'a': 2, 'b': 1}
    """
    found: dict[str, int] = {}

    def floor(name: str) -> int:
        if name not in found:
            found[name] = 1 + max(map(floor, arrows.get(name, ())), default=0)
        return found[name]

    return {name: floor(name) for name in arrows}


def main(root: Path) -> None:
    """Print rooms from the highest floor down, then circles and totals."""
    house = House(root)
    high = {} if circles(house.rooms) else floors(house.rooms)
    print(f"{'room':20}{'floor':>6}{'files':>6}{'lines':>7}{'code':>7}  uses")
    whole = [0, 0]
    for name in sorted(house.rooms, key=lambda name: (-high.get(name, 0), name)):
        mine = [source for source in house.sources.values() if room(source.path) == name]
        lines, code = sum(source.text.count("\n") for source in mine), sum(source.code for source in mine)
        whole = [whole[0] + lines, whole[1] + code]
        uses = ", ".join(sorted(other.removeprefix("edgefr/") for other in house.rooms[name]))
        print(f"{name:20}{high.get(name, 0):6}{len(mine):6}{lines:7}{code:7}  {uses}")
    tests = [Source(path.name, path.read_text(encoding="utf-8")) for path in (root / "tests").rglob("*.py")]
    print(f"library: {len(house.sources)} files, {whole[0]} lines, {whole[1]} of code")
    print(f"tests: {len(tests)} files, {sum(test.text.count(chr(10)) for test in tests)} lines")
    print(f"circles of files: {circles(house.arrows) or 'none'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
