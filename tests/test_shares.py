"""Tests can be taken by shares, slow ones alone or all, which together are all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import share_of
from tests.contract import programs, sessions
from tests.turns import VARIANTS

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range(30))
def test_slow(n): pass

@pytest.mark.turns("one")
@pytest.mark.parametrize("variant", ["one", "two", "three"])
def test_in_turns(variant): pass

@pytest.mark.turns("one")
@pytest.mark.parametrize("variant", ["one", "two", "three"])
def test_as_well(variant): pass

def test_quick(): pass
"""


def collected(folder: Path, *options: str) -> set[str]:
    """Return the names of the tests that a call would run in a folder of three files."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *options]
    done = subprocess.run([*command, str(folder)], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    slow: takes minutes\n    turns(*ids): some are quick\n"
    )
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def test_shares_are_apart_and_together_all_slow_tests(folder: Path) -> None:
    everything = collected(folder)
    assert len(everything) == 37
    thirds = [collected(folder, "--slow-share", f"{k}/3") for k in (1, 2, 3)]
    assert set.union(*thirds) == everything
    quick = {f"test_some.py::{name}" for name in ("test_quick", "test_in_turns[one]", "test_as_well[one]")}
    assert set.intersection(*thirds) == quick == collected(folder, "-m", "not slow")
    for third in thirds:  # what one variant's first test makes, its others find
        for case in ("two", "three"):
            tests = {f"test_some.py::{name}[{case}]" for name in ("test_in_turns", "test_as_well")}
            assert len(tests & third) in (0, 2)
    assert all(7 < len(third) < 24 for third in thirds)


def test_shares_of_all_tests_are_apart_and_together_all(folder: Path) -> None:
    thirds = [collected(folder, "--share", f"{k}/3") for k in (1, 2, 3)]
    assert sum(map(len, thirds)) == len(set.union(*thirds)) == 37


def test_a_share_follows_from_the_name_alone() -> None:
    """Not from hash(), which is another in each process: these are CRC-32 of the names, worked out elsewhere."""
    assert [share_of(name, 1000) for name in ("tests/a.py::test_b", "123456789")] == [298, 0xCBF43926 % 1000 + 1]


@pytest.mark.parametrize(("option", "share"), [("--slow-share", "0/3"), ("--share", "4/3")])
def test_other_shares_are_refused(folder: Path, option: str, share: str) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"{option}={share}", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 4
    assert f"{option} is K/N" in done.stderr


def test_the_variants_that_are_quick_are_variants() -> None:
    assert set(VARIANTS) <= programs.VARIANTS.keys() | sessions.VARIANTS.keys()
