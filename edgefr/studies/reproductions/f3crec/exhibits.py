"""This lists F3CRec's tables and figures: which cells each needs, and its page once they are run."""

from __future__ import annotations

from edgefr.studies.reproductions.exhibits import Exhibit
from edgefr.studies.reproductions.f3crec import ablations, comparison, improvement, published, static_dynamic, sweeps
from edgefr.studies.reproductions.f3crec.recipes import Ask

TWO = ("ml-100k", "lastfm-2k")

EXHIBITS: dict[str, Exhibit[Ask]] = {
    "table-2": Exhibit(published.DATA, comparison.needed, comparison.table_2),
    "table-3": Exhibit(TWO, ablations.needed_3, ablations.table_3),
    "table-4": Exhibit(TWO, static_dynamic.needed_users, static_dynamic.table_4),
    "table-5": Exhibit(TWO, static_dynamic.needed_users, static_dynamic.table_5),
    "table-6": Exhibit(TWO, ablations.needed_6, ablations.table_6),
    "table-7": Exhibit(TWO, static_dynamic.needed_items, static_dynamic.table_7),
    "table-8": Exhibit(published.DATA, sweeps.needed_noise, sweeps.table_8),
    "figure-3": Exhibit(published.DATA, comparison.needed, improvement.figure_3),
    "figure-4": Exhibit(published.DATA, sweeps.needed_knobs, sweeps.figure_4),
}
