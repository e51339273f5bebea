"""Candidates on the disk: the same split comes back, and a file of something else is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from edgefr.data.datasets import load
from edgefr.data.splits import candidate_file, candidates
from edgefr.data.splits.candidate_file import read_candidates, write_candidates
from edgefr.data.splits.leave_one_out import LeaveOneOut
from privacy.errors import InputError


@pytest.fixture(scope="module")
def table():
    return load("demo", options={"users": 40})


@pytest.fixture
def split(table):
    return LeaveOneOut(negatives=7).apply(table, 0)[0]


@pytest.fixture
def path(tmp_path, table, split):
    return write_candidates(tmp_path / "candidates.parquet", table, split)


def test_candidates_come_back_in_place_of_others(path, table, split):
    other = LeaveOneOut(negatives=7).apply(table, 1)[0]
    assert (other.test_candidates != split.test_candidates).any()
    back = read_candidates(path, table, other)
    assert (back.test_candidates == split.test_candidates).all()
    assert (back.valid_candidates == split.valid_candidates).all()
    assert back.test_candidates.dtype == np.int32


def test_rows_are_in_the_ids_of_the_data(path, table, split):
    rows = parquet.read_table(path).to_pylist()
    assert rows[0]["which"] == "valid"
    assert rows[0]["user"] == table.users[split.users("valid")[0]]
    assert rows[0]["items"] == table.catalogue.ids[split.valid_candidates[0]].tolist()
    assert [row["which"] for row in rows].count("test") == len(split.users("test"))


def test_tables_that_draw_their_rows_are_written_in_parts(tmp_path, table, split, path, monkeypatch):
    monkeypatch.setattr(candidates, "_DRAWN_AT_ONCE", 10)
    monkeypatch.setattr(candidate_file, "_ROWS_AT_ONCE", 7)
    drawn = LeaveOneOut(negatives=7).apply(table, 0)[0]
    assert isinstance(drawn.test_candidates, candidates.Candidates)
    again = write_candidates(tmp_path / "parts.parquet", table, drawn)
    assert parquet.ParquetFile(again).num_row_groups > 2
    assert parquet.read_table(again) == parquet.read_table(path)


def changed(path, change):
    rows = parquet.read_table(path).to_pylist()
    change(rows)
    schema = pa.schema([("which", pa.string()), ("user", pa.string()), ("items", pa.list_(pa.string()))])
    parquet.write_table(pa.Table.from_pylist(rows, schema), path)
    return path


def swap(rows, at, place, value):
    rows[at]["items"][place] = value


CHANGES = {
    "another target": (lambda r: r[0]["items"].reverse(), "must be this run's target and then other items, each once"),
    "a repeat": (
        lambda r: swap(r, 0, 1, r[0]["items"][2]),
        "must be this run's target and then other items, each once",
    ),
    "an unknown item": (lambda r: swap(r, 0, 1, "no such"), "names items that this run does not rank"),
    "an empty place": (lambda r: swap(r, 0, 1, None), "names items that this run does not rank"),
    "a user less": (lambda r: r.pop(0), "has other valid users than this run"),
    "users turned round": (lambda r: r.insert(0, r.pop(1)), "has other valid users than this run"),
    "a short row": (lambda r: r[0]["items"].pop(), "every valid row must have as many candidates"),
    "targets alone": (
        lambda r: [row["items"].__delitem__(slice(1, None)) for row in r],
        "every valid row must have as many candidates, at least 2",
    ),
    "no list": (lambda r: r[0].update(items=None), "every valid row must have as many candidates"),
    "no user": (lambda r: r[0].update(user=None), "has other valid users than this run"),
    "a part less": (lambda r: [row.update(which="valid") for row in r], "has other valid users than this run"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_files_of_something_else_are_refused_in_one_line(path, table, split, name):
    change, message = CHANGES[name]
    with pytest.raises(InputError, match=message) as error:
        read_candidates(changed(path, change), table, split)
    assert "\n" not in str(error.value)


def test_files_that_are_no_table_of_candidates_are_refused(path, table, split):
    with pytest.raises(InputError, match=r"cannot read .*none"):
        read_candidates(path.with_name("none"), table, split)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-20], b"PAR1" + bytes(50) + whole[-60:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"candidates\.parquet") as error:
            read_candidates(path, table, split)
        assert "\n" not in str(error.value)
    parquet.write_table(pa.table({"which": ["valid"], "user": ["a"], "items": ["b"]}), path)
    with pytest.raises(InputError, match="no table of candidates"):
        read_candidates(path, table, split)


def test_negatives_outside_the_pool_are_refused(path, table, split):
    small = replace(split, pool=split.pool[:-40])
    with pytest.raises(InputError, match="names items that this run does not rank"):
        read_candidates(path, table, small)
