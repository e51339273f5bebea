"""The same data give the same tensors, whatever they are written in."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import edgefr
from edgefr.data.datasets import load
from edgefr.data.files.formats import FORMATS, Format
from edgefr.data.interactions import Dataset
from tests.data.files.written import interactions, items, tensors, write

OPTIONS: dict[str, Any] = {"positive": 2.5, "user_core": 3, "item_core": 3}
PACKED = [f"{form}{end}" for form in (".csv", ".tsv", ".jsonl", ".inter") for end in (".gz", ".zst")]
FRAMES = {
    "pandas": lambda table: table.to_pandas(),
    "pandas of arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas categories": lambda table: table.to_pandas().astype({table.column_names[0]: "category"}),
    "polars": pl.from_arrow,
    "arrow": lambda table: table,
    "arrow in chunks": lambda table: pa.concat_tables([table.slice(at, 37) for at in range(0, len(table), 37)]),
    "arrow dictionaries": lambda table: table.set_column(0, table.column_names[0], table.column(0).dictionary_encode()),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the tensors from CSV, which the next test looks at by themselves."""
    folder = tmp_path_factory.mktemp("csv")
    write(items(), folder / "items.csv")
    return tensors(load(str(write(interactions(), folder / "ratings.csv")), options={**OPTIONS, "items": "items.csv"}))


def test_the_expected_tensors_are_those_of_a_plain_loop(expected: dict[str, Any]) -> None:
    rows = [tuple(row.values()) for row in interactions().to_pylist() if row["rating"] >= 2.5]
    rows = list(dict.fromkeys((str(user), str(item), time) for user, item, _, time in rows))
    while True:
        left = [r for r in rows if sum(o[0] == r[0] for o in rows) >= 3 and sum(o[1] == r[1] for o in rows) >= 3]
        if left == rows:
            break
        rows = left
    users, listed = (sorted({row[place] for row in rows}, key=int) for place in (0, 1))
    rows.sort(key=lambda row: (users.index(row[0]), row[2]))
    assert expected["users"] == users
    assert expected["items"] == listed
    assert expected["user"] == [users.index(row[0]) for row in rows]
    assert expected["item"] == [listed.index(row[1]) for row in rows]
    assert expected["time"] == [row[2] for row in rows]
    first = int(listed[0])
    assert expected["title"][0] == f'Film "{first}", part 2'
    assert expected["text"][0] == f"{'Drama, War' if first % 2 else 'Comedy'}. {expected['title'][0]}"


@pytest.mark.parametrize("form", [".tsv", ".parquet", ".jsonl", *PACKED])
def test_files_of_all_formats(form: str, expected: dict[str, Any], tmp_path: Path) -> None:
    path = write(interactions(), tmp_path / f"ratings{form}")
    beside = write(items(), tmp_path / f"films{'.tsv' if 'inter' in form else form}")
    assert tensors(load(str(path), options={**OPTIONS, "items": beside.name})) == expected


@pytest.mark.parametrize(("table", "beside"), [("films.inter", "films.item"), ("ratings.csv", "movies.parquet")])
def test_a_folder_of_tables(table: str, beside: str, expected: dict[str, Any], tmp_path: Path) -> None:
    write(interactions(), tmp_path / table)
    write(items(), tmp_path / beside)
    for name in (tmp_path, tmp_path / table) if table.endswith(".inter") else (tmp_path,):
        assert tensors(load(str(name), options=OPTIONS)) == expected


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_all_kinds(kind: str, expected: dict[str, Any]) -> None:
    made = FRAMES[kind]
    dataset = edgefr.Dataset.from_frame(made(interactions()), made(items()), **OPTIONS)
    assert tensors(dataset) == expected


def test_blocks_do_not_matter(expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (("lines", "BLOCK", 256), ("jsonl", "BLOCK", 256), ("parquet", "_ROWS_AT_ONCE", 19)):
        monkeypatch.setattr(f"edgefr.data.files.{module}.{name}", value)
    for form in (".csv", ".jsonl", ".parquet"):
        path = write(interactions(), tmp_path / f"ratings{form}")
        beside = write(items(), tmp_path / f"items{form}")
        assert tensors(load(str(path), options={**OPTIONS, "items": str(beside)})) == expected


def test_a_public_archive_reads_as_a_folder_of_ones_own(archives: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(archives / "ml-latest-small.zip").extractall(tmp_path)
    own, public = load(str(tmp_path / "ml-latest-small")), load("ml-latest-small", archives)

    def rows(dataset: Dataset) -> list[tuple[str, str, str, int]]:
        listed, text = dataset.catalogue.ids, np.array([" ".join(words.split()) for words in dataset.catalogue.title])
        columns = dataset.users[dataset.user], listed[dataset.item], text[dataset.item], dataset.time
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    assert rows(own) == rows(public)


def test_a_format_of_ones_own_is_one_entry(tmp_path: Path) -> None:
    path = tmp_path / "ratings.rows"
    write(interactions(), tmp_path / "ratings.csv").rename(path)
    with FORMATS.having(Format("rows", (".rows",), FORMATS["csv"].open)):
        assert len(load(str(path)).user) == 400
