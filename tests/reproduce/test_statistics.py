"""Tables of data-set statistics: counted anew from archives, beside what papers print, whose errors are marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgefr
from edgefr.studies.reproductions.statistics import compared
from tests.data.tables import archive
from tests.data.test_hetrec import LASTFM, near_duplicates


def counted(paper: str, number: int, data_dir: Path, out: Path, data: list[str]) -> dict[tuple[str, str], Any]:
    """Return the records of a table by data set and statistic."""
    left_out: list[str] = []
    found = edgefr.reproduce(paper, [f"table-{number}"], data=data, data_dir=data_dir, out=out, warn=left_out.append)
    assert left_out == []
    assert not (out / "runs").exists(), "nothing is run"
    assert (out / f"table-{number}.md").read_text().count("|---|") == 1
    return {(row["data"], row["statistic"]): row for row in found.pages[0].records}


def test_what_is_printed_stands_beside_what_is_counted(tmp_path: Path) -> None:
    tags, rows = near_duplicates(1)
    archive(tmp_path, LASTFM, {"user_taggedartists-timestamps.dat": tags})
    films = "".join(f"{film}::Film {film} (1990)::Drama\n" for film in (1, 2, 3952))
    ratings = "".join(f"{user}::{film}::5::97830076{film % 10}\n" for user in range(4) for film in (1, 3952))
    archive(tmp_path, "ml-1m", {"movies.dat": films, "ratings.dat": ratings})
    found = counted("fedcar", 1, tmp_path, tmp_path / "out", ["ml-1m", "lastfm-2k"])
    by_user = [sum(user == one for user, _, _ in rows) for one in range(30)]
    many = {user for user in range(30) if by_user[user] >= 5}
    kept = [row for row in rows if row[0] in many]
    lastfm = {name: found["Lastfm-2K", name] for name in ("users", "items", "interactions")}
    assert [row["counted"] for row in lastfm.values()] == [len(many), len({item for _, item, _ in kept}), len(kept)]
    assert [row["printed"] for row in lastfm.values()] == [1600, 12_454, 185_650]
    assert lastfm["users"]["remark"] == f"differs by {len(many) - 1600:+,}"
    assert found["MovieLens-1M", "highest item id"]["counted"] == 3952
    assert found["MovieLens-1M", "items"]["counted"] == 2
    assert "3,952 is the highest id" in found["MovieLens-1M", "items"]["remark"]
    assert found["MovieLens-100K", "users"]["remark"] == "its archive is not at hand"


def test_printed_errors_are_marked_where_the_archive_is_missing_too(tmp_path: Path) -> None:
    tags, _ = near_duplicates(1)
    archive(tmp_path, LASTFM, {"user_taggedartists-timestamps.dat": tags})
    found = counted("fedcar", 1, tmp_path, tmp_path / "out", ["lastfm-2k"])
    for name, what in (("Amazon-Video", "users"), ("Amazon-Video", "items"), ("MovieLens-1M", "interactions")):
        assert found[name, what]["remark"].startswith("printed error: ")
    assert found["Amazon-Video", "interactions"]["remark"] == "its archive is not at hand"


@pytest.mark.parametrize(
    ("printed", "counted", "places", "remark"),
    [
        ("943", 943, "0", "same"),
        ("943", 942, "0", "differs by -1"),
        ("91.19", 91.1865, "2", "same"),
        ("91.19", 91.2051, "2", "differs by +0.02"),
        ("", 7, "0", "not in the paper"),
        ("943", None, "0", "not counted here"),
    ],
)
def test_a_count_is_compared_as_finely_as_it_is_printed(printed, counted, places, remark) -> None:
    line = {"label": "a", "statistic": "users", "printed": printed, "places": places, "remark": ""}
    assert compared(line, {"users": counted})["remark"] == remark


def test_where_no_archive_is_at_hand_the_first_is_named(tmp_path: Path) -> None:
    with pytest.raises(edgefr.InputError, match=r"ml-100k.zip is not there.*https://grouplens.*licence"):
        edgefr.reproduce("fedcar", ["table-1"], data_dir=tmp_path, out=tmp_path / "out")


# The real archives


def test_blocks_of_two_data_sets_are_as_printed(archives: Path, tmp_path: Path) -> None:
    found = counted("f3crec", 1, archives, tmp_path, ["ml-100k", "ml-latest-small"])
    remarks = {row["remark"] for (data, _), row in found.items() if data.startswith("ml-")}
    assert (len(found), remarks) == (64, {"same"})


def test_sessions_of_xing_are_those_of_the_release(archives: Path, tmp_path: Path) -> None:
    found = counted("fcucr", 1, archives, tmp_path, ["xing"])
    assert [found["XING", what]["counted"] for what in ("users", "items", "sessions")] == [877, 24_390, 5982]
    assert found["XING", "sessions"]["remark"].startswith("another count: 4,411")


def test_domains_of_two_archives_are_counted_as_transfr_counts(archives: Path, tmp_path: Path) -> None:
    sets = ["amazon-movie-book", "amazon-arts-office"]
    found = counted("transfr", 3, archives, tmp_path, sets)
    task = "arts to office of amazon-arts-office"
    assert [found[task, what]["counted"] for what in ("overlapping users", "source items", "target items")] == [
        9577,
        18_639,
        15_780,
    ]
    assert found["Music to Movies", "target items"]["remark"] == "printed error: printed as 24,3451"
