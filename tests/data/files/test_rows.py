"""Rows are read as people have them, and every row is read, left out and told of, or refused: none goes missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgefr.data import datasets as data
from edgefr.data.files.streams import BLOCK
from edgefr.data.interactions import Dataset
from privacy.errors import InputError

T0 = 1_600_000_000


def write(folder: Path, name: str, text: str, encoding: str = "utf-8") -> str:
    (folder / name).write_text(text, encoding)
    return str(folder / name)


def pairs(found: Dataset) -> list[tuple[str, str]]:
    """Return (user, item) of every interaction, ordered."""
    return sorted(zip(found.users[found.user], found.catalogue.ids[found.item], strict=True))


def notes(found: Dataset) -> str:
    return str(found.source["notes"])


def test_a_quote_in_a_tsv_is_a_sign_like_another(tmp_path: Path) -> None:
    """Two names that begin with a quote swallowed the rows between them."""
    rows = [(f"u{n % 5}", f"i{n}", '"Heroes' if n in (3, 17) else "x") for n in range(40)]
    path = write(tmp_path, "plays.tsv", "user\titem\tname\n" + "".join("\t".join(row) + "\n" for row in rows))
    assert len(pairs(data.load(path))) == 40


def test_quotes_that_enclose_fields_of_a_tsv_are_taken_off(tmp_path: Path) -> None:
    path = write(tmp_path, "plays.tsv", 'user\titem\n"u1"\t"i1"\n"u1"\t"i2"\n')
    assert pairs(data.load(path)) == [("u1", "i1"), ("u1", "i2")]
    assert pairs(data.load(path, options={"quote": False})) == [('"u1"', '"i1"'), ('"u1"', '"i2"')]


def test_lines_that_quotes_join_are_told_of(tmp_path: Path) -> None:
    """A file whose names hold line breaks, and one whose quote swallows rows, look alike: both are told."""
    path = write(tmp_path, "a.csv", 'user,item,text\nu1,i1,"one\ntwo"\nu1,i2,"x\nu2,i3,y"\nu2,i4,z\n')
    found = data.load(path)
    assert len(found.item) == 3
    assert notes(found) == "2 line breaks stand between quotes (data_options.quote=no reads each line as a row)"


def test_rows_in_are_rows_out_and_rows_told_of(tmp_path: Path) -> None:
    text = "user,item,rating,time\n"
    text += "".join(f"u{n},i{n},{n % 5},{T0 + n}\n" for n in range(50))
    text += "NA,i1,5,1600000000\nu1,,5,1600000000\n\nu2,i2,bad,1600000000\nu3,i3,4,yesterday\nu4,i4,5\n"
    text += "\\N,i9,5,1600000001\n"
    path = write(tmp_path, "a.csv", text)
    found = data.load(path, options={"errors": "drop", "positive": 3})
    assert len(found.item) == 20
    assert notes(found) == (
        "3 of 55 rows have no user or no item (data_options.missing); "
        "1 of 55 rows cannot be read: column rating (data_options.errors=drop); "
        "1 of 55 rows cannot be read: column time (data_options.errors=drop); "
        "1 rows have another number of columns (data_options.errors=drop); "
        "30 of 55 rows are rated below 3.0 (data_options.positive)"
    )


@pytest.mark.parametrize("sign", ["NA", "nan", "NaN", "NULL", "null", "None", "\\N", "", " "])
def test_who_is_nobody_is_no_device(sign: str, tmp_path: Path) -> None:
    """One user called NA owned three quarters of a log's rows."""
    text = "user,item\nu1,i1\nu1,i2\n" + "".join(f"{sign},i{n}\n" for n in range(9))
    path = write(tmp_path, "a.csv", text)
    with pytest.raises(InputError, match=r"row 4, column user: .* that is no user; data_options.missing=drop leaves"):
        data.load(path)
    found = data.load(path, options={"missing": "drop"})
    assert pairs(found) == [("u1", "i1"), ("u1", "i2")]
    assert notes(found) == "9 of 11 rows have no user or no item (data_options.missing)"
    if sign.strip():
        assert len(data.load(path, options={"missing": "keep"}).item) == 11


