"""What a refusal prints: one line, and nothing that a terminal acts on."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from edgefr.cli import app
from edgefr.cli.app import _refuse
from tests.cli.commands import COMMAND, ROOT, environment, refused


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no file \x1b[2J\x1b]0;title\x07x", "no file ?[2J?]0;title?x"),
        ("two\nlines\r\n and\ta tab", "two lines and a tab"),
        ("\x9b31m and \u202egnp.exe and \x7f", "?31m and ?gnp.exe and ?"),
        ("a [bold]name[/bold] é ε", "a [bold]name[/bold] é ε"),
    ],
)
def test_a_message_is_one_line_without_what_a_terminal_acts_on(
    message: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refuse(message) == 2
    assert capsys.readouterr() == ("", f"error: {line}\n")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG])
def test_what_a_disk_refuses_is_one_line_wherever_it_happens(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(**given: object) -> None:
        raise OSError(code, os.strerror(code), "runs/x")

    monkeypatch.setattr(app, "app", command)
    assert app._run() == 2
    said = f"error: cannot use runs/x: {os.strerror(code)}; mend that, and do the same again\n"
    assert capsys.readouterr() == ("", said)


def test_a_fault_of_ours_is_a_traceback_still(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(**given: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(app, "app", command)
    with pytest.raises(OSError, match="Bad file"):
        app._run()


def test_a_terminal_of_no_width_shows_what_is_wrong(tmp_path: Path) -> None:
    surroundings = environment(tmp_path) | {"PYTHONPATH": str(ROOT), "COLUMNS": "0"}
    command = [*COMMAND, "devices", "--devices", "nosuch.yaml"]
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=300)
    assert "nosuch.yaml" in refused(done.returncode, done.stdout, done.stderr)
