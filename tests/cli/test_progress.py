"""Progress: bars on a terminal, log lines in a pipe, text that changes in a notebook."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from rich.console import Console

from edgefr.config import progress as watching
from edgefr.config.progress import logged, shown
from tests.cli.commands import without_progress


def test_a_pipe_gets_lines_from_time_to_time_and_nothing_of_short_work() -> None:
    file = io.StringIO()
    with logged(file, first=0.2) as progress:
        progress("rounds", 1, 4000, "14 clients/s [of 3]")
        time.sleep(0.5)
        progress("rounds", 2, 4000, "")
        time.sleep(0.5)
    lines = file.getvalue().splitlines()
    assert lines[0].endswith("s] rounds 1/4,000: 14 clients/s [of 3]")
    assert lines[-1].endswith("s] rounds 2/4,000")
    assert 3 <= len(lines) <= 5
    assert without_progress(file.getvalue()) == "", "the tests know such a line"
    short = io.StringIO()
    with shown(Console(file=short)) as progress:
        progress("rounds", 1, 4, "")
    assert short.getvalue() == ""


def test_work_that_says_nothing_is_seen_to_go_on_and_is_told_more_seldom() -> None:
    file = io.StringIO()
    with logged(file, "explaining", first=0.05):
        time.sleep(1.5)
    lines = file.getvalue().splitlines()
    assert all(line.endswith("s] explaining") for line in lines)
    assert 3 <= len(lines) <= 20, "30 at an even rate"


def test_lines_stop_where_the_work_fails() -> None:
    file = io.StringIO()
    with pytest.raises(ValueError, match="x"), logged(file, first=0.05):
        raise ValueError("x")
    time.sleep(0.2)
    assert file.getvalue() == ""


def test_progress_on_a_terminal_is_bars() -> None:
    file = io.StringIO()
    with shown(Console(file=file, force_terminal=True, width=100)) as progress:
        progress("rounds", 1, 4, "")
        progress("rounds", 4, 4, "14 clients/s [of 3] " + "and a long tail " * 9)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).rstrip().splitlines()[-1]
    assert all(part in last for part in ("rounds", "4/4", "0:00:0", "14 clients/s [of 3] and", "…")), last
    assert len(last.strip()) <= 100
    assert "starting" not in last


def test_outside_a_notebook_functions_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    told = []

    @watching.watched()
    def work(*, progress: object = None) -> None:
        told.append(progress)

    work()
    assert told == [None]
    assert capsys.readouterr() == ("", "")


CELL = """\
from edgefr.config.progress import watched

@watched()
def work(*, progress=None):
    for done in range(4):
        progress("rounds", done + 1, 4, "14 clients/s")
    return "done"

work()"""


def test_a_notebook_shows_text_that_changes(tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(book, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown, result = book.cells[0].outputs
    assert shown["data"]["text/plain"].splitlines()[0] == "rounds 4/4: 14 clients/s"
    assert result["data"]["text/plain"] == "'done'"