def test_nobody_is_found_in_every_format(tmp_path: Path) -> None:
    rows = [{"user": "u1", "item": "i1"}, {"user": None, "item": "i2"}, {"user": "NA", "item": "i3"}]
    path = write(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in (path, str(tmp_path / "a.parquet")):
        assert pairs(data.load(name, options={"missing": "drop"})) == [("u1", "i1")]


@pytest.mark.parametrize(
    ("name", "sign", "options"),
    [
        ("ratings.dat", "::", {}),
        ("ratings.csv", "::", {"separator": "::"}),
        ("ratings.txt", " ", {}),
        ("ratings.csv", ":", {"separator": ":"}),
        ("ratings.csv", "||", {"separator": "||"}),
        ("ratings.csv", "|", {}),
        ("ratings.csv", ";", {}),
    ],
)
def test_separators(name: str, sign: str, options: dict[str, str], tmp_path: Path) -> None:
    rows = [["u1", "i1", "5", str(T0)], ["u1", "i2", "3", str(T0 + 1)], ["u2", "i1", "4", str(T0)]]
    head = {"header": ["user", "item", "rating", "time"], **options}
    found = data.load(write(tmp_path, name, "".join(sign.join(row) + "\n" for row in rows)), options=head)
    assert pairs(found) == [("u1", "i1"), ("u1", "i2"), ("u2", "i1")]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    text = "user;item;title\n" + "".join(f"u{n};Café {n};Übung\n" for n in range(3))
    path = write(tmp_path, "a.csv", text, encoding)
    if "16" not in encoding:
        with pytest.raises(InputError, match=r"it is not UTF-8; name its encoding by data_options\.encoding"):
            data.load(path)
    assert pairs(data.load(path, options={"encoding": encoding}))[0] == ("u0", "Café 0")
    with pytest.raises(InputError, match="it is no encoding of text"):
        data.load(path, options={"encoding": "rot13"})


def test_a_backslash_before_a_quote(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '"user";"item"\n"u1";"The \\"best\\"; of"\n')
    assert pairs(data.load(path)) == [("u1", 'The "best"; of')]


def test_fractions_after_a_comma(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user;item;rating\nu1;i1;3,5\nu1;i2;4,5\n")
    with pytest.raises(InputError, match=r"set data_options\.decimal=,"):
        data.load(path)
    found = data.load(path, options={"decimal": ",", "positive": 4})
    assert pairs(found) == [("u1", "i2")]


def test_a_header_that_is_there_is_not_given_again(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "user,item\nu1,i1\n")
    with pytest.raises(InputError, match=r"its first row holds the names that data_options\.header gives"):
        data.load(path, options={"header": ["user", "item"]})


REFUSED = """
from edgefr.data import datasets as data
from privacy.errors import InputError
for _ in range(40):
    try:
        data.load({path!r}, options={{"header": ["user", "item", "time"]}})
    except InputError as error:
        said = str(error)
print(said)
"""


def test_a_refused_file_ends_no_process(tmp_path: Path) -> None:
    """A reader that read ahead outlived its file: the process was aborted, one time in sixteen, or stood still."""
    path = write(tmp_path, "a.txt", "1:\n1,3,2005-09-06\n")
    done = subprocess.run(
        [sys.executable, "-c", REFUSED.format(path=path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "row 1: Expected 3 columns, got 1: 1:; data_options.errors=drop leaves such rows out" in done.stdout


def test_columns_and_fractions_that_come_late_in_json_lines(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"user": f"u{n}", "item": "i1", "rating": 3} for n in range(300)]
    rows += [{"user": "u1", "item": "i2", "rating": 4.5, "timestamp": T0 + n} for n in range(3)]
    path = write(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert pairs(data.load(path, options={"positive": 4, "columns": {"time": "-"}})) == [("u1", "i2")] * 3
    with pytest.raises(InputError, match=r"row 1, column timestamp: nothing is there"):
        data.load(path)
    assert len(data.load(path, options={"errors": "drop"}).item) == 3


def test_rows_as_python_writes_them(tmp_path: Path) -> None:
    """Steam's and BeerAdvocate's lines are dicts of Python; nothing in them is run."""
    row = (
        "{u'username': u'%s', u'product_id': u'%s', u'hours': 4.1, u'text': u\"it's \\u2713\", u'found_funny': None}\n"
    )
    path = write(tmp_path, "reviews.json", "".join(row % pair for pair in (("u1", "i1"), ("u1", "i2"), ("u2", "i1"))))
    assert pairs(data.load(path)) == [("u1", "i1"), ("u1", "i2"), ("u2", "i1")]
    path = write(
        tmp_path, "evil.json", row % ("u1", "i1") + "{'username': __import__('os').getcwd(), 'product_id': 1}\n"
    )
    with pytest.raises(InputError, match="row 2 is no dict as Python writes it"):
        data.load(path)


def test_a_user_and_all_of_their_items_in_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, "train.txt", "0 4 7 9\n1 2\n5 4 2\n")
    expected = [("0", "4"), ("0", "7"), ("0", "9"), ("1", "2"), ("5", "2"), ("5", "4")]
    assert pairs(data.load(path)) == expected
    path = write(tmp_path, "users.dat", "3 4 7 9\n1 2\n2 4 2\n")
    assert pairs(data.load(path)) == [(u if u != "5" else "2", i) for u, i in expected]
    path = write(tmp_path, "bad.dat", "3 4 7 9\n1 2\n" * 2000 + "2 4 x\n9 1\n")
    with pytest.raises(InputError, match="line 4002 does not begin with the number of its items"):
        data.load(path)


def test_json_lines_with_columns_after_all_that_is_looked_at_say_so(tmp_path: Path) -> None:
    rows = [{"user": 2**64 - 1 - n % 7, "item": f"i{n}", "text": "x" * 60} for n in range(60_000)]
    late = [{"user": 1, "item": "i1", "timestamp": T0}]
    path = write(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in [*rows, *late]))
    found = data.load(path)
    assert str(2**64 - 1) in found.users
    assert notes(found) == "column timestamp begins by row 60,001, too late to be read"


def test_which_of_two_times_was_taken_is_said(tmp_path: Path) -> None:
    text = "user_id,item_id,date,time_ms\n" + "".join(f"u,i{n},20220421,{T0 * 1000 - n}\n" for n in range(3))
    path = write(tmp_path, "log.csv", text)
    found = data.load(path)
    assert found.catalogue.ids[found.item].tolist() == ["i2", "i1", "i0"]
    assert notes(found) == "the time is column time_ms; date could be it too (data_options.columns.time=NAME)"
    assert notes(data.load(path, options={"columns": {"time": "time_ms"}})) == ""


def test_a_fraction_in_one_column_of_json_lines_leaves_the_others_whole(tmp_path: Path) -> None:
    """Times in nanoseconds became floats, and 60,000 of them 55,352, where a later rating was 4.5."""
    first = 1_600_000_000_000_000_001
    rows = [{"user": 2**60 + n % 7, "item": n, "rating": 3, "time": first + n} for n in range(60_000)]
    late = {"user": 2**60, "item": 1, "rating": 4.5, "time": first + 60_000}
    path = write(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in [*rows, late]))
    found = data.load(path)
    assert sorted(found.moment.tolist()) == list(range(first, first + 60_001))
    assert str(2**60 + 1) in found.users


@pytest.mark.parametrize("tail", ["", '"two\nlines",u0,i0\n'])
def test_a_quote_within_a_field_of_a_long_file_encloses_nothing(tail: str, tmp_path: Path) -> None:
    rows = "".join(f'5" nail,u{n},i{n}\n' if n == 7 else f"x,u{n},i{n}\n" for n in range(300_000))
    assert len(rows) > BLOCK
    found = data.load(write(tmp_path, "a.csv", "text,user,item\n" + rows + tail))
    assert len(found.item) == 300_000 + bool(tail)


def test_a_bad_first_time_says_nothing_of_the_others(tmp_path: Path) -> None:
    rows = "".join(f"u,i{n},{T0 + n}\n" for n in range(20))
    found = data.load(write(tmp_path, "a.csv", f"user,item,time\nu,i,soon\n{rows}"), options={"errors": "drop"})
    assert found.time.tolist() == [T0 + n for n in range(20)]
    assert notes(found) == "1 of 21 rows cannot be read: column time (data_options.errors=drop)"


def test_the_time_of_a_row_that_is_left_out_sets_no_unit(tmp_path: Path) -> None:
    rows = "".join(f"u,i{n},5,{T0 + n}\n" for n in range(20))
    text = f"user,item,rating,time\nu,i,bad,{1000 * T0}\n{rows}"
    found = data.load(write(tmp_path, "a.csv", text), options={"errors": "drop"})
    assert found.clock
    assert found.time.tolist() == [T0 + n for n in range(20)]
