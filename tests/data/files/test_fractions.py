"""Fractions of times are kept, whatever the format: the newest of four clicks in one second is the newest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from edgefr.data import datasets as data
from edgefr.data.files.times import Part, joined

TICKS = [6, 1, 9, 3]
"""Tenths of a second, in the file's order; the item of each is named by it."""
START = 1_593_898_068


def texts(values: list[str], ends: str = ".csv") -> Callable[[Path], Path]:
    """Return what writes the times as text."""

    def write(folder: Path) -> Path:
        sign = "," if ends == ".csv" else "\t"
        head = ["user", "item", "time"] if ends != ".inter" else ["user:token", "item:token", "time:float"]
        rows = [["u", f"i{tick}", value] for tick, value in zip(TICKS, values, strict=True)]
        (folder / f"clicks{ends}").write_text("\n".join(sign.join(row) for row in [head, *rows]) + "\n")
        return folder / f"clicks{ends}"

    return write


def table(times: pa.Array) -> Callable[[Path], Path]:
    """Return what writes the times as a column of parquet."""

    def write(folder: Path) -> Path:
        columns = {"user": ["u"] * 4, "item": [f"i{tick}" for tick in TICKS], "time": times}
        parquet.write_table(pa.table(columns), folder / "clicks.parquet")
        return folder / "clicks.parquet"

    return write


def lines(folder: Path) -> Path:
    rows = [{"user": "u", "item": f"i{tick}", "time": START + tick / 10} for tick in TICKS]
    (folder / "clicks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "clicks.jsonl"


NANO = [START * 10**9 + tick * 10**8 for tick in TICKS]
WAYS: dict[str, Callable[[Path], Path]] = {
    "csv": texts([f"{START}.{tick}" for tick in TICKS]),
    "csv, scientific": texts([f"{(START * 10 + tick)}e-1" for tick in TICKS]),
    "tsv": texts([f"{START}.{tick}000" for tick in TICKS], ".tsv"),
    "inter": texts([f"{START}.{tick}" for tick in TICKS], ".inter"),
    "ms": texts([f"{START * 1000 + 100 * tick}" for tick in TICKS]),
    "ms, fractions": texts([f"{START * 1000 + 100 * tick}.0" for tick in TICKS]),
    "ISO": texts([f"2020-07-04T21:27:48.{tick}" for tick in TICKS]),
    "ISO, comma and zone": texts([f"2020-07-04 21:27:48;{tick}00+00:00".replace(";", ".") for tick in TICKS]),
    "jsonl": lines,
    "floats": table(pa.array([START + tick / 10 for tick in TICKS], pa.float64())),
    "milliseconds": table(pa.array(NANO, pa.timestamp("ns")).cast(pa.timestamp("ms"))),
    "nanoseconds": table(pa.array(NANO, pa.timestamp("ns", "UTC"))),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_order_within_a_second_is_kept(way: str, tmp_path: Path) -> None:
    found = data.load(str(WAYS[way](tmp_path)))
    assert found.catalogue.ids[found.item].tolist() == ["i1", "i3", "i6", "i9"]
    assert np.diff(found.moment).tolist() in ([2, 3, 3], [200, 300, 300])
    assert (found.time == START).all(), "seconds are seconds"


def test_an_order_of_fractions_is_an_order(tmp_path: Path) -> None:
    """Positions from 0 to 1, and days of a spreadsheet with their hours, were all 0, or one day."""
    for values in (["0.6", "0.1", "0.9", "0.3"], ["44016.6", "44016.1", "44016.9", "44016.3"]):
        found = data.load(str(texts(values)(tmp_path)))
        assert found.catalogue.ids[found.item].tolist() == ["i1", "i3", "i6", "i9"]


def test_blocks_of_other_precision_come_to_one_unit(tmp_path: Path) -> None:
    """A long file whose fractions begin after the first block that is read."""
    count = 400_000
    rows = [f"u,i{n % 50},{START + n // 50}" for n in range(count)] + [f"u,last,{START + count}.25"]
    (tmp_path / "long.csv").write_text("user,item,time\n" + "\n".join(rows) + "\n")
    found = data.load(str(tmp_path / "long.csv"))
    assert len(found.item) == count + 1
    assert found.time[0] == START
    assert found.catalogue.ids[found.item[-1]] == "last"
    assert found.moment[-1] == START * 100 + 100 * count + 25


@pytest.mark.parametrize(
    "values", [["1764234861.1234567", "1764234861.1234569"], ["0.1234567890123", "0.1234567890124"]]
)
def test_fine_fractions_are_told_apart_alike_in_every_format(values: list[str], tmp_path: Path) -> None:
    """Floats lost digits that text kept; both now have what a float has."""
    found = []
    rows = [("i2", values[1]), ("i1", values[0])]
    (tmp_path / "a.csv").write_text("user,item,time\n" + "".join(f"u,{item},{time}\n" for item, time in rows))
    items, times = [item for item, _ in rows], pa.array([float(time) for _, time in rows])
    parquet.write_table(pa.table({"user": ["u", "u"], "item": items, "time": times}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        dataset = data.load(str(tmp_path / name))
        found.append(dataset.catalogue.ids[dataset.item].tolist())
    assert found == [["i1", "i2"]] * 2


def test_parts_that_no_one_unit_holds_lose_digits_and_never_turn_over() -> None:
    late, fine = Part(np.array([9_999_999_999])), Part(np.array([1_600_000_000_123_456_789]), 9)
    whole = joined([late, fine])
    assert whole.digits == 8
    assert whole.values.tolist() == [999_999_999_900_000_000, 160_000_000_012_345_678]
