"""These are FedCAR's tables and figure, full ranking first, each row against FedCAR."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import filterfalse
from pathlib import Path

import numpy as np

from edgefr.data.datasets import load
from edgefr.report.pages import Record, number
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Pick
from edgefr.studies.reproductions.exhibits import Exhibit, Paper, by_data
from edgefr.studies.reproductions.fedcar import recipes
from edgefr.studies.reproductions.fedcar.recipes import ROWS, SOURCE, searched
from edgefr.studies.reproductions.paired import Against, beside, compared, sides
from edgefr.studies.reproductions.published import published
from edgefr.studies.reproductions.statistics import Counts, statistics
from edgefr.studies.reproductions.tables import Line, Made, Panel, Row, highest, level, lines, seeds, sheet
from edgefr.studies.sweeps.results import EPSILONS, epsilon_of
from privacy.progress import Progress

METRICS = ("HR@10", "NDCG@10")
RANKINGS = {"full": "full ranking", "sampled": "1 + 99 candidates"}
REFERENCES = ("popularity", "chance")
MAIN = "NDCG@10"
BASE = "fedcar"
"""The row that others are compared with: the paper's own, so that no result chooses it."""
TABLE_2 = tuple(name for name in ROWS if name not in ("fedcar-context", "fedcar-neither", "fedlightgcn"))
TABLE_3 = ("fedcar", "fedcar-context", "fedcar-neither", "gpfedrec")
NEITHER = (
    "neither: FedCAR's own program without context and contrast, a private scorer over the shared item table; the "
    "paper prints GPFedRec's row there, which stands below it"
)
KINDS = {kind: [name for name, row in ROWS.items() if row.kind == kind] for kind in ("federated", "central")}
"""Families of tests; as-released rows are compared with nothing."""


def measure(metric: str, ranking: str, reference: str | None = None) -> Pick:
    """Pick a test metric of a run's final model, or of a reference that learns nothing."""
    if ranking == "sampled" and reference is None:
        return lambda summary: float(summary["metrics"][metric])
    of = "references" if ranking == "sampled" else "full_ranking"
    return lambda summary: float(summary[of][summary["split"]][reference or summary["stage"]][metric])


def family(
    table: str, rows: Sequence[str], ask: Ask, found: FinishedRuns, data: Sequence[str], _: Progress | None
) -> Made:
    """Make Table 2 or 3: a sheet per data set and ranking, of federated rows, central ones, and what learns nothing."""
    made, said = Made(), [NEITHER] if table == "table-3" else []
    for name in data:
        cells = ask.cells(name, rows)
        stands = standing(found, cells)
        sheets = [_sheet(table, found, cells, stands, name, ranking) for ranking in RANKINGS]
        records = [record for one in sheets for record in one.records]
        records.sort(key=lambda record: rows.index(record["method"]))
        made += Made([one.sheets[0] for one in sheets], records)
        said.append(verdict(name, found, cells, stands))
    return made + Made(said=[*said, *map(_lent, filterfalse(searched, data))])


def standing(found: FinishedRuns, cells: Mapping[str, Cell]) -> dict[str, Against]:
    """Compare the finished rows with FedCAR: federated ones are one family of tests, central ones another."""
    families = [[name for name in cells if name in names] for names in KINDS.values()]
    return compared(found, cells, BASE, MAIN, measure(MAIN, "full"), _users, families)


def _users(summary: Mapping[str, str]) -> dict[str, str]:
    return {"ranking": "full", "stage": summary["stage"]}


def best(found: FinishedRuns, cells: Mapping[str, Cell]) -> list[str]:
    """Return the highest federated row, none where nothing is finished."""
    names = [name for name in cells if name in KINDS["federated"]]
    return [names[at] for at in highest([found.spread(cells[name], measure(MAIN, "full")).mean for name in names])]


def verdict(data: str, found: FinishedRuns, cells: Mapping[str, Cell], stands: Mapping[str, Against]) -> str:
    """Say plainly which federated row is highest, and which of them FedCAR is above, below, or not told apart."""
    first = best(found, cells)
    if not first:
        return f"{data}: no federated row is finished"
    line = f"{data}: the highest federated row by {MAIN} (full ranking) is {ROWS[first[0]].label}"
    rivals = sides({ROWS[name].label: one for name, one in stands.items() if name in KINDS["federated"]})
    if not rivals:
        return f"{line}; nothing is compared, since FedCAR and another are not both finished"
    if list(rivals) == ["above"]:
        return f"{line}; FedCAR is above all others ({', '.join(rivals['above'])})"
    return f"{line}; FedCAR is " + "; ".join(f"{what} {', '.join(of)}" for what, of in rivals.items())


def _lent(data: str) -> str:
    """Return what is to be said of a data set on which nothing was searched."""
    return (
        f"{data}: nothing was searched on it; every row that is compared has the recipe that was found on {SOURCE}, so "
        "all rows are as far from their best there as that makes them"
    )


