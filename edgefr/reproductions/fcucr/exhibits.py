"""This lists FCUCR's tables and figures: which cells each needs, and its page once they are run."""

from __future__ import annotations

from edgefr.reproductions.exhibits import Exhibit
from edgefr.reproductions.fcucr import comparison, forgetting, published, sweeps
from edgefr.reproductions.fcucr.recipes import Ask

ONE = ("xing",)
"""The data set of the paper's analyses; the appendix has more."""

EXHIBITS: dict[str, Exhibit[Ask]] = {
    "table-2": Exhibit(published.DATA, comparison.needed_2, comparison.table_2),
    "table-3": Exhibit(published.DATA, comparison.needed_3, comparison.table_3),
    "table-4": Exhibit(published.DATA, sweeps.needed(sweeps.WINDOW), sweeps.table_4),
    "table-5": Exhibit(published.DATA, sweeps.needed(sweeps.INTERVAL), sweeps.table_5),
    "figure-2": Exhibit(ONE, forgetting.needed, forgetting.figure_2),
    "figure-3": Exhibit(ONE, sweeps.needed(sweeps.TOP_K, sweeps.LAMBDA), sweeps.figure_3),
    "figure-7": Exhibit(ONE, sweeps.needed_noise, sweeps.figure_7),
}
