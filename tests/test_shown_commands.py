"""Every command that is shown anywhere is one that the command line takes."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from edgefr.cli.app import CommandLineError
from edgefr.experiment.experiment import load_experiment
from privacy.errors import InputError
from tests.test_commands_page import parsed

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for top in ("README.md", "CONTRIBUTING.md", "docs", "experiments", "benchmarks", "notebooks")
    for path in ([ROOT / top] if (ROOT / top).is_file() else (ROOT / top).rglob("*"))
    if path.suffix in (".md", ".ipynb", ".yaml") and "spaces" not in path.parts
)
SOURCES = sorted(
    path for room in ("edgefr", "edge", "export", "cloud", "privacy") for path in (ROOT / room).rglob("*.py")
)
OPEN = re.compile(r"[<>…$]|\.\.\.|\b[A-Z]{3,}\b|\{|\[[A-Z]")
"""What stands for something: a name in capitals, an ellipsis, a bracket."""


REFUSED = {"edgefr simulate --devices devices.yaml --set roundz=3": "stands beside the line that refuses it"}
"""What is shown because it is refused, and why."""


@dataclass(frozen=True)
class Shown:
    """A command is shown here; `text` begins with `edgefr`. `typed`: it stands on a line of its own, to be typed."""

    where: str
    text: str
    typed: bool

    @property
    def words(self) -> list[str]:
        """Return its words. Raises `ValueError` for quotes that do not end."""
        return shlex.split(self.text, comments=True)

    @property
    def whole(self) -> bool:
        """Say whether it can be typed as it stands, without a name in place of another."""
        return self.typed and not OPEN.search(self.text)


def of_page(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the commands of a page, and whether each is on a line of its own: of a block or a comment."""
    text = path.read_text("utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    text, fenced = re.sub(r"\s*\\\n#?\s*", " ", text), False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        start = r"(?:    |#\s+|!)?" if fenced else r"(?:    +|#  +|!)"
        found = re.match(rf"^{start}(?:pip install [^&]*&& )?\s*(edgefr [a-z-].*)$", line)
        if found:
            line = re.sub(r"\$\(.*?\)", "$X", found[1])  # what another command prints
            yield line.split(" && ")[0].split(" | ")[0], True
    yield from ((inline, False) for inline in re.findall(r"`(edgefr [a-z-][^`\n]*)`", text))


def of_source(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the commands between backticks in the texts of a module; those after `Example:` are to be typed."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "`edgefr " in text else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for before, text in re.findall(r"(Example: )?`(edgefr [a-z][^`\n]*)`", node.value):
                yield text, bool(before)


@cache
def shown() -> tuple[Shown, ...]:
    """Return every command that is shown, once a place."""
    found = [Shown(str(path.relative_to(ROOT)), *one) for path in PAGES for one in of_page(path)]
    found += [Shown(str(path.relative_to(ROOT)), *one) for path in SOURCES for one in of_source(path)]
    return tuple(dict.fromkeys(found))


def wrong(command: Shown) -> str | None:
    """Return what is wrong with a command; None where the command line takes it and its settings."""
    if command.text in REFUSED:
        return None
    try:
        words = command.words
        parsed(command.text)
    except CommandLineError as error:
        said = str(error.format_message())
        named = not command.typed and re.match(r"Missing (argument|option)|Option .* requires (an|\d) argument|$", said)
        return None if named or (OPEN.search(command.text) and "No such" not in said) else said
    except (LookupError, ValueError) as error:
        own = len(command.words) > 1 and re.search(r"no command -", str(error))  # an option of `edgefr`, or of a group
        return None if own else str(error)
    sets = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--set"]
    files = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--experiment"]
    if words[1] != "simulate" or not command.whole or "--plugin" in words:
        return None  # a plug-in's entries are its own
    if files and not (ROOT / files[0]).is_file():
        return None  # the page makes it
    try:
        load_experiment(ROOT / files[0] if files else None, sets)
    except InputError as error:
        return str(error)
    return None


def test_commands_are_found_in_every_kind_of_place() -> None:
    places = {command.where.split("/")[0] for command in shown()}
    assert places >= {"README.md", "docs", "experiments", "benchmarks", "edgefr"}
    assert len(shown()) > 200


@pytest.mark.parametrize("place", sorted({command.where for command in shown()}))
def test_every_command_that_is_shown_is_taken(place: str) -> None:
    faults = {c.text: why for c in shown() if c.where == place and (why := wrong(c)) is not None}
    assert faults == {}


def test_what_is_refused_is_still_shown() -> None:
    assert REFUSED.keys() <= {command.text for command in shown()}
