"""The papers whose tables and figures are run again are entries of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.reproductions.cells import Ask, Values
from edgefr.reproductions.exhibits import Exhibit
from edgefr.reproductions.f3crec import exhibits as f3crec_exhibits
from edgefr.reproductions.f3crec import published as f3crec_published
from edgefr.reproductions.f3crec import recipes as f3crec
from edgefr.reproductions.fcucr import exhibits as fcucr_exhibits
from edgefr.reproductions.fcucr import published as fcucr_published
from edgefr.reproductions.fcucr import recipes as fcucr
from privacy.table import Table

FIDELITIES = ("released", "paper")


@dataclass(frozen=True)
class Paper:
    """A paper has exhibits (tables and figures) over data sets.

    `streams`: how often a client may meet a session; none where the paper has no sessions. `ask(fidelity, seeds, values
    over every recipe, folder of archives, stream)` is what is asked for.
    """

    name: str
    title: str
    exhibits: Mapping[str, Exhibit[Any]]
    data: Sequence[str]
    streams: Sequence[str]
    ask: Callable[[str, Sequence[int], Values, Path | None, str | None], Ask]


def _ask_f3crec(fidelity: str, seeds: Sequence[int], extra: Values, data_dir: Path | None, stream: str | None) -> Ask:
    return f3crec.Ask(fidelity, seeds, extra, data_dir)


PAPERS: Table[Paper] = Table("paper", Paper)
PAPERS.register(Paper("f3crec", "F3CRec", f3crec_exhibits.EXHIBITS, f3crec_published.DATA, (), _ask_f3crec))
PAPERS.register(
    Paper("fcucr", "FCUCR", fcucr_exhibits.EXHIBITS, fcucr_published.DATA, ("one-pass", "cyclic"), fcucr.Ask)
)
