"""The device in TypeScript is built, passes its own tests, and answers the conformance kit in Node and in Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefr.serving.conformance import check
from tests.edge_js.conftest import CHROMIUM, HOME, ROOT, npm

LINES, LONGEST, BYTES = 2500, 160, 66_000
RUNNERS = {"Node": "runner.js", "WebAssembly": "runner.js --web", "Chromium": "chromium.js"}
pytestmark = pytest.mark.xdist_group("edge_js")


def test_the_library_is_small(built: Path) -> None:
    lines = [line for path in (HOME / "src").glob("*.ts") for line in path.read_text(encoding="utf-8").splitlines()]
    assert 0 < len(lines) <= LINES
    assert max(map(len, lines)) <= LONGEST
    assert (built / "edgefr-edge.js").stat().st_size <= BYTES


def test_its_own_tests_pass() -> None:
    done = npm("test")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("where", RUNNERS)
def test_it_answers_the_kit(where: str, built: Path) -> None:
    if where == "Chromium" and CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    found = check(f"node {built}/{RUNNERS[where]}", ROOT / "conformance")
    assert [(one.question.case, one.question.what, one.fault) for one in found if one.fault is not None] == []
    assert len(found) > 250


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
        "scores",
        "status",
        "withheld",
    ):
        assert f"`{name}(" in page
        assert f"  {name}(" in source or f"  async {name}(" in source
