"""This is the leaderboard's table: a row a method, the highest NDCG@10 first, and how federated rows got there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from edgefr.config.documents import Document
from edgefr.experiment.short_names import noise_for
from edgefr.metrics.settings import UNLEARNED
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Pick, Summary, at
from edgefr.studies.reproductions.exhibits import Exhibit, Paper, by_data
from edgefr.studies.reproductions.fedcar.recipes import ROWS, FedCARCell
from edgefr.studies.reproductions.fedcar.tables import KINDS, MAIN, METRICS, measure
from edgefr.studies.reproductions.paired import beside, compared
from edgefr.studies.reproductions.tables import Column, Line, Made, Panel, Row, level, lines, seeds, sheet
from privacy.errors import InputError

BASE = "fedmf"
"""The row that others are compared with: the simplest federated one, so that no result chooses it."""
REFERENCES = ("hybrid", "popularity", "chance")
"""What needs no rounds, the strongest first."""
EPSILON = 8.0
LISTED = [name for name, row in ROWS.items() if row.judged and name != "fedcar-neither"]


def _megabytes(summary: Summary) -> float:
    return 1e-6 * sum(at("fleet", way, "p50")(summary) for way in ("bytes_down", "bytes_up"))


COSTS: Mapping[str, Pick] = {"MB": _megabytes, "J": at("fleet", "energy_j", "p50"), "s": at("fleet", "seconds", "p50")}
"""What a round costs a typical client, by unit."""


def private(ask: Ask, data: str, row: str) -> Cell | None:
    """Return a row with noise for the epsilon, None where its experiment is refused with noise, or nobody releases."""
    if ROWS[row].kind == "central":
        return None
    named = {"privacy.epsilon": EPSILON}
    try:
        recipe = Document.read(cast(FedCARCell, ask.cell(data, row)).path).values
        made = ask.cell(data, row, named | noise_for(named, _without_rate(recipe), ask.extra))
        made.experiment(ask.seeds[0])
    except InputError:
        return None
    return made


def _without_rate(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe without the server's rate, which goes with a clip and not with a search without one."""
    server = {name: value for name, value in (recipe.get("aggregation") or {}).items() if name != "server_lr"}
    return {**recipe, "aggregation": server}


def cells(ask: Ask, data: str) -> list[Cell]:
    """Return the runs of the table: every row, and those that can have noise with it."""
    noised = (private(ask, data, row) for row in LISTED if not ask.rows or row in ask.rows)
    return [*ask.cells(data, LISTED).values(), *filter(None, noised)]


def unlearned(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
    """Return the column of a row's NDCG@10 before any round, nothing where there are no rounds."""
    if ROWS[line.cell.row].kind == "central":
        return {f"{MAIN}\nunlearned": ""}
    spread = found.spread(line.cell, measure(MAIN, "full", UNLEARNED))
    records[-1] |= {f"{MAIN}_unlearned": spread.mean}
    return {f"{MAIN}\nunlearned": number(spread.mean)}


def costs(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
    """Return what a round costs a typical client, nothing where there are no rounds."""
    if ROWS[line.cell.row].kind == "central":
        return {f"{unit}\na round": "" for unit in COSTS}
    means = {unit: found.spread(line.cell, pick).mean for unit, pick in COSTS.items()}
    records[-1] |= {f"{unit}_of_a_round": mean for unit, mean in means.items()}
    return {f"{unit}\na round": number(mean, ".3g") for unit, mean in means.items()}


def at_epsilon(noised: Mapping[str, Cell | None]) -> Column:
    """Return the column of a row's NDCG@10 with noise."""

    def column(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
        cell = noised.get(line.cell.row)
        spread = Spread.of([]) if cell is None else found.spread(cell, measure(MAIN, "full"))
        records[-1] |= {f"{MAIN}_at_epsilon_{EPSILON:g}": spread.mean, "seeds_with_noise": spread.number}
        return {f"{MAIN}\nepsilon {EPSILON:g}": "" if ROWS[line.cell.row].kind == "central" else str(spread)}

    return column


def table(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make the sheet of a data set, finished rows first, the highest on top."""
    pick: Pick = measure(MAIN, "full")
    rows = ask.cells(data, [name for name in LISTED if not ask.rows or name in ask.rows])
    mean = {name: found.spread(cell, pick).mean for name, cell in rows.items()}
    order = sorted(rows, key=lambda name: (mean[name] != mean[name], -mean[name]))
    families = [[name for name in rows if name in names] for names in KINDS.values()]
    stands = compared(found, rows, BASE, MAIN, pick, _users, families)
    columns = [level(metric, measure(metric, "full"), {"metric": metric}) for metric in METRICS[::-1]]
    noised = {name: private(ask, data, name) for name in rows}
    below = [
        (Line({"method": name}, source, {}), [level(m, measure(m, "full", name)) for m in METRICS[::-1]])
        for name in REFERENCES
        if (source := found.fullest(rows.values(), measure(MAIN, "full", name)))
    ]
    asked = [beside(stands, "against FedMF", BASE), unlearned, costs, at_epsilon(noised), seeds]
    made = sheet(found, data, lines({name: rows[name] for name in order}, {"data": data}), [*columns, *asked], below)
    return made + Made(panels=panels(found, {name: rows[name] for name in order}, data))


def panels(found: FinishedRuns, rows: Mapping[str, Cell], data: str) -> list[Panel]:
    """Return two panels of federated rows: NDCG@10 on validation items by round, and by what a client has moved."""
    federated = {ROWS[name].label: cell for name, cell in rows.items() if ROWS[name].kind != "central"}
    by_round = {label: learned(found, cell) for label, cell in federated.items()}
    moved = {
        label: {found.spread(cell, _megabytes).mean * after: spread for after, spread in by_round[label].items()}
        for label, cell in federated.items()
    }
    y = f"{MAIN} of validation items, full ranking"
    return [Panel(data, "rounds", y, by_round), Panel(data, "MB to and from a client", y, moved)]


def learned(found: FinishedRuns, cell: Cell) -> dict[int, Spread]:
    """Return a row's NDCG@10 on validation items by the rounds behind it, over the seeds that got so far."""
    values: dict[int, list[float]] = {}
    for run in found.runs.get(cell, {}).values():
        table = run.metrics
        asked = (table["which"] == "valid") & (table["ranking"] == "full") & (table["metric"] == MAIN)
        some = table[asked & table["round"].notna()]
        for at_round, value in zip(some["round"], some["value"], strict=True):
            values.setdefault(int(at_round), []).append(float(value))
    return {after: Spread.of(values[after]) for after in sorted(values)}


def _users(summary: Summary) -> dict[str, str]:
    return {"ranking": "full", "stage": summary["stage"]}


LEADERBOARD = Paper(
    "leaderboard", FedCARCell, (Exhibit.of("leaderboard", "leaderboard", cells, by_data(table), grid=(2, 11.0, 4.2)),)
)
