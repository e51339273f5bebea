"""Tables of a folder are told apart by their columns, and names that public data sets have are found."""

import bz2
import gzip
import hashlib
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from edgefr.data.datasets import load
from edgefr.data.files import names
from edgefr.data.files.folder import tables
from edgefr.data.files.options import Columns, FileOptions
from privacy.errors import InputError
from tests.data.files.written import write


def _folder(path: Path, heads: dict[str, str]) -> Path:
    """Write tables of these headers; one without a header cannot be read."""
    for name, head in heads.items():
        (path / name).write_text(f"{head}\n{','.join('1' for _ in head.split(','))}\n" if head else "x")
    return path


BY_NAME = [
    ("BX-Book-Ratings.csv BX-Books.csv BX-Users.csv", "BX-Books.csv"),
    ("ratings.csv movies.csv links.csv tags.csv", "movies.csv"),
    ("ratings_Books.csv meta_Books.jsonl.gz", "meta_Books.jsonl.gz"),
    ("films.inter films.item films.user", "films.item"),
    ("orders.parquet", None),
    ("orders.tsv.zst products.tsv.zst notes.md", "products.tsv.zst"),
]


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
        *((dict.fromkeys(names.split(), ""), names.split()[0], items) for names, items in BY_NAME),
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


@pytest.mark.parametrize("end", [".csv", ".parquet", ".jsonl"])
def test_parts_of_one_table_are_read_one_after_another(tmp_path: Path, end: str) -> None:
    table = pa.table({"user": ["a", "a", "b", "c"], "item": ["x", "y", "x", "z"], "time": [5, 6, 7, 8]})
    for number, rows in enumerate((table.slice(0, 2), table.slice(2, 1), table.slice(3))):
        write(rows, tmp_path / f"part-0000{number}{end}")
    (tmp_path / "_SUCCESS").write_text("")
    dataset = load(str(tmp_path))
    assert dataset.users.tolist() == ["a", "b", "c"]
    assert dataset.user.tolist() == [0, 0, 1, 2]
    assert dataset.item.tolist() == [0, 1, 0, 2]


def test_parts_of_other_types_are_refused(tmp_path: Path) -> None:
    write(pa.table({"user": [1], "item": [2]}), tmp_path / "part-0.parquet")
    write(pa.table({"user": ["a"], "item": [2]}), tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1\.parquet: its columns have other types than those of part-0"):
        load(str(tmp_path))


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


@pytest.mark.parametrize("ends", [".inter", ".txt"])
def test_a_split_in_files_of_its_own_is_read_as_one_table(ends: str, tmp_path: Path) -> None:
    """Of LightGCN's folders the training part alone was read; the hint for RecBole's named the test."""
    own = {"train": [("1", "10"), ("1", "11"), ("2", "10")], "valid": [("1", "12")], "test": [("1", "13"), ("2", "12")]}
    for part, rows in own.items():
        if ends == ".inter":
            text = "user_id:token\titem_id:token\n" + "".join(f"{u}\t{i}\n" for u, i in rows)
            (tmp_path / f"set.{part}{ends}").write_text(text)
        else:
            users = dict.fromkeys(u for u, _ in rows)
            text = "".join(f"{u} {' '.join(i for v, i in rows if v == u)}\n" for u in users)
            (tmp_path / f"{part}{ends}").write_text(text)
    (tmp_path / "user_list.txt").write_text("org_id remap_id\n7 1\n8 2\n")
    found = load(str(tmp_path))
    assert found.part is not None
    read = sorted(zip(found.users[found.user], found.catalogue.ids[found.item], found.part.tolist(), strict=True))
    assert read == sorted((u, i, place) for place, rows in enumerate(own.values()) for u, i in rows)


def test_a_zip_of_one_file_is_unpacked_as_it_is_read(tmp_path: Path) -> None:
    def zipped(name: str, files: dict[str, str]) -> str:
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, text in files.items():
                archive.writestr(inside, text)
        return str(tmp_path / name)

    rows = "user,item\nu1,i1\nu1,i2\n"
    found = load(zipped("ratings.csv.zip", {"../../ratings.csv": rows, "__MACOSX/._ratings.csv": "x"}))
    assert len(found.item) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ratings.csv.zip"], "nothing was written"
    with pytest.raises(InputError, match=r"it has 2 files; call it without \.csv"):
        load(zipped("two.csv.zip", {"a.csv": rows, "b.csv": rows}))
    with pytest.raises(InputError, match="the file is empty"):
        load(zipped("empty.csv.zip", {"a.csv": ""}))
    with pytest.raises(InputError, match="unpacks to more than"):
        load(zipped("bomb.csv.zip", {"a.csv": rows + "u1,i1\n" * 12_000_000}))
    (tmp_path / "bad.csv.zip").write_bytes((tmp_path / "ratings.csv.zip").read_bytes()[:60])
    with pytest.raises(InputError, match=r"bad\.csv\.zip: "):
        load(str(tmp_path / "bad.csv.zip"))


def test_a_zip_of_a_folder_is_read_as_the_folder(tmp_path: Path) -> None:
    rows = "userId,movieId,rating,timestamp\n1,7,4.5,964982703\n1,8,4.0,964981247\n"
    films = "movieId,title\n7,Seven\n8,Eight\n"
    path = tmp_path / "ml-latest.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml/ratings.csv.gz", gzip.compress(rows.encode()))
        archive.writestr("ml/movies.csv", films)
        archive.writestr("ml/README.txt", "words, of no table\n")
        archive.writestr("__MACOSX/ml/._ratings.csv", "x")
    for named in (path, path / "ml/ratings.csv.gz"):
        options = {} if named == path else {"items": "movies.csv"}
        found = load(str(named), options=options)
        assert found.catalogue.ids.tolist() == ["7", "8"]
        assert found.catalogue.title == ["Seven", "Eight"]
        assert found.source["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(InputError, match=r"ml-latest\.zip/ml/rating\.csv is not there"):
        load(str(path / "ml/rating.csv"))
    assert [one.name for one in tmp_path.iterdir()] == ["ml-latest.zip"], "nothing was written"


def test_no_name_in_a_zip_leads_out_of_it(tmp_path: Path) -> None:
    rows = "user,item\nu1,i1\nu1,i2\n"
    (tmp_path / "secret").mkdir()
    outside = tmp_path / "secret" / "ratings.csv"
    outside.write_text(rows.replace("i", "s"))
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(str(outside), rows)
        archive.writestr("../secret/ratings.csv", rows)
    with pytest.raises(InputError, match="no file in it ends with"):
        load(str(path))
