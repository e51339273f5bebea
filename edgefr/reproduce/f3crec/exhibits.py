"""Which cells each table and figure of F3CRec needs, and its page once they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.prepare import Progress
from edgefr.reproduce.f3crec import comparison, published
from edgefr.reproduce.f3crec.found import Found
from edgefr.reproduce.f3crec.recipes import Cell, cell
from edgefr.reproduce.pages import Page

P_NOTE = (
    "p: two-sided paired t-test; a pair is one seed's two averages over D1 to D3 (same seed: same splits, same base "
    "block), so it speaks of seeds, not of users or other data sets"
)


@dataclass(frozen=True)
class Ask:
    """What is asked for: fidelity, seeds, and values over every recipe. `data_dir`: where archives lie."""

    fidelity: str
    seeds: Sequence[int]
    extra: dict[str, Any] = field(default_factory=dict)
    data_dir: Path | None = None

    def cell(self, data: str, backbone: str, strategy: str, **extra: Any) -> Cell:
        """A cell under this request; `extra` with `__` for the dots of names."""
        named = {key.replace("__", "."): value for key, value in extra.items()}
        return cell(data, backbone, strategy, self.fidelity, {**named, **self.extra})

    def cells(self, data: str, backbone: str, strategies: Sequence[str]) -> dict[str, Cell]:
        """Several strategies, by name."""
        return {strategy: self.cell(data, backbone, strategy) for strategy in strategies}


@dataclass(frozen=True)
class Exhibit:
    """A table or figure. `data`: the paper's own data sets for it; `page(ask, found, data sets, progress)`."""

    about: str
    data: Sequence[str]
    cells: Callable[[Ask, str], list[Cell]]
    page: Callable[[Ask, Found, Sequence[str], Progress | None], Page]


def _table_2_cells(ask: Ask, data: str) -> list[Cell]:
    return [c for b in published.BACKBONES for c in ask.cells(data, b, published.METHODS).values()]


def _table_2(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None) -> Page:
    sheets, records = [], []
    for name in data:
        for backbone in published.BACKBONES:
            for metric in published.METRICS:
                sheet, made = comparison.sheet(found, ask.cells(name, backbone, published.METHODS), metric)
                sheets.append(sheet)
                records += made
    notes = [
        "mean: over D1 to D3; cells are mean ± sd over seeds; beside each the published number (paper)",
        P_NOTE,
        "ranked against all items so far; masked are the user's training and validation items of the block just "
        "learned, as in the released code; 'history masked' also masks all items of earlier blocks",
        "known users had appeared in an earlier block, new users had not; means of the increments, released mask",
        "popularity (of the current block, and of all blocks so far) and chance need no learning",
    ]
    misprints = comparison.misprints(data)
    title = "F3CRec Table 2: six methods, three increments"
    return Page("table-2", title, sheets, records, [*notes, *([misprints] if misprints else [])])


EXHIBITS: dict[str, Exhibit] = {
    "table-2": Exhibit("methods on increments", published.DATA, _table_2_cells, _table_2),
}
