"""This lists TransFR's tables and figures of results: which cells each needs, and its page once they are run."""

from __future__ import annotations

from functools import partial

from edgefr.studies.reproductions.exhibits import Exhibit
from edgefr.studies.reproductions.transfr import comparison, stages, sweeps
from edgefr.studies.reproductions.transfr.recipes import DATA, Ask

EXHIBITS: dict[str, Exhibit[Ask]] = {
    "table-4": Exhibit(DATA, comparison.needed, comparison.table_4),
    **{f"table-{n}": Exhibit(DATA, comparison.needed, partial(comparison.transfer, n)) for n in comparison.TABLES},
    **{f"figure-{n}": Exhibit(DATA, stages.needed, partial(stages.by_stage, n)) for n in stages.FIGURES},
    **{f"figure-{n}": Exhibit(DATA, sweeps.needed(n), partial(sweeps.of_knob, n)) for n in sweeps.KNOBS},
}
