"""TransFR's tables and figures: cold start in another domain, what is lost on the way there, stages, and two knobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edgefr.config.sheet import Sheet
from edgefr.data.datasets import load
from edgefr.data.filtering import kept, thinned
from edgefr.data.interactions import Dataset
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Pick, Summary, Values
from edgefr.studies.reproductions.exhibits import Exhibit, Paper, by_data
from edgefr.studies.reproductions.paired import beside, compared, sides
from edgefr.studies.reproductions.published import published, specification
from edgefr.studies.reproductions.statistics import Counts, statistics
from edgefr.studies.reproductions.tables import Line, Made, Panel, level, lines, seeds, sheet
from edgefr.studies.reproductions.transfr import recipes
from edgefr.studies.reproductions.transfr.recipes import ROWS, DomainPair, tasks
from privacy.progress import Progress

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")

METRICS = ("HR@10", "NDCG@10")
MAIN = "NDCG@10"
BASE = "transfr-ours"
"""The row that others are compared with: chosen before these tables, so that no result chooses it."""
COLD = ("finetune", "central", "federated")
"""How the model is called that rounds, or epochs, end with, before it meets what users have in the target."""
REFERENCES: Mapping[str, str] = specification("transfr")["references"]
COLD_NAMES = ("text mean, cold", "hybrid, cold", "popularity", "chance")
WARM_NAMES = ("text mean", "hybrid", "popularity", "chance")
LABELS: Mapping[str, str] = specification("transfr")["labels"]


def cold_stage(summary: Summary) -> str:
    """Return the name of a run's model as it is before it meets the target.

    >>> cold_stage({"stages": {"target": {"random": {}, "finetune": {}, "localtrain": {}}}})
    'finetune'
    """
    return next(name for name in COLD if name in summary["stages"]["target"])


def of_stage(side: Side, stage: str, metric: str) -> Pick:
    """Pick a test metric of a stage, or of a reference; NaN where it was not measured."""

    def pick(summary: Summary) -> float:
        found = {**summary["references"].get(side, {}), **summary["stages"].get(side, {})}
        return float(found.get(stage, {}).get(metric, math.nan))

    return pick


def cold(side: Side, metric: str) -> Pick:
    """Pick a test metric of the model before it meets the target (Table 4)."""
    return lambda summary: of_stage(side, cold_stage(summary), metric)(summary)


def warm(metric: str) -> Pick:
    """Pick a metric in the target of a model that knows what users have there; NaN where there is none."""

    def pick(summary: Summary) -> float:
        last = summary["stage"]
        return math.nan if last == cold_stage(summary) else of_stage("target", last, metric)(summary)

    return pick


def shown(side: Side, metric: str) -> Pick:
    """Pick a metric as Tables 5 and 6 have a row: TransFR, which alone is tuned, after local training."""

    def pick(summary: Summary) -> float:
        stage = cold_stage(summary)
        return of_stage(side, summary["stage"] if stage == COLD[0] else stage, metric)(summary)

    return pick


def lost(metric: str) -> Pick:
    """Pick delta, how many % of the source's metric are lost in the target (Tables 5 and 6)."""

    def pick(summary: Summary) -> float:
        before, after = (shown(side, metric)(summary) for side in SIDES)
        return 100 * (1 - after / before) if before else math.nan

    return pick


# Tables 4 to 6


