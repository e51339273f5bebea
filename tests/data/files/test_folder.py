"""Tables of a folder are told apart by their columns, and names that public data sets have are found."""

import bz2
from pathlib import Path

import pytest

from edgefr.data import load
from edgefr.data.files import names
from edgefr.data.files.folder import tables
from edgefr.data.files.options import Columns, FileOptions
from privacy.errors import InputError


def _folder(path: Path, heads: dict[str, str]) -> Path:
    for name, head in heads.items():
        (path / name).write_text(f"{head}\n{','.join('1' for _ in head.split(','))}\n")
    return path


@pytest.mark.parametrize(
    ("heads", "chosen", "items"),
    [
        ({"anime.csv": "anime_id,name,rating", "log.csv": "user_id,anime_id,rating"}, "log.csv", "anime.csv"),
        (
            {
                "business.csv": "business_id,name,stars",
                "review.csv": "user_id,business_id,stars,date",
                "tip.csv": "user_id,business_id,date",
                "user.csv": "user_id,name",
            },
            "review.csv",
            "business.csv",
        ),
        ({"a.csv": "userID,locale", "b.csv": "userID,itemID"}, "b.csv", None),
    ],
)
def test_columns_say_which_table_is_which(
    tmp_path: Path, heads: dict[str, str], chosen: str, items: str | None
) -> None:
    found = tables(_folder(tmp_path, heads), FileOptions())
    assert [None if path is None else path.name for path in found] == [chosen, items]


def test_the_hint_names_a_file_with_users_and_items(tmp_path: Path) -> None:
    heads = {"a.csv": "item,name", "b.csv": "user,item", "c.csv": "user,item,time"}
    with pytest.raises(InputError, match=r"--data \S*b\.csv \(it has: b\.csv, c\.csv\)"):
        tables(_folder(tmp_path, heads), FileOptions())


def test_parts_of_one_table_are_not_taken_for_the_whole(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"its 2 files .* parts of one table"):
        tables(_folder(tmp_path, {"part-00000.csv": "user,item", "part-00001.csv": "user,item"}), FileOptions())


@pytest.mark.parametrize(
    ("head", "role", "column"),
    [
        ("User-ID,ISBN,Book-Rating", "rating", "Book-Rating"),
        ("uid,mid,rating", "item", "mid"),
        ("mid,movieId,userId", "item", "movieId"),
        ("CustomerID,StockCode,InvoiceDate", "item", "StockCode"),
        ("userId,venueId,utcTimestamp", "time", "utcTimestamp"),
        ("t_dat,customer_id,article_id", "time", "t_dat"),
        ("user_id,book_id,date_added", "time", "date_added"),
        ("user_id,video_id,date,hourmin,time_ms", "time", "time_ms"),
    ],
)
def test_usual_names_of_public_tables(head: str, role: str, column: str) -> None:
    assert names.interactions(Columns(), head.split(","), "table")[role] == column


def test_bzip2_after_a_name_is_unpacked_to_its_last_stream(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.bz2"
    path.write_bytes(bz2.compress(b"user,item\na,x\n") + bz2.compress(b"b,y\nc,z\n"))
    assert load(str(path)).users.tolist() == ["a", "b", "c"]
