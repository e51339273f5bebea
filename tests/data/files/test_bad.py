"""What is wrong with a file is said in one line with the file, the row and the column; nothing is half read."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from edgefr.data.datasets import check, load
from edgefr.data.interactions import Dataset
from privacy.errors import InputError
from tests.cli.commands import refused
from tests.cli.conftest import Cli, cache, cli, inside, place  # noqa: F401 - fixtures
from tests.data.files.bad import BAD
from tests.data.files.written import interactions, write


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line(name: str, tmp_path: Path) -> None:
    file, content, options, message = BAD[name]
    path = tmp_path / file
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        load(str(path), options=options)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700
    assert file.strip("/") in str(raised.value) or "data_options" in str(raised.value)


def test_it_ends_with_2_and_no_traceback(tmp_path: Path, cli: Cli) -> None:  # noqa: F811
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\nu1,i1,4\nu1,i2,x\n")
    line = refused(*cli("simulate", "--data", path, "--set", "method=fedmf", "--out", tmp_path / "run"))
    assert "r.csv: row 3, column rating: 'x'; a rating is a finite number" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"usres": 1}, "option usres of data set 'r.csv': unknown key"),
        ({"columns": {"usr": "a"}}, "option columns.usr of data set 'r.csv': unknown key 'usr'; did you mean 'user'"),
        ({"time": "fortnights"}, "option time of data set 'r.csv': .*it is one of auto, s, ms"),
        ({"positive": float("nan")}, "option positive"),
        ({"texts": []}, "option texts"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check("r.csv", options)


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(
        InputError, match=r"nowhere/r.csv is not there; --data takes a data set's name, a file or a folder"
    ):
        load("nowhere/r.csv")
    for name in ("x" * 5000 + ".csv", "a\0b.csv", "/" + "x" * 5000):
        with pytest.raises(InputError, match="is not there"):
            load(name)
    with pytest.raises(InputError, match=r"unknown data set 'ml-100'; did you mean 'ml-100k'"):
        load("ml-100")


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        ([1, 2], {}, "interactions: it takes a data frame of pandas, polars or arrow, not list"),
        (pl.LazyFrame({"user": [1], "item": [2]}), {}, "not LazyFrame.*collect"),
        (pd.DataFrame({"user": [1, "a"], "item": [1, 2]}), {}, "interactions: "),
        (pd.DataFrame({"user": [1.0, None], "item": [1, 2]}), {}, "interactions: row 2, column user: nothing is there"),
        (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), {}, "interactions: "),
        (pd.DataFrame({"a": [1], "item": [1]}), {}, "interactions: no column has a usual name of the user"),
        (pd.DataFrame({"user": [1], "item": [1]}), {"columns": {"usr": "user"}}, "columns.usr: unknown key 'usr'"),
        (pd.DataFrame({"user": [1], "item": [1]}), {"postive": 3}, "unknown option of Dataset.from_frame 'postive'"),
        (pd.DataFrame({"user": [1], "item": [1]}), {"user_core": 0}, "Dataset.from_frame: user_core: "),
    ],
)
def test_a_bad_frame_is_one_line(frame: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Dataset.from_frame(frame, **options)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


ITEMS = {
    "no id": ("items.csv", b"title,price\nAlien,3\n", {}, "no column has a usual name of the item's id; say which by"),
    "no such id": (
        "items.csv",
        b"item,title\ni1,Alien\n",
        {"columns": {"listed": "sku"}},
        "unknown column of .*listed.*'sku'",
    ),
    "no such text": ("items.csv", b"item,title\ni1,Alien\n", {"texts": ["plot"]}, "unknown column of .*texts.*'plot'"),
    "other items": ("items.csv", b"item,title\nz1,Alien\n", {}, "its column item has none of the items of 'r'"),
    "empty id": (
        "items.csv",
        b"item,title\ni1,Alien\n,Aliens\n",
        {},
        "items.csv: row 3, column item: nothing is there",
    ),
    "not UTF-8": ("items.csv", b"item,title\ni1,Al\xffen\n", {}, "items.csv: row 2: it is not UTF-8"),
    "too few fields": ("items.csv", b"item,title\ni1\n", {}, "items.csv: row 2: Expected 2 columns, got 1"),
    "empty": ("items.csv", b"", {}, "items.csv: the file is empty"),
    "half the domains": ("items.csv", b"item,domain\ni1,films\n", {}, "item 'i2' has no row, and column domain says"),
    "JSON mixed": (
        "items.jsonl",
        b'{"item": "i1", "title": "a"}\n{"item": "i2", "title": 3}\n',
        {},
        "row 2, column title",
    ),
    "parquet cut": ("items.parquet", b"PAR1" + bytes(40), {}, "items.parquet: "),
}


@pytest.mark.parametrize("name", ITEMS)
def test_a_bad_file_of_items_is_one_line(name: str, tmp_path: Path) -> None:
    file, content, options, message = ITEMS[name]
    (tmp_path / file).write_bytes(content)
    path = tmp_path / "r.csv"
    path.write_text("user,item\nu1,i1\nu1,i2\n")
    with pytest.raises(InputError, match=message) as raised:
        load(str(path), options={"items": file, **options})
    assert "\n" not in str(raised.value)


def test_numbers_that_a_dictionary_does_not_have_are_refused() -> None:
    places = pa.array([0, 7], pa.int32())
    damaged = pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"]), safe=False)
    with pytest.raises(InputError, match="interactions: column user is damaged"):
        Dataset.from_frame(pa.table({"user": damaged, "item": [1, 2]}))


def test_objects_within_objects_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"item": "i1", "title": "Alien", "details": {"a": 1}, "tags": [{"b": 2}]}\n')
    path = tmp_path / "r.csv"
    path.write_text("user,item\nu1,i1\n")
    assert load(str(path), options={"items": "items.jsonl"}).catalogue.text == ["Alien"]


@pytest.mark.parametrize("form", [".csv", ".csv.gz", ".csv.zst", ".jsonl", ".parquet", ".inter"])
def test_damaged_bytes_are_refused_or_read(form: str, tmp_path: Path) -> None:
    draw, table = random.Random(0), interactions(60)
    text = table.set_column(0, "userId", table.column(0).cast(pa.string()))
    path = write(text, tmp_path / f"r{form}")
    whole, said = path.read_bytes(), list[str]()
    for _ in range(120):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 2, 20))):
            at = draw.randrange(len(damaged))
            damaged[at : at + draw.randrange(1, 4)] = draw.randbytes(draw.randrange(4))
        path.write_bytes(damaged)
        try:
            load(str(path))
        except InputError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in line for line in said)
