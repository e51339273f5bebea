"""The help of every command: what holds where an option is not given, and two commands that run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from edgefr.cli.app import app
from edgefr.cli.helped import unmarked
from tests.cli.commands import ROOT
from tests.cli.conftest import Cli

WIDE = "400"
CHEAP = (
    "edgefr bundle keygen --out keys",
    "edgefr bundle keygen --out other-keys",
    "edgefr data",
    "edgefr data demo",
    "edgefr devices",
    "edgefr devices --devices devices.yaml",
    "edgefr privacy --mechanism gaussian --sigma 4 --clip 1 --rounds 100 --clients 943",
)
"""Examples that take seconds and need no run."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that it is called by."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        if not hasattr(command, "list_commands") or command.invoke_without_command:
            yield (*path, name), command


ALL = dict(commands(get_command(app)))


def examples(help_text: str) -> list[str]:
    """The commands that a help text gives as examples, as they are shown."""
    return [line.strip() for line in re.findall(r"Example: (edgefr .*)", help_text)]


def rows_of(help_text: str, option: str) -> str:
    """The rows of the table of options that speak of one."""
    rows = [line for line in help_text.splitlines() if line.startswith("│")]
    opens = [at for at, line in enumerate(rows) if re.match(r"│ +(\* +)?-", line)]
    first = next(at for at in opens if re.search(rf"[ ,]{option} ", rows[at]))
    return "\n".join(rows[first : next((at for at in opens if at > first), len(rows))])


@pytest.fixture
def wide(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line on a terminal in which no line is broken."""
    monkeypatch.setenv("COLUMNS", WIDE)
    return cli


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_defaults_and_two_commands_or_more(path: tuple[str, ...], wide: Cli) -> None:
    code, out, err = wide(*path, "--help")
    assert (code, err) == (0, "")
    found = examples(out)
    assert len(found) == len(set(found)) >= 2, out
    for example in found:
        words = shlex.split(example)[1:]
        assert tuple(words[: len(path)]) == path
        ALL[path].make_context("edgefr", words[len(path) :])  # it can be parsed
    for parameter in ALL[path].params:
        if parameter.param_type_name != "option" or parameter.is_flag or parameter.name == "help":
            continue
        own = rows_of(out, parameter.opts[0])
        said = re.search(r"default|none[:;]|\[required\]", own, re.IGNORECASE)
        assert said, f"{' '.join(path)} {parameter.opts[0]}: nothing is said of what holds where it is not given\n{own}"


def test_cheap_examples_run_as_they_stand(wide: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {example for path in ALL for example in examples(wide(*path, "--help")[1])}
    assert set(CHEAP) <= shown
    shutil.copy(ROOT / "devices.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for example in CHEAP:
        code, out, err = wide(*shlex.split(example)[1:])
        assert (code, err) == (0, ""), example
        assert out


def test_angle_brackets_survive(wide: Cli) -> None:
    assert "runs/<name>, numbered" in wide("simulate", "--help")[1]
    assert "runs/<name>-sweep" in wide("sweep", "--help")[1]
    assert unmarked("a < b, `<c>`") == r"a \< b, `<c>`"
    assert unmarked(unmarked("<a>")) == r"\<a>"
    for text in ("<b>[i]x[/i]</b>", "[red]a[/red]"):
        code, out, err = wide("simulate", "--data", text)
        assert (code, out) == (2, "")
        assert text in err