def _sheet(
    table: str, found: FinishedRuns, cells: Mapping[str, Cell], stands: Mapping[str, Against], data: str, ranking: str
) -> Made:
    printed = published("fedcar", table) if ranking == "sampled" else {}
    columns = [
        level(m, measure(m, ranking), {"ranking": ranking, "metric": m}, f"{m}\npaper" if printed else "")
        for m in METRICS
    ]
    columns += [beside(stands, "against FedCAR", BASE)] if ranking == "full" else []
    below = [
        (Line({"method": name}, source, {}), [level(m, measure(m, ranking, name)) for m in METRICS])
        for name in REFERENCES
        if (source := found.fullest(cells.values(), measure(MAIN, ranking, name)))
    ]
    bold = [list(cells).index(name) for name in best(found, cells)]
    rows = lines(cells, {"data": data}, printed, (data,))
    return sheet(found, f"{data}, {RANKINGS[ranking]}", rows, [*columns, seeds], below, bold=bold)


# Figure 5

LINES = ("fedmf", "fedncf", "fedrecon", "pfedrec", "gpfedrec", "fedcar")
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
AUDIT = "audit.json"


def noisy(ask: Ask, data: str, row: str) -> dict[float, Cell]:
    """Return a row by the scale of the noise on uploads; 0 is the row without noise."""
    law = {"privacy.mechanism": "laplace", "privacy.trust": "local"}
    return {scale: ask.cell(data, row, {**law, "privacy.scale": scale} if scale else {}) for scale in NOISE}


def figure_5(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet and two panels: rows by scale, each with the four kinds of epsilon, never mixed."""
    picks = {f"{metric}\n{ranking}": measure(metric, ranking) for ranking in RANKINGS for metric in METRICS}
    cells = {row: noisy(ask, data, row) for row in LINES}
    rows = [
        Line({"method": ROWS[row].label, "lambda": f"{scale:g}"}, cell, {"data": data, "method": row, "noise": scale})
        for row, by_scale in cells.items()
        for scale, cell in by_scale.items()
    ]

    def columns(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
        spreads, kinds = ({t: found.spread(line.cell, pick) for t, pick in picks.items()}, epsilons(found, line.cell))
        means = {title.replace("\n", " "): spread.mean for title, spread in spreads.items()}
        records.append({**line.words, **means, **{f"eps_{kind}": value for kind, value in kinds.items()}})
        shown = {f"eps\n{kind}": number(value, ".4g") for kind, value in kinds.items()}
        return {title: str(spread) for title, spread in spreads.items()} | shown

    panels = []
    for metric in METRICS:
        pick = measure(metric, "full")
        curves = {ROWS[r].label: {x: found.spread(cell, pick) for x, cell in of.items()} for r, of in cells.items()}
        panels.append(Panel(data, "lambda", f"{metric}, full ranking", curves))
    return sheet(found, f"{data}, noise on uploads", rows, [columns]) + Made(panels=panels)


def epsilons(found: FinishedRuns, cell: Cell) -> Mapping[str, float | None]:
    """Return the four kinds of a cell: the largest over its seeds, None where nobody knows."""
    summaries = list(found.summaries.get(cell, {}).values())
    out: dict[str, float | None] = {}
    for kind in EPSILONS:
        values = [epsilon_of(summary, kind) for summary in summaries]
        out[kind] = max(values) if values and all(value == value for value in values) else None
    audits = [run.path / AUDIT for run in found.runs.get(cell, {}).values() if (run.path / AUDIT).is_file()]
    bounds = [json.loads(path.read_text(encoding="utf-8")).get("eps_lb95") for path in audits]
    return out | {"audited": max((float(bound) for bound in bounds if bound is not None), default=None)}


def _counted(label: str, data: Sequence[str], data_dir: Path | None) -> Counts:
    """Count one of Table 1's data sets."""
    (name,) = data
    table = load(name, data_dir, options={"user_core": 5} if name in ("amazon-video", "lastfm-2k") else {})
    highest_id = {"highest item id": int(np.max(table.catalogue.ids.astype(np.int64)))} if name == "ml-1m" else {}
    return {**table.statistics(), **highest_id}


def _noise(ask: Ask, data: str) -> list[Cell]:
    return [cell for row in LINES for cell in noisy(ask, data, row).values()]


_exhibit = partial(Exhibit.of, "fedcar")
FEDCAR = Paper(
    "fedcar",
    recipes.FedCARCell,
    (
        statistics("fedcar", "table-1", _counted),
        *(
            _exhibit(name, lambda ask, data, rows=rows: ask.cells(data, rows).values(), partial(family, name, rows))
            for name, rows in {"table-2": TABLE_2, "table-3": TABLE_3}.items()
        ),
        _exhibit("figure-5", _noise, by_data(figure_5), grid=(2, 10.5, 3.2)),
    ),
)
