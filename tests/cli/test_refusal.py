"""What a refusal prints: one line, and nothing that a terminal acts on; and output that nobody reads any more."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefr.cli import app
from edgefr.cli.app import _refuse
from tests.cli.commands import COMMAND, ROOT, environment, refused

PIPES = pytest.mark.skipif(os.name != "posix", reason="pipes")
EITHER = pytest.mark.parametrize("arguments", [["--version"], ["devices"]], ids=["echo", "table"])


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
    said = f"error: cannot use runs/x: {os.strerror(code)}; fix that and repeat the command\n"
    assert capsys.readouterr() == ("", said)


def test_a_fault_of_ours_is_a_traceback_still(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(**given: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(app, "app", command)
    with pytest.raises(OSError, match="Bad file"):
        app._run()


def test_a_terminal_of_no_width_shows_what_is_wrong(tmp_path: Path) -> None:
    done = run(["devices", "--devices", "nosuch.yaml"], tmp_path, subprocess.PIPE, subprocess.PIPE, COLUMNS="0")
    assert "nosuch.yaml" in refused(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def run(arguments: list[str], cache: Path, out: int, err: int, **more: str) -> subprocess.CompletedProcess[str]:
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)} | more
    command = [*COMMAND, *arguments]
    return subprocess.run(command, cwd=ROOT, env=surroundings, stdout=out, stderr=err, text=True, timeout=300)


@PIPES
@EITHER
def test_what_was_asked_for_is_done_though_nobody_reads_it(arguments: list[str], unread: int, tmp_path: Path) -> None:
    done = run(arguments, tmp_path, unread, subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")


@PIPES
def test_a_refusal_that_nobody_reads_is_one_still(unread: int, tmp_path: Path) -> None:
    assert run(["devices", "--devices", "nosuch.yaml"], tmp_path, unread, unread).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file that is always full is Linux's")
@EITHER
def test_output_that_finds_no_room_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run(arguments, tmp_path, full.fileno(), subprocess.PIPE)
        assert (done.returncode, done.stderr) == (2, "error: cannot write the output: No space left on device\n")
        assert run(["devices", "--devices", "nosuch.yaml"], tmp_path, full.fileno(), full.fileno()).returncode == 2
