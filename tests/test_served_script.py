"""The page of a federation as one script is run as it stands."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from edge.bundle import open_bundle
from tests.cli import commands
from tests.test_howto import ROOT, blocks

PAGE = "served-script.md"


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_devices_do_rounds_fetch_the_next_bundle_and_go_on(tmp_path: Path) -> None:
    ((kind, content),) = blocks(PAGE)
    assert kind == "bash rounds.sh"
    (tmp_path / "rounds.sh").write_text(content)
    place = tmp_path / "bin"
    place.mkdir()
    (place / "edgefr").write_text(f'#!/bin/sh\nexec {shlex.join(commands.COMMAND)} "$@"\n')
    (place / "edgefr").chmod(0o755)
    around = commands.environment(tmp_path / "cache") | {"PYTHONPATH": str(ROOT), "PORT": str(free_port())}
    around["PATH"] = f"{place}:{around['PATH']}"
    with open(tmp_path / "said.txt", "w") as said:
        done = subprocess.run(["bash", "rounds.sh"], cwd=tmp_path, env=around, stdout=said, stderr=said, timeout=1100)
    text = (tmp_path / "said.txt").read_text()
    assert done.returncode == 0, text[-4000:]
    users = [line.split()[0] for line in (tmp_path / "codes.txt").read_text().splitlines()]
    assert len(users) == 6
    for user in users:
        assert "3 releases taken" in (tmp_path / f"joined-{user}.txt").read_text()
        assert "2 releases taken" in (tmp_path / f"again-{user}.txt").read_text()
        learning = open_bundle(tmp_path / "newer" / user).config.learning
        assert learning is not None
        assert learning.round == 3
    assert len(re.findall(r"rounds over[^0-9]*([35])\b", text)) == 2, text
