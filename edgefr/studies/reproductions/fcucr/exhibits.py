"""This lists FCUCR's tables and figures: which cells each needs, and its page once they are run."""

from __future__ import annotations

from functools import partial

from edgefr.studies.reproductions.exhibits import Exhibit
from edgefr.studies.reproductions.fcucr import comparison, forgetting, published, sweeps
from edgefr.studies.reproductions.fcucr.recipes import Ask

ANALYSED = "xing"
"""The data set of the paper's Figure 2, which it shows of no other."""

KNOBS = dict(zip((3, 4, 5, 6), published.DATA, strict=True))
NOISE = dict(zip((7, 8, 9, 10), published.DATA, strict=True))
"""The same figure of each data set has a number of its own in the paper."""

_KNOBS = sweeps.needed(sweeps.TOP_K, sweeps.LAMBDA)

EXHIBITS: dict[str, Exhibit[Ask]] = {
    "table-2": Exhibit(published.DATA, comparison.needed_2, comparison.table_2),
    "table-3": Exhibit(published.DATA, comparison.needed_3, comparison.table_3),
    "table-4": Exhibit(published.DATA, sweeps.needed(sweeps.WINDOW), sweeps.table_4),
    "table-5": Exhibit(published.DATA, sweeps.needed(sweeps.INTERVAL), sweeps.table_5),
    "figure-2": Exhibit((ANALYSED,), forgetting.needed, forgetting.figure_2),
    **{f"figure-{n}": Exhibit((data,), _KNOBS, partial(sweeps.of_knobs, n)) for n, data in KNOBS.items()},
    **{f"figure-{n}": Exhibit((data,), sweeps.needed_noise, partial(sweeps.of_noise, n)) for n, data in NOISE.items()},
}
