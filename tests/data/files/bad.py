"""Files that are not what they should be: each is refused by one line that says where and what."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

HEAD = "user,item,rating,time\n"
GOOD = "u1,i1,4,1500000000\n"
Bad = tuple[str, bytes | Callable[[Path], None], dict[str, Any], str]


def of(table: dict[str, Any], **options: Any) -> bytes:
    """Return a parquet file of these columns."""
    sink = io.BytesIO()
    parquet.write_table(pa.table(table), sink, **options)
    return sink.getvalue()


def csv(*rows: str) -> bytes:
    return (HEAD + GOOD * 2 + "".join(row + "\n" for row in rows)).encode()


def zst(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


COLUMNS: dict[str, Any] = {
    "user": ["a", "b"],
    "item": ["x", "y"],
    "rating": [1.0, 2.0],
    "time": [1500000000, 1500000001],
}
WHOLE = of(COLUMNS)
SAME = of(dict.fromkeys(("user", "item"), pa.repeat(1, 1_100_000)))
NOT_TEXT = of({"user": ["aa", "b"], "item": [1, 2]}, use_dictionary=False, compression="none").replace(
    b"aa", b"\xff\xff"
)
TABLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "r.csv: the file is empty"),
    "blank": (b"\n\n  \n", "r.csv: the file is empty"),
    "header only": (HEAD.encode(), "r.csv: it has no rows"),
    "header without an end": (HEAD.strip().encode(), "r.csv: it has no rows"),
    "no user": (b"a,item\n1,2\n", r"no column has a usual name of the user; say which by .*\(it has: a, item"),
    "no header": (b"196,242,3\n1,2,3\n", "no column has a usual name of the user.*data_options.header"),
    "duplicate header": (b"user,user,item\n1,2,3\n", "row 1, column user: the header has it 2 times"),
    "too many fields": (csv("u1,i2,4,1500000001,9"), r"r.csv: row 4: Expected 4 columns, got 5"),
    "too few fields": (csv("u1,i2"), r"r.csv: row 4: Expected 4 columns, got 2"),
    "not UTF-8": (csv() + b"u\xff,i1,4,1500000000\n", "r.csv: row 4: it is not UTF-8; name its"),
    "UTF-16": ((HEAD + GOOD).encode("utf-16"), "it is UTF-16: set data_options.encoding=utf-16"),
    "NUL in an id": (csv("u\0,i1,4,1500000000"), r"row 4, column user: 'u\?'; an id is 1 to 64"),
    "NUL in the header": (b"\0user,item\n1,2\n", "row 1 holds zero bytes"),
    "terminal codes": (csv("u1,\x1b[31mi,4,1500000000"), r"row 4, column item: '\?\[31mi'; an id is"),
    "empty user": (csv(",i1,4,1500000000"), "row 4, column user: nothing is there; that is no user; data"),
    "blank item": (csv("u1,  ,4,1500000000"), "row 4, column item: '.*'; that is no item"),
    "long id": (csv("u" * 65 + ",i1,4,1500000000"), "row 4, column user: 'u{64,65}'; an id is 1 to 64"),
    "huge field": (csv("u" * 9_000_000 + ",i1,4,1500000000"), "a row is longer than 4,194,304 bytes"),
    "huge header": (b"u" * 500_000, "r.csv: row 1"),
    "many columns": (b"user,item" + b",x" * 20_000 + b"\n", "row 1 has 20,002 columns"),
    "open quote": (csv('"u1,i1,4,1500000000', GOOD.strip()), "row 4, column|row 4: Expected"),
    "newline in an id": (csv('"u\n1",i1,4,1500000000'), r"row 4, column user: 'u 1'; an id"),
    "rating of words": (csv("u1,i1,good,1500000000"), "row 4, column rating: 'good'; a rating is a finite"),
    "rating NaN": (csv("u1,i1,NaN,1500000000"), "row 4, column rating: 'NaN'; a rating is a finite number"),
    "rating inf": (csv("u1,i1,-inf,1500000000"), "row 4, column rating: '-inf'; a rating is a finite"),
    "rating missing": (csv("u1,i1,,1500000000"), "row 4, column rating: nothing is there; a rating is"),
    "time negative": (csv("u1,i1,4,-5"), "row 4, column time: '-5'; a time is from 1970 to 9999"),
    "time absurd": (csv("u1,i1,4,99999999999999999999999"), "row 4, column time: '9+'; a time is"),
    "time inf": (csv("u1,i1,4,inf"), "row 4, column time: 'inf'; a time is a number or an ISO date"),
    "time of mixed units": (csv("u1,i1,4,1500000000000"), r"row 2, column time: '1500000000'; others are ms"),
    "time zero": (csv("u1,i1,4,0"), r"row 4, column time: '0'; others are s since 1970 \(row 2"),
    "time missing": (csv("u1,i1,4,"), "row 4, column time: nothing is there; a time is"),
    "number, then date": (csv("u1,i1,4,2020-01-01"), "row 4, column time: '2020-01-01'; a time is a number"),
    "13th month": (b"user,item,date\n1,2,2020-12-01\n1,3,2020-13-01\n", "row 3, column date: '2020-13-01'"),
    "date as written": (b"user,item,date\n1,2,24/12/2020\n", "row 2, column date: '24/12/2020'.*%d/%m/%Y"),
    "part of a split": (b"user,item,split\n1,2,train\n1,3,holdout\n", "row 3, column split: 'holdout'; a part"),
}
"""What is in r.csv, and what the one line must say."""
BAD: dict[str, Bad] = {
    **{name: ("r.csv", content, {}, message) for name, (content, message) in TABLES.items()},
    "user is item": (
        "r.csv",
        b"user,item\n1,2\n",
        {"columns": {"item": "user"}},
        "'user' cannot be both user and item",
    ),
    "told and missing": (
        "r.csv",
        csv(),
        {"columns": {"user": "usr"}},
        "unknown column of .*'usr'; did you mean 'user'",
    ),
    "all too low": ("r.csv", csv(), {"positive": 9}, r"no rating is at least 9 \(data_options.positive\)"),
    "nothing to compare": ("r.csv", b"user,item\n1,2\n", {"positive": 3}, "no column has a usual name of a rating"),
    "a unit and no times": ("r.csv", b"user,item\n1,2\n", {"time": "ms"}, "data_options.time has nothing to read"),
    "a unit and dates": (
        "r.csv",
        b"user,item,date\n1,2,2020-12-01\n",
        {"time": "ms"},
        "row 2, column date.*no number of ms",
    ),
    "other pattern": (
        "r.csv",
        b"user,item,date\n1,2,2020-12-01\n",
        {"time": "%d/%m/%Y"},
        "row 2, column date.*written as",
    ),
    "core of nobody": ("r.csv", csv(), {"user_core": 50}, "no user and item of 'r' has 50 and 1 interactions; lower"),
    "cut gzip": ("r.csv.gz", gzip.compress(csv() * 500)[:-40], {}, r"r.csv.gz: "),
    "no gzip": ("r.csv.gz", csv(), {}, "r.csv.gz: "),
    "cut zstd": ("r.csv.zst", zst(csv() * 500)[:-20], {}, "r.csv.zst: "),
    "gzip bomb": ("r.csv.gz", gzip.compress(HEAD.encode() + b"\n" * (80 << 20)), {}, "unpacks to more than 67,108,864"),
    "zstd bomb": ("r.csv.zst", zst(HEAD.encode() + GOOD.encode() * (4 << 20)), {}, "unpacks to more than 67,108,864"),
    "atomic without types": (
        "r.inter",
        b"user_id\titem_id\n1\t2\n",
        {},
        "row 1, column user_id: a header of atomic files",
    ),
    "atomic of another type": ("r.inter", b"user_id:int\titem_id:token\n1\t2\n", {}, "column user_id:int: a header of"),
    "atomic float of words": (
        "r.inter",
        b"user_id:token\titem_id:token\trating:float\n1\t2\tx\n",
        {},
        "row 2, column rating",
    ),
    "JSON array": ("r.jsonl", b'[{"user": 1, "item": 2}]\n', {}, "row 1 is an array, not a JSON object"),
    "JSON cut": ("r.jsonl", b'{"user": 1, "item": 2}\n{"user": 1, "it', {}, "row 2 is not a JSON object"),
    "JSON of words": ("r.jsonl", b"hello\n", {}, "row 1 is not a JSON object"),
    "JSON mixed types": (
        "r.jsonl",
        b'{"user": 1, "item": 2}\n' * 3 + b'{"user": "a", "item": 2}\n',
        {},
        "row 4, column user",
    ),
    "JSON missing": ("r.jsonl", b'{"user": 1, "item": 2}\n{"item": 2}\n', {}, "row 2, column user: nothing is there"),
    "JSON key twice": (
        "r.jsonl",
        b'{"user": 1, "user": 3, "item": 2}\n',
        {},
        "row 1, column user: was specified twice",
    ),
    "JSON user a list": ("r.jsonl", b'{"user": [1], "item": 2}\n', {}, "column user: .*an id is"),
    "JSON deep": ("r.jsonl", b'{"user": 1, "item": ' + b"[" * 99_999 + b"]" * 99_999 + b"}\n", {}, "row 1"),
    "JSON NaN": ("r.jsonl", b'{"user": 1, "item": 2, "rating": NaN}\n', {}, "row 1, column rating: 'nan'; a rating is"),
    "JSON not UTF-8": ("r.jsonl", b'{"user": "\xff", "item": 2}\n', {}, "r.jsonl"),
    "parquet of words": ("r.parquet", b"hello, world", {}, "r.parquet: "),
    "parquet cut": ("r.parquet", WHOLE[: len(WHOLE) // 2], {}, "r.parquet: "),
    "parquet with a broken end": ("r.parquet", WHOLE[:-8] + struct.pack("<I", 2**31) + b"PAR1", {}, "r.parquet: "),
    "parquet with a hole": ("r.parquet", WHOLE[:4] + bytes(60) + WHOLE[64:], {}, "r.parquet: "),
    "parquet null": (
        "r.parquet",
        of({"user": ["a", None], "item": [1, 2]}),
        {},
        "row 2, column user: nothing is there",
    ),
    "parquet half ids": ("r.parquet", of({"user": [1.5], "item": [1]}), {}, "row 1, column user: '1.5'; an id is"),
    "parquet booleans": ("r.parquet", of({"user": [True], "item": [1]}), {}, "row 1, column user: 'True'; an id is"),
    "parquet lists": ("r.parquet", of({"user": [[1]], "item": [1]}), {}, "column user: .*an id is"),
    "parquet NaN": ("r.parquet", of({**COLUMNS, "rating": [1.0, float("nan")]}), {}, "row 2, column rating: 'nan'"),
    "parquet dates as ratings": (
        "r.parquet",
        of({**COLUMNS, "rating": pa.array([1, 2], pa.date32())}),
        {},
        "column rating",
    ),
    "parquet no rows": (
        "r.parquet",
        of({"user": pa.array([], pa.string()), "item": pa.array([], pa.string())}),
        {},
        "no rows",
    ),
    "parquet of many rows": ("r.parquet", SAME, {}, "it says that it has 1,100,000 rows, which no honest file"),
    "parquet long ratings": (
        "r.parquet",
        of({**COLUMNS, "rating": ["1" * 9_999] * 2}),
        {},
        "row 1, column rating: '1{80}'",
    ),
    "parquet not UTF-8": ("r.parquet", NOT_TEXT, {}, "r.parquet: "),
    "parquet with a separator": (
        "r.parquet",
        WHOLE,
        {"separator": ";"},
        "format parquet have no data_options.separator",
    ),
    "atomic with a header": (
        "r.inter",
        b"x",
        {"header": ["user", "item"]},
        "format atomic have no data_options.header",
    ),
    "another format": ("r.xlsx", b"PK", {}, "files of data end with .csv, "),
    "folder without data": ("d/", lambda path: path.mkdir(), {}, "no file in it ends with .csv"),
    "folder of many": (
        "d/",
        lambda path: [path.mkdir(), *((path / f"{n}.csv").write_bytes(csv()) for n in "ab")][0],
        {},
        "which of its files has the interactions",
    ),
    "items not there": ("r.csv", csv(), {"items": "no.csv"}, "data_options.items: no.csv is neither there nor beside"),
    "text column not there": ("r.csv", csv(), {"texts": ["titel"]}, "unknown column of .*titel"),
    "file of a folder's name": ("d.csv/", lambda path: path.mkdir(), {}, "no file in it ends with"),
}
"""Name of a file (a folder ends with /), what is in it, options, and what the one line must say."""
