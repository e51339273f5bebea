"""The page of all commands names every command, and each line on it is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from edgefr.cli.app import app
from tests.cli.commands import TINY_FEDMF, edgefr
from tests.cli.test_help import ALL

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("commands.md", "privacy.md", "real-devices.md")]


def lines_of(page: Path) -> list[str]:
    """Return the commands of a page's indented blocks."""
    return re.findall(r"^    (edgefr .*)$", page.read_text().replace("\\\n", " "), re.MULTILINE)


def parsed(line: str) -> tuple[str, ...]:
    """Return the words that name the command of a line. Raises what the command line raises for a wrong line."""
    words, command, found = shlex.split(line, comments=True)[1:], app_of(), []
    while hasattr(command, "list_commands") and words:
        if command.get_command(None, words[0]) is None:
            raise LookupError(f"no command {words[0]}")
        found.append(words.pop(0))
        command = command.get_command(None, found[-1])
    command.make_context(found[-1], words)
    return tuple(found)


def app_of() -> Any:
    """Return the command line as click knows it."""
    return get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_line_is_taken(page: Path) -> None:
    found = lines_of(page)
    assert len(found) >= 3
    for line in found:
        assert parsed(line) in ALL, line


def test_every_command_is_on_the_page() -> None:
    named = {parsed(line) for line in lines_of(PAGES[0])}
    assert sorted(set(ALL) - named) == []


@pytest.mark.slow
def test_the_lines_on_bundles_and_devices_run_in_the_pages_order(tmp_path: Path) -> None:
    """On a small run in place of the demo, without what takes long, and what needs a server."""
    settings = tmp_path / "small.yaml"
    settings.write_text(TINY_FEDMF.replace("speaker_512", "watch_w5"))
    made = edgefr("simulate", "--experiment", settings, "--out", "runs/demo", cache=tmp_path / "cache", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    page = PAGES[0].read_text()
    part = page[page.index("## What is shipped") : page.index("`edgefr serve` and")].replace("\\\n", " ")
    lines = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^    (edgefr .*)$", part, re.MULTILINE)]
    lines = [line for line in lines if line[0] not in ("calibrate", "simulate", "cost")]
    assert {"update", "trust"} < {line[1] for line in lines}
    for line in lines:
        done = edgefr(*line, cache=tmp_path / "cache", cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("edgefr simulate --round 3", "No such option"),
        ("edgefr sweep --grid", "requires an argument"),
        ("edgefr devices ad my_phone", "no command ad"),
        ("edgefr reproduce transfr --table 7", "less than or equal to 6"),
    ],
)
def test_a_line_that_is_not_taken_is_seen(line: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        parsed(line)
