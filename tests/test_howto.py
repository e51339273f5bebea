"""The how-to pages do what they say: their blocks are run in order, in one folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import commands

ROOT = Path(__file__).parent.parent
PAGES = ["add-data.md"]


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the kind and the content of every fenced block of a page."""
    return re.findall(r"^```([\w ]+)\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def run(kind: str, content: str, folder: Path, python: Path) -> subprocess.CompletedProcess[str]:
    """Run a block; python of one page goes on where its last block ended."""
    if kind == "python":
        python.write_text((python.read_text() if python.exists() else "") + content)
        command = [sys.executable, python.name]
    else:
        (line,) = content.strip().splitlines()
        first, *arguments = shlex.split(line)
        assert first == "edgefr"
        command = [*commands.COMMAND, *arguments]
    surroundings = commands.environment(folder / "cache") | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "devices.yaml", tmp_path)
    found = blocks(page)
    assert found
    for kind, content in found:
        done = run(kind, content, tmp_path, tmp_path / "page.py")
        if kind == "sh refused":
            commands.refused(done.returncode, done.stdout, done.stderr)
        else:
            assert kind in ("python", "sh"), kind
            assert done.returncode == 0, (content, done.stderr)
