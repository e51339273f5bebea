"""The page on the architecture is short, and what it points to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OF_A_RUN = ("runs", "bundles", "private", "figures", "checkpoint", "encoder", "adapters", "compared")


def test_the_architecture_is_read_in_one_sitting():
    assert len((ROOT / "docs" / "architecture.md").read_text().splitlines()) <= 150


def pointed_to(page: Path) -> list[str]:
    """Return the paths that a page names in backquotes or links to."""
    text = page.read_text()
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text)
    formats = {name for name in named if re.fullmatch(r"[\w.-]+/\d+", name)}  # formats and their versions
    return [name for name in named if name not in formats] + re.findall(r"\]\(([^)#:]+)\)", text)


def exists(path: str, page: Path) -> bool:
    """Say whether a path is there from the repository's root, the page's folder or `edgefr`, which may be left out."""
    return any((start / path).exists() for start in (ROOT, page.parent, ROOT / "edgefr"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_points_to_is_there(page):
    missing = [path for path in pointed_to(page) if not exists(path, page)]
    # Places of a run's folder are none of the repository's, and pages made from the code are followed by test_site.py.
    named = [path for path in missing if path.split("/")[0] not in OF_A_RUN]
    assert [path for path in named if "reference" not in path.split("/")] == []


MERGES = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_has_the_marks_of_a_merge(page):
    assert not MERGES.findall(page.read_text())


def test_the_marks_of_a_merge_are_seen():
    assert len(MERGES.findall("a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n")) == 3


def test_a_place_that_is_not_there_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("In `cloud/rule.py`, `engine/tables.py` and [there](nowhere.md), not in `cloud/nothing.py`.")
    assert [path for path in pointed_to(page) if not exists(path, page)] == ["cloud/nothing.py", "nowhere.md"]
