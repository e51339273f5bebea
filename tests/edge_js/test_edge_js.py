"""The device in TypeScript is built, passes its own tests, and answers the conformance kit in Node and in Chromium."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from edgefr.serving.conformance import check
from tests.edge_js.conftest import CHROMIUM, HOME, ROOT, npm

PARTS = {"exchange": 3_500, "explain": 2_000, "noise": 2_500, "replay": 2_500, "sessions": 3_500}
"""Modules that the main entry loads where a bundle needs them, and their bytes."""
LINES = {"main": 2500, "join": 560, "join/sums": 700, "worker": 160, "text": 280} | dict.fromkeys(PARTS, 150)
LONGEST, FILE = 120, 400
BYTES = {"main": 60_000, "join": 12_000, "sealing": 13_000, "worker": 3_000, "text": 11_000} | PARTS
APART = ("node.ts", "words.ts")  # entries of their own
RUNNERS = {"Node": "runner.js", "WebAssembly": "runner.js --web", "Chromium": "chromium.js"}
pytestmark = pytest.mark.xdist_group("edge_js")


def test_the_library_is_small(built: Path) -> None:
    """The main entry, with what it needs in any case; joining and the worker are entries, and parts come when asked."""
    for entry, most in LINES.items():
        files = (HOME / "src" / ("" if entry == "main" else entry)).glob("*.ts")
        texts = {path.name: path.read_text(encoding="utf-8").splitlines() for path in files}
        assert 0 < sum(len(lines) for name, lines in texts.items() if name not in APART) <= most, entry
        assert max(len(line) for lines in texts.values() for line in lines) <= LONGEST
        assert max(len(lines) for lines in texts.values()) <= FILE
    needed = chunks(built / "edgefr-edge.js")
    sizes = {entry: chunks(built / f"{entry}.js") - needed for entry in BYTES if entry != "main"} | {"main": needed}
    sizes["sealing"] -= sizes["join"]  # which loads it where a round needs it
    sizes["exchange"] -= sizes["noise"]
    assert {entry: sum(path.stat().st_size for path in files) <= BYTES[entry] for entry, files in sizes.items()} == {
        entry: True for entry in BYTES
    }


def chunks(entry: Path) -> set[Path]:
    """An entry and all that it imports of its own folder."""
    named = re.findall(r"""from["']\./([\w.-]+)["']""", entry.read_text(encoding="utf-8"))
    return {entry}.union(*(chunks(entry.parent / name) for name in named))


def test_its_own_tests_pass(built: Path) -> None:
    done = npm("test")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.slow
def test_a_tab_dies_at_many_moments(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock, and not at its writes alone."""
    monkeypatch.setenv("EDGEFR_MOMENTS", "24")
    done = npm("test", "--", "test/tab.test.ts")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


ALIKE = pytest.param("WebAssembly", marks=() if CHROMIUM is None else pytest.mark.slow)
"""What runs in Node by WebAssembly runs in Chromium by the same, where that is installed."""


@pytest.mark.parametrize("where", ["Node", ALIKE, "Chromium"])
def test_it_answers_the_kit(where: str, built: Path) -> None:
    if where == "Chromium" and CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    found = check(f"node {built}/{RUNNERS[where]}", ROOT / "conformance")
    assert [(one.question.case, one.question.what, one.fault) for one in found if one.fault is not None] == []
    assert len(found) > 400


@pytest.mark.parametrize("more", [[], ["--chromium"]], ids=["Node", "Chromium"])
def test_its_costs_are_measured(more: list[str], built: Path) -> None:
    if more and CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    line = ["node", str(built / "figures.js"), str(ROOT / "conformance" / "transfr"), *more]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.findall(r"([a-z]+) [+\d.]+ ms", done.stdout) == ["load", "first", "step", "recommend", "encode"]


def test_the_page_of_the_package_names_what_there_is() -> None:
    package = json.loads((HOME / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((HOME / "package-lock.json").read_text(encoding="utf-8"))
    assert lock["packages"][""]["devDependencies"] == package["devDependencies"]
    source = (HOME / "src" / "device.ts").read_text(encoding="utf-8")
    page = (HOME / "README.md").read_text(encoding="utf-8")
    for name in (
        "learn",
        "personalise",
        "note",
        "release",
        "apply",
        "recommend",
        "explain",
        "nearest",
        "catalogue",
        "delta",
        "scores",
        "status",
        "withheld",
    ):
        assert f"`{name}(" in page
        assert f"  {name}(" in source or f"  async {name}(" in source
