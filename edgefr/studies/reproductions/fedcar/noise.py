"""Figure 5 adds Laplace noise to every upload: rows by scale, each with the four kinds of epsilon, never mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, number
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.fedcar import published
from edgefr.studies.reproductions.fedcar.comparison import measure
from edgefr.studies.reproductions.fedcar.recipes import ROWS, Ask, Cell
from edgefr.studies.sweeps.results import EPSILONS, epsilon_of
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ("fedmf", "fedncf", "fedrecon", "pfedrec", "gpfedrec", "fedcar")
AUDIT = "audit.json"


def noisy(ask: Ask, data: str, row: str) -> dict[float, Cell]:
    """Return a row by the scale of the noise on uploads; 0 is the row without noise."""
    law = {"privacy.mechanism": "laplace", "privacy.trust": "local"}
    return {scale: ask.cell(data, row, {**law, "privacy.scale": scale} if scale else {}) for scale in published.NOISE}


def needed(ask: Ask, data: str) -> list[Cell]:
    """Return every row at every scale."""
    return [cell for row in LINES for cell in noisy(ask, data, row).values()]


def figure_5(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet and two panels per data set."""
    sheets, records = [], list[Record]()
    for name in data:
        rows = []
        for row in LINES:
            for scale, cell in noisy(ask, name, row).items():
                spreads = {
                    f"{metric}\n{ranking}": found.spread(cell, measure(metric, ranking))
                    for ranking in ("full", "sampled")
                    for metric in published.METRICS
                }
                kinds = epsilons(found, cell)
                shown = {
                    f"eps\n{kind}": "-" if value is None else number(value, ".4g") for kind, value in kinds.items()
                }
                line = {"method": ROWS[row].label, "lambda": f"{scale:g}"}
                rows.append(line | {title: str(spread) for title, spread in spreads.items()} | shown)
                head: dict[str, Any] = {"data": name, "method": row, "noise": scale}
                values = {title.replace("\n", " "): spread.mean for title, spread in spreads.items()}
                records.append({**head, **values, **{f"eps_{kind}": value for kind, value in kinds.items()}})
        sheets.append(Sheet(f"{name}, noise on uploads", rows, ["method"]))
    notes = [
        "Laplace noise of scale lambda on every number a client sends, each client for itself, as the paper adds it; "
        "nothing is clipped, so nothing is guaranteed whatever lambda is",
        "nominal: the paper's formula for one round; guaranteed: all rounds of who took part most; hypothetical: what "
        "this noise would have guaranteed had updates been clipped at their 90th percentile; audited: the lower bound "
        "that attacks showed, where edgefr audit was run on the first seed's folder (-: it was not)",
        "recipes are those without noise; the paper draws Last.fm-2K and prints no numbers",
    ]
    title = "FedCAR Figure 5: noise on uploads"
    return Page("figure-5", title, sheets, records, notes, _drawn(found, ask, data))


def epsilons(found: Found, cell: Cell) -> Mapping[str, float | None]:
    """Return the four kinds of a cell: the largest over its seeds, None where nobody knows."""
    summaries = list(found.summaries.get(cell, {}).values())
    out: dict[str, float | None] = {}
    for kind in EPSILONS:
        values = [epsilon_of(summary, kind) for summary in summaries]
        out[kind] = max(values) if values and all(value == value for value in values) else None
    bounds = [json.loads(path.read_text(encoding="utf-8")).get("eps_lb95") for path in _audits(found, cell)]
    return out | {"audited": max((float(bound) for bound in bounds if bound is not None), default=None)}


def _audits(found: Found, cell: Cell) -> list[Any]:
    return [run.path / AUDIT for run in found.runs.get(cell, {}).values() if (run.path / AUDIT).is_file()]


def _drawn(found: Found, ask: Ask, data: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.2 * len(data)), layout="constrained")
    panels = figure.subplots(len(data), 2, squeeze=False)
    for axes, name in zip(panels, data, strict=True):
        for axis, metric in zip(axes, published.METRICS, strict=True):
            for row in LINES:
                cells = noisy(ask, name, row)
                spreads = [found.spread(cell, measure(metric, "full")) for cell in cells.values()]
                spread = [0.0 if one.number < 2 else one.sd for one in spreads]
                means = [one.mean for one in spreads]
                axis.errorbar(list(cells), means, spread, marker="o", markersize=4, capsize=3, label=ROWS[row].label)
            axis.set(title=name, xlabel="lambda", ylabel=f"{metric}, full ranking")
            axis.grid(alpha=0.3)
        axes[-1].legend(fontsize="small")
    return figure
