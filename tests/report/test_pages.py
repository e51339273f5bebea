import csv
import io
import math

import pytest

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Spread, comma_separated, markdown_table


def test_markdown_has_every_part_and_a_cell_cannot_break_the_table():
    sheet = Sheet("first", [{"a": "x|y", "b\nc": "1"}], ["a"], caption="mind this")
    text = Page("table-9", "Title", [sheet], [{"a": 1}], ["a note"]).markdown(["seeds 0"])
    assert text.splitlines() == [
        "# Title", "", "- a note", "", "## first", "", "| a | b c |", "|---|---:|", "| x\\|y | 1 |", "", "mind this",
        "", "## How this was made", "", "- seeds 0",
    ]  # fmt: skip


def test_csv_keeps_full_precision_and_leaves_nan_out():
    rows = list(csv.DictReader(io.StringIO(comma_separated([{"a": 1 / 3}, {"a": math.nan, "b": None}]))))
    assert rows == [{"a": repr(1 / 3), "b": ""}, {"a": "", "b": ""}]


def test_spread_leaves_nan_out():
    spread = Spread.of([1.0, math.nan, 3.0])
    assert (spread.mean, spread.sd, spread.number) == (2.0, pytest.approx(math.sqrt(2)), 2)
    assert math.isnan(Spread.of([1.0]).sd)


def test_files_are_the_same_for_the_same_numbers(tmp_path):
    from matplotlib.figure import Figure

    def page() -> Page:
        figure = Figure()
        figure.subplots().plot([1, 2], [3, 4])
        return Page("figure-9", "Title", [Sheet("s", [{"a": "b"}], ["a"])], [{"a": 1}], figure=figure)

    files = page().write(tmp_path / "one", [])
    again = page().write(tmp_path / "two", [])
    assert [path.name for path in files] == ["figure-9.md", "figure-9.csv", "figure-9.png", "figure-9.svg"]
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in again]
    assert "figure-9.svg" in files[0].read_text()


def test_a_table_without_numbers():
    assert markdown_table([{"a": "x"}]) == "| a |\n|---|\n| x |"
