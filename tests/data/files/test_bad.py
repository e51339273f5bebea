"""What is wrong with a file is said in one line with the file, the row and the column; nothing is half read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from edgefr.data import Dataset, check, load
from privacy.errors import InputError
from tests.cli.commands import refused
from tests.cli.conftest import Cli, cache, cli, inside, place  # noqa: F401 - fixtures
from tests.data.files.bad import BAD


def test_there_are_forty() -> None:
    assert len(BAD) >= 40


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
        ({"usres": 1}, "unknown option of data set 'r.csv' 'usres'"),
        ({"columns": {"usr": "a"}}, "unknown option of data set 'r.csv' 'usr'; did you mean 'user'"),
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
        (pd.DataFrame({"user": [1], "item": [1]}), {"columns": {"usr": "user"}}, "unknown column in columns= 'usr'"),
        (pd.DataFrame({"user": [1], "item": [1]}), {"postive": 3}, "unknown option of Dataset.from_frame 'postive'"),
        (pd.DataFrame({"user": [1], "item": [1]}), {"user_core": 0}, "Dataset.from_frame: user_core: "),
    ],
)
def test_a_bad_frame_is_one_line(frame: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Dataset.from_frame(frame, **options)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
