"""Every page of results names the command and commit that made it, and says where the code has moved since."""

from __future__ import annotations

import pytest

from tests.result_pages import INDEX, STALE, pages, values

HOW = "make it again by its command, then python -m tests.result_pages PAGE; without PAGE stale pages are marked"


def test_every_page_is_listed() -> None:
    kinds = ("table-*.md", "figure-*.md", "leaderboard*.md")
    written = {path.relative_to(INDEX.parent).as_posix() for kind in kinds for path in INDEX.parent.rglob(kind)}
    assert set(pages()) == written


@pytest.mark.parametrize("name", pages())
def test_a_page_is_of_todays_code_or_says_that_it_is_stale(name: str) -> None:
    entry = pages()[name]
    assert set(entry) == {"command", "commit", "cases", "values"}
    moved = entry["values"] != values(entry["cases"])
    assert (STALE in (INDEX.parent / name).read_text()) == moved, HOW


def test_a_digest_is_of_what_models_come_to() -> None:
    assert values("ft on fedmf, none, released") != values("kd on fedmf, none, released")
    with pytest.raises(AssertionError, match="no golden case"):
        values("nobody")
