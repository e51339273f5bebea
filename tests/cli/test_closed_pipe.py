"""Output that nobody reads any more: `edgefr devices | head -1` has done what it was asked for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, ROOT, environment

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes")


@pytest.fixture
def unread() -> Iterator[int]:
    """The writing end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def run(arguments: list[str], cache: Path, out: int, err: int) -> subprocess.CompletedProcess[str]:
    surroundings = environment(cache) | {"PYTHONPATH": str(ROOT)}
    command = [*COMMAND, *arguments]
    return subprocess.run(command, cwd=ROOT, env=surroundings, stdout=out, stderr=err, text=True, timeout=300)


@pytest.mark.parametrize("arguments", [["--version"], ["devices"]], ids=["echo", "table"])
def test_what_was_asked_for_is_done_though_nobody_reads_it(arguments: list[str], unread: int, tmp_path: Path) -> None:
    done = run(arguments, tmp_path, unread, subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_refusal_that_nobody_reads_is_one_still(unread: int, tmp_path: Path) -> None:
    assert run(["devices", "--devices", "nosuch.yaml"], tmp_path, unread, unread).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file that is always full is Linux's")
@pytest.mark.parametrize("arguments", [["--version"], ["devices"]], ids=["echo", "table"])
def test_output_that_finds_no_room_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run(arguments, tmp_path, full.fileno(), subprocess.PIPE)
        assert (done.returncode, done.stderr) == (2, "error: cannot write the output: No space left on device\n")
        assert run(["devices", "--devices", "nosuch.yaml"], tmp_path, full.fileno(), full.fileno()).returncode == 2
