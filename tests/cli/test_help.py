"""The help of every command: what holds where an option is not given, and two commands that run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from edgefr.cli.app import app
from edgefr.cli.commands import HOMES, unmarked
from tests.cli.commands import ROOT
from tests.cli.conftest import Cli

WIDE = "400"
CHEAP = (
    "edgefr bundle keygen --out keys",
    "edgefr bundle keygen --out other-keys",
    "edgefr data",
    "edgefr data demo",
    "edgefr methods",
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
def test_help_says_all_in_80_columns_and_gives_two_examples(
    path: tuple[str, ...], wide: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = wide.done(*path, "--help")
    assert f"edgefr {' '.join(path)}" in out
    found = examples(out)
    assert len(found) == len(set(found)) >= 2, out
    for example in found:
        words = shlex.split(example)[1:]
        assert tuple(words[: len(path)]) == path
        ALL[path].make_context("edgefr", words[len(path) :])  # it can be parsed
    for parameter in ALL[path].params:
        if parameter.param_type_name != "option":
            continue
        assert parameter.help, f"{parameter.opts[0]} is not described"
        if not parameter.is_flag and parameter.name != "help":
            own = rows_of(out, parameter.opts[0])
            said = re.search(r"default|none[:;]|\[required\]", own, re.IGNORECASE)
            assert said, f"{' '.join(path)} {parameter.opts[0]}: what holds where it is not given?\n{own}"
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, wide.done(*path, "--help").splitlines())) <= 80


def test_the_first_help_names_every_command(cli: Cli) -> None:
    out = cli.done("--help")
    assert [name for name in HOMES if f"│ {name} " not in out] == []
    assert cli()[:2] == (0, out), "no command at all shows the same help"
    assert cli.done("--version") == f"edgefr {version('edgefr')}\n"
    assert [path for path in ALL if len(path) > 1 and f"│ {path[1]} " not in cli.done(path[0], "--help")] == []


def test_the_first_help_has_five_commands_and_then_the_rest_by_purpose(cli: Cli) -> None:
    out = cli.done("--help")
    assert re.findall(r"^│ ([a-z]+) ", out[out.index("─ First") : out.index("─ Research")], re.MULTILINE) == [
        *("data", "simulate", "compare", "report", "export")
    ]
    titles = re.findall(r"^╭─ (.*?) ─", out, re.MULTILINE)
    assert titles == ["Options", "First", "Research", "Privacy", "Devices and bundles", "Rounds with real devices"]


def test_cheap_examples_run_as_they_stand(wide: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {example for path in ALL for example in examples(wide.done(*path, "--help"))}
    assert set(CHEAP) <= shown
    shutil.copy(ROOT / "devices.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for example in CHEAP:
        assert wide.done(*shlex.split(example)[1:])


def test_angle_brackets_survive(wide: Cli) -> None:
    assert "runs/<name>, numbered" in wide.done("simulate", "--help")
    assert "runs/<name>-sweep" in wide.done("sweep", "--help")
    assert unmarked("a < b, `<c>`") == r"a \< b, `<c>`"
    assert unmarked(unmarked("<a>")) == r"\<a>"
    for text in ("<b>[i]x[/i]</b>", "[red]a[/red]"):
        assert text in wide.refused("simulate", "--data", text)
