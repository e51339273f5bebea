"""The pages of the first hour do what they say: their commands run again in order, with less of everything."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.test_howto import LONG, ROOT, blocks, commands_of, run

SMALLER = {"--rounds 40": "--rounds 2 --set 'fleet.share={phone_sd680: 0.6, watch_w5: 0.4}'", "--seeds 3": "--seeds 2"}


def smaller(content: str) -> str:
    """Return commands that take less. Each of what is made smaller stands on the page, or this says so."""
    for long, short in SMALLER.items():
        content = content.replace(long, short)
    return content


FOUND = [block for page in LONG for block in blocks(page)]


def test_the_pages_have_what_is_made_smaller() -> None:
    commands = " ".join(content for kind, content in FOUND if kind == "sh")
    assert [long for long in SMALLER if long not in commands] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_newcomer_gets_from_ratings_to_a_comparison_and_a_report(tmp_path: Path) -> None:
    shutil.copy(ROOT / "devices.yaml", tmp_path)
    for kind, content in FOUND:
        if kind.startswith("python "):
            (tmp_path / kind.split()[1]).write_text(content)
            done = run([sys.executable, kind.split()[1]], tmp_path, tmp_path / "cache")
            assert done.returncode == 0, done.stderr
        elif kind == "sh":
            for command in commands_of(smaller(content)):
                done = run(command, tmp_path, tmp_path / "cache", seconds=900)
                assert done.returncode == 0, (command, done.stderr)
    made = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"ratings.yaml", "compared/comparison.md", "runs/fedmf/seed-1/summary.json"} <= made
    page = (tmp_path / "both.html").read_text()
    assert all(name in page for name in ("fedmf", "pfedrec", "popularity"))