def table_4(ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Make a sheet of cold start per task, and one of what the paper prints."""
    made = sum((_cold(found, task.cells(ask, ROWS), task) for name in data for task in tasks(name)), Made())
    return made + Made([_printed("table-4", "as the paper prints it: cold start")])


def _users(summary: Summary) -> dict[str, str]:
    return {"on": "target", "stage": cold_stage(summary), "ranking": "sampled"}


def _cold(found: FinishedRuns, cells: Mapping[str, Cell], task: DomainPair) -> Made:
    stands = compared(found, cells, BASE, MAIN, cold("target", MAIN), _users, [list(cells)])
    columns = [level(metric, cold("target", metric), {"metric": metric}) for metric in METRICS]
    columns += [beside(stands, "against ours", BASE), seeds]
    below = [
        (
            Line({"method": REFERENCES[name]}, source, task.words | {"row": name}),
            [level(metric, of_stage("target", name, metric), {"metric": metric}) for metric in METRICS],
        )
        for name in COLD_NAMES
        if (source := found.fullest(cells.values(), of_stage("target", name, MAIN)))
    ]
    rivals = sides({ROWS[name].label: one for name, one in stands.items()})
    words = "; ".join(f"{what} {', '.join(of)}" for what, of in rivals.items())
    said = [f"{task}: {ROWS[BASE].label}, is {words} ({MAIN} of cold start)"] if words else []
    made = sheet(found, f"{task}, cold start ({task.data})", lines(cells, task.words), columns, below)
    return made + Made(said=said)


def transfer(
    table: str, metric: str, ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None
) -> Made:
    """Make Table 5 or 6: source, target and what is lost, a sheet per task, and one of what the paper prints."""
    columns = [
        level("source", shown("source", metric), {"metric": metric, "what": "source"}),
        level("target", shown("target", metric), {"metric": metric, "what": "target"}),
        level("lost %", lost(metric), {"metric": metric, "what": "lost %"}, form=_percent),
        level("target, its\nitems known", warm(metric), {"metric": metric, "what": "target, its items known"}),
        seeds,
    ]
    made = Made()
    for task in (task for name in data for task in tasks(name)):
        cells = task.cells(ask, ROWS)
        below = [
            (Line({"method": REFERENCES[name]}, source, {}), [level(s, of_stage(s, name, metric)) for s in SIDES])
            for name in WARM_NAMES
            if (source := found.fullest(cells.values(), of_stage("target", name, metric)))
        ]
        made += sheet(found, f"{task}, {metric} ({task.data})", lines(cells, task.words), columns, below)
    return made + Made([_printed(table, f"as the paper prints it: {metric}")])


def _percent(spread: Spread) -> str:
    if not spread.number:
        return str(spread)
    return f"{spread.mean:.1f}" + (f" ± {spread.sd:.1f}" if spread.number > 1 else "")


def _printed(table: str, title: str) -> Sheet:
    """Return what the paper prints, in the order of its tables."""
    rows = [
        {
            "method": f"{LABELS[row]} (paper)",
            **{name.replace(": ", "\n"): number(value, "g") for name, value in values.items()},
        }
        for (row,), values in published("transfr", table).items()
    ]
    return Sheet(title, rows, ["method"])


# Figures 3 and 4: runs of Table 4

BOTH = ("transfr", "transfr-ours")
STAGES: Mapping[str, str] = {
    "random": "Random",
    "pretrain": "Pretrain",
    "finetune": "Finetune",
    "context": "context",
    "localtrain": "Localtrain",
}
"""The paper's four stages; with context (ours) the target's items are known and nothing is trained on them."""


def by_stage(metric: str, ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet and a panel per task: what the target's users get after each stage (TransFR 4.2.2)."""
    made = Made()
    for task in tasks(data):
        cells = {ROWS[row].label: cell for row, cell in task.cells(ask, BOTH).items()}
        drawn = {
            label: {name: found.spread(cell, of_stage("target", stage, metric)) for stage, name in STAGES.items()}
            for label, cell in cells.items()
        }
        rows = [
            {"stage": name, **{label: str(spreads[name]) for label, spreads in drawn.items()}}
            for name in STAGES.values()
        ]
        for name, words in REFERENCES.items():
            pick = of_stage("target", name, metric)
            rows.append({"stage": words, **{label: str(found.spread(cell, pick)) for label, cell in cells.items()}})
        records: list[Record] = [
            {**task.words, "method": cells[label].row, "stage": name, "metric": metric, **spread.record()}
            for label, spreads in drawn.items()
            for name, spread in spreads.items()
        ]
        title = f"{task}, {metric} ({task.data})"
        panel = Panel(str(task), "", f"test {metric}, target", drawn, kind="bar")
        made += Made([Sheet(title, rows, ["stage"], rules=[2, len(STAGES) - 1])], records, panels=[panel])
    return made


# Figures 5 and 6: one knob of local training (TransFR 4.2.3)

WIDTHS: Sequence[list[int]] = ([32], [128, 32], [128, 64, 32], [256, 128, 64, 32])
"""Figure 5's heads, without the encoder's 312."""
LAYERS: Mapping[str, Values] = {
    str(len(widths)): {"model.head_form": "adapter", "model.adapter": widths} for widths in WIDTHS
}
LOCAL_EPOCHS: Mapping[str, Values] = {
    str(number): {} if number == 6 else {"model.local_training_epochs": number} for number in (2, 4, 6, 8, 10)
}
"""Six are Table 4's run."""


def turned(ask: Ask, task: DomainPair, points: Mapping[str, Values]) -> dict[str, Cell]:
    """Return TransFR, by cross-entropy with Adam on devices, at every point of a knob."""
    return {point: task.cell(ask, "transfr", values) for point, values in points.items()}


def knob(axis: str, title: str, points: Mapping[str, Values], ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet and a panel per task: the target before and after local training."""
    columns = [
        level(f"{metric}\n{when}", pick, {"stage": when, "metric": metric})
        for metric in METRICS
        for when, pick in (("cold start", cold("target", metric)), ("Localtrain", warm(metric)))
    ]
    made = Made()
    for task in tasks(data):
        cells = turned(ask, task, points)
        rows = [Line({axis: point}, cell, task.words | {axis: point}) for point, cell in cells.items()]
        curves = {
            metric: {point: found.spread(cell, warm(metric)) for point, cell in cells.items()} for metric in METRICS
        }
        made += sheet(found, f"{task}, {title} ({task.data})", rows, [*columns, seeds])
        made += Made(panels=[Panel(str(task), axis, "test, target, Localtrain", curves)])
    return made


# Tables 2 and 3: categories of Amazon, and the tasks between two of them; sets of two domains are counted alike

_USER_CORE, _ITEM_CORE = 20, 30  # TransFR §4.1.1


@cache
def _domain(data: str, domain: str | None, data_dir: Path | None) -> Dataset:
    """Return a domain of a set of two, or a category of titled items, thinned as TransFR has it (§4.1.1)."""
    table = load(data, data_dir)
    if domain is None:
        titled = np.array([bool(title) for title in table.catalogue.title])
        return thinned(kept(table, titled[table.item]), "keep", _USER_CORE, _ITEM_CORE)
    part = kept(table, (table.catalogue.domain == table.domains.index(domain))[table.item])
    return replace(part, domains=table.domains)


def _domains(label: str, data: Sequence[str], data_dir: Path | None) -> list[Dataset]:
    """Return the domains that a line names: "Music to Books", each a data set, or "book to movie of <data set>"."""
    named = label.removesuffix(f" of {data[0]}").split(" to ")
    if label.endswith(f" of {data[0]}"):
        return [_domain(data[0], domain, data_dir) for domain in named]
    return [_domain(each, None, data_dir) for each in data]


def sizes(label: str, data: Sequence[str], data_dir: Path | None) -> Counts:
    """Count a line of Table 2."""
    (table,) = _domains(label, data, data_dir)
    found = table.statistics()
    titles = [table.catalogue.title[item] for item in np.unique(table.item).tolist()]
    words = [len(title.split()) for title in titles if title]
    out = {name: float(found[name]) for name in ("users", "items")} | {"ratings": float(found["interactions"])}
    return out | {"ratings per user": found["interactions"] / found["users"], "words of a title": float(np.mean(words))}


def overlaps(label: str, data: Sequence[str], data_dir: Path | None) -> Counts:
    """Count a line of Table 3: users of both domains, and the items that these have in each."""
    source, target = _domains(label, data, data_dir)
    shared = np.intersect1d(source.users, target.users)
    items = {"source items": _items(source, shared), "target items": _items(target, shared)}
    return {"overlapping users": len(shared), **items}


def _items(table: Dataset, users: npt.NDArray[np.str_]) -> int:
    return len(np.unique(table.item[np.isin(table.users, users)[table.user]]))


def _rows(rows: Iterable[str], ask: Ask, data: str) -> list[Cell]:
    return [cell for task in tasks(data) for cell in task.cells(ask, rows).values()]


def _points(points: Mapping[str, Values], ask: Ask, data: str) -> list[Cell]:
    return [cell for task in tasks(data) for cell in turned(ask, task, points).values()]


_exhibit: Any = partial(Exhibit.of, "transfr")
_KNOBS = {
    "figure-5": ("layers", "layers of the local head", LAYERS),
    "figure-6": ("epochs", "epochs of local training", LOCAL_EPOCHS),
}
TRANSFR = Paper(
    "transfr",
    recipes.TransFRCell,
    (
        statistics("transfr", "table-2", sizes),
        statistics("transfr", "table-3", overlaps),
        _exhibit("table-4", partial(_rows, ROWS), table_4),
        _exhibit("table-5", partial(_rows, ROWS), partial(transfer, "table-5", "HR@10")),
        _exhibit("table-6", partial(_rows, ROWS), partial(transfer, "table-6", "NDCG@10")),
        _exhibit("figure-3", partial(_rows, BOTH), by_data(partial(by_stage, "HR@10")), grid=(2, 10.0, 3.4)),
        _exhibit("figure-4", partial(_rows, BOTH), by_data(partial(by_stage, "NDCG@10")), grid=(2, 10.0, 3.4)),
        *(
            _exhibit(name, partial(_points, turns[-1]), by_data(partial(knob, *turns)), grid=(2, 9.0, 3.2))
            for name, turns in _KNOBS.items()
        ),
    ),
    more=("demo",),
)
