"""The table of F3CRec's tables and figures: which cells each needs, and its page once they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgefr.prepare import Progress
from edgefr.report.pages import Page
from edgefr.reproduce.f3crec import ablations, comparison, improvement, published, shifts, sweeps
from edgefr.reproduce.f3crec.found import Found
from edgefr.reproduce.f3crec.recipes import Ask, Cell


@dataclass(frozen=True)
class Exhibit:
    """A table or figure. `data`: the paper's own data sets for it; `page(ask, found, data sets, progress)`."""

    data: Sequence[str]
    cells: Callable[[Ask, str], list[Cell]]
    page: Callable[[Ask, Found, Sequence[str], Progress | None], Page]


TWO = ("ml-100k", "lastfm-2k")

EXHIBITS: dict[str, Exhibit] = {
    "table-2": Exhibit(published.DATA, comparison.needed, comparison.table_2),
    "table-3": Exhibit(TWO, ablations.needed_3, ablations.table_3),
    "table-4": Exhibit(TWO, shifts.needed_users, shifts.table_4),
    "table-5": Exhibit(TWO, shifts.needed_users, shifts.table_5),
    "table-6": Exhibit(TWO, ablations.needed_6, ablations.table_6),
    "table-7": Exhibit(TWO, shifts.needed_items, shifts.table_7),
    "table-8": Exhibit(published.DATA, sweeps.needed_noise, sweeps.table_8),
    "figure-3": Exhibit(published.DATA, comparison.needed, improvement.figure_3),
    "figure-4": Exhibit(published.DATA, sweeps.needed_knobs, sweeps.figure_4),
}
