"""The papers whose tables and figures are run again are entries of one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.data.datasets import names
from edgefr.studies.reproductions.cells import Ask, Values
from edgefr.studies.reproductions.exhibits import Exhibit
from edgefr.studies.reproductions.f3crec import exhibits as f3crec_exhibits
from edgefr.studies.reproductions.f3crec import published as f3crec_published
from edgefr.studies.reproductions.f3crec import recipes as f3crec
from edgefr.studies.reproductions.f3crec import statistics as f3crec_statistics
from edgefr.studies.reproductions.fcucr import exhibits as fcucr_exhibits
from edgefr.studies.reproductions.fcucr import published as fcucr_published
from edgefr.studies.reproductions.fcucr import recipes as fcucr
from edgefr.studies.reproductions.fcucr import statistics as fcucr_statistics
from edgefr.studies.reproductions.fedcar import exhibits as fedcar_exhibits
from edgefr.studies.reproductions.fedcar import recipes as fedcar
from edgefr.studies.reproductions.fedcar import statistics as fedcar_statistics
from edgefr.studies.reproductions.transfr import exhibits as transfr_exhibits
from edgefr.studies.reproductions.transfr import recipes as transfr
from edgefr.studies.reproductions.transfr import statistics as transfr_statistics
from privacy.table import Table

FIDELITIES = ("released", "paper")


@dataclass(frozen=True)
class Paper:
    """A paper has exhibits (tables and figures) over data sets.

    `streams`: how often a client may meet a session; none where the paper has no sessions. `ask(fidelity, seeds, values
    over every recipe, folder of archives, stream)` is what is asked for. `others`: its recipes fit other data sets
    than the paper's, of which it prints nothing.
    """

    name: str
    title: str
    exhibits: Mapping[str, Exhibit[Any]]
    data: Sequence[str]
    streams: Sequence[str]
    ask: Callable[[str, Sequence[int], Values, Path | None, str | None], Ask]
    others: bool = False

    @property
    def data_sets(self) -> Sequence[str]:
        """Return names of data sets that its exhibits can be made of: the paper's, and perhaps all."""
        return tuple(dict.fromkeys([*self.data, *(names() if self.others else ())]))


def _ask_f3crec(fidelity: str, seeds: Sequence[int], extra: Values, data_dir: Path | None, stream: str | None) -> Ask:
    return f3crec.Ask(fidelity, seeds, extra, data_dir)


def _ask_fedcar(fidelity: str, seeds: Sequence[int], extra: Values, data_dir: Path | None, stream: str | None) -> Ask:
    return fedcar.Ask("as each recipe says", seeds, extra, data_dir)


def _ask_transfr(fidelity: str, seeds: Sequence[int], extra: Values, data_dir: Path | None, stream: str | None) -> Ask:
    return transfr.Ask("as each recipe says", seeds, extra, data_dir)


def _with(table_1: Exhibit[Any], others: Mapping[str, Exhibit[Any]]) -> dict[str, Exhibit[Any]]:
    """Return a paper's exhibits, its statistics of data sets, for which nothing is run, before the others."""
    return {"table-1": table_1, **others}


def _data(exhibits: Mapping[str, Exhibit[Any]]) -> tuple[str, ...]:
    """Return the data sets of all exhibits."""
    return tuple(dict.fromkeys(data for exhibit in exhibits.values() for data in exhibit.data))


_FEDCAR = {**fedcar_statistics.EXHIBITS, **fedcar_exhibits.EXHIBITS}
_TRANSFR = {**transfr_statistics.EXHIBITS, **transfr_exhibits.EXHIBITS}

PAPERS: Table[Paper] = Table("paper", Paper)
PAPERS.register(
    Paper(
        "f3crec",
        "F3CRec",
        _with(f3crec_statistics.TABLE_1, f3crec_exhibits.EXHIBITS),
        f3crec_published.DATA,
        (),
        _ask_f3crec,
    )
)
PAPERS.register(
    Paper(
        "fcucr",
        "FCUCR",
        _with(fcucr_statistics.TABLE_1, fcucr_exhibits.EXHIBITS),
        fcucr_published.DATA,
        ("one-pass", "cyclic"),
        fcucr.Ask,
        others=True,
    )
)
PAPERS.register(Paper("fedcar", "FedCAR", _FEDCAR, _data(_FEDCAR), (), _ask_fedcar))
PAPERS.register(Paper("transfr", "TransFR", _TRANSFR, (*_data(_TRANSFR), "demo"), (), _ask_transfr))
