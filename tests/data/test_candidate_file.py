"""Candidates on the disk: what every target was ranked against."""

import pytest
from pyarrow import parquet

from edgefr.data.datasets import load
from edgefr.data.splits import candidate_file, candidates
from edgefr.data.splits.candidate_file import write_candidates
from edgefr.data.splits.leave_one_out import LeaveOneOut


@pytest.fixture(scope="module")
def table():
    return load("demo", options={"users": 40})


@pytest.fixture
def split(table):
    return LeaveOneOut(negatives=7).apply(table, 0)[0]


@pytest.fixture
def path(tmp_path, table, split):
    return write_candidates(tmp_path / "candidates.parquet", table, split)


def test_rows_are_in_the_ids_of_the_data(path, table, split):
    rows = parquet.read_table(path).to_pylist()
    assert rows[0]["which"] == "valid"
    assert rows[0]["user"] == table.users[split.users("valid")[0]]
    assert rows[0]["items"] == table.catalogue.ids[split.valid_candidates[0]].tolist()
    assert [row["which"] for row in rows].count("test") == len(split.users("test"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_tables_that_draw_their_rows_are_written_in_parts(tmp_path, table, split, path, monkeypatch):
    monkeypatch.setattr(candidates, "_DRAWN_AT_ONCE", 10)
    monkeypatch.setattr(candidate_file, "_ROWS_AT_ONCE", 7)
    drawn = LeaveOneOut(negatives=7).apply(table, 0)[0]
    assert isinstance(drawn.test_candidates, candidates.Candidates)
    again = write_candidates(tmp_path / "parts.parquet", table, drawn)
    assert parquet.ParquetFile(again).num_row_groups > 2
    assert parquet.read_table(again) == parquet.read_table(path)
