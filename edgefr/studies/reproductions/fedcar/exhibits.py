"""This lists FedCAR's tables and figure: which cells each needs, and its page once they are run."""

from __future__ import annotations

from edgefr.studies.reproductions.exhibits import Exhibit
from edgefr.studies.reproductions.fedcar import comparison, noise, published
from edgefr.studies.reproductions.fedcar.recipes import Ask

EXHIBITS: dict[str, Exhibit[Ask]] = {
    "table-2": Exhibit(published.DATA, comparison.needed_2, comparison.table_2),
    "table-3": Exhibit(("ml-100k",), comparison.needed_3, comparison.table_3),
    "figure-5": Exhibit(("ml-100k",), noise.needed, noise.figure_5),
}
