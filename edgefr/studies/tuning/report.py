"""A tuning leaves a recipe per method with its trials beside it, and one page that compares the budgets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from edgefr.config.sheet import Sheet
from edgefr.experiment.unread_settings import read_values
from edgefr.report.over_seeds import versions
from edgefr.report.pages import Page, Record, Report, number
from edgefr.report.web.answers import capitals
from edgefr.studies.sweeps.grid import shown
from edgefr.studies.tuning import trial as trials
from edgefr.studies.tuning.private import Price, price
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.run import SearchResult, Tuning
from privacy.errors import InputError
from privacy.files import write_atomic, write_json

RECIPES = "recipes"
BUDGETS = "budgets"
BUDGET = "budget.json"


def report(tuning: Tuning, searches: Iterable[SearchResult]) -> Report:
    """Write recipes, tables of trials and pages into the tuning's folder, those of a search as soon as it ends."""
    folder, files, pages, failures = tuning.folder / RECIPES, list[Path](), list[Page](), dict[str, str]()
    about = [*tuning.rules.lines(), f"versions: {', '.join(f'{name} {number}' for name, number in versions().items())}"]
    found, prices = list[SearchResult](), dict[str, Price]()
    for one in searches:
        name = one.space.name
        found.append(one)
        paid = price(tuning.base, one.space, one.records, tuning.rules.seeds, one.experiment)
        prices |= {} if paid is None else {name: paid}
        write_json(tuning.folder / name / BUDGET, _budget(one))
        pages.append(_page(tuning, one, paid))
        e, how = one.experiment, list[str]()
        if e is not None:
            held = ", ".join(f"{field} {shown(value)}" for field, value in e.protocol)
            how = [f"data {e.data}; protocol: {held}; {e.rounds} rounds at most, measured every {e.evaluation.every}"]
        files += pages[-1].write(folder, [*how, *about])
        if e is not None:
            files.append(write_atomic(folder / f"{name}.yaml", recipe(one, tuning, paid)))
        failures |= {f"{name}, trial {r['number']}": r["problem"] for r in one.records if r.get("problem")}
    compared = budgets(tuning, [f"{name}: {paid}" for name, paid in prices.items()])
    files += compared.write(tuning.folder, about)
    return Report([compared, *pages], files, failures, warnings(found), [r for p in pages for r in p.records])


def warnings(found: Sequence[SearchResult]) -> list[str]:
    """Return what a reader of the recipes should know: ranges that were too narrow to the end, searches of failures."""
    lines = [
        f"{one.space.name}: the best value of {', '.join(one.edges)} is still at the edge of its range; begin with a "
        "wider one in another --out, for every method alike"
        for one in found
        if one.edges
    ]
    return lines + [f"{one.space.name}: every trial failed, so there is no recipe" for one in found if one.best is None]


def recipe(found: SearchResult, tuning: Tuning, paid: Price | None = None) -> str:
    """Return a whole experiment as YAML, with how it was found, and for what, above it."""
    assert found.experiment is not None
    assert found.best is not None
    rules = tuning.rules
    seeds, reported = (", ".join(map(str, some)) for some in (rules.seeds, rules.reported))
    head = [
        f"{found.space.name}: chosen by {rules.metric} on validation items ({rules.ranking} ranking), trial "
        f"{found.best.trial.number} of {rules.trials}: {found.best.value:.4f}.",
        f"Searched: {', '.join(r.field for r in found.ranges)}; seeds of the search {seeds}, of results {reported}. "
        f"All trials: {found.space.name}.csv.",
        *([] if paid is None else [f"{capitals(str(paid))}."]),
    ]
    values = yaml.safe_dump(read_values(found.experiment), sort_keys=False)
    return "".join(f"# {line}\n" for line in head) + values


def budgets(tuning: Tuning, notes: Sequence[str] = ()) -> Page:
    """Compare what every method in the folder was given, and what became of it; other calls' methods too."""
    records = list[Record]()
    for path in sorted(tuning.folder.glob(f"*/{BUDGET}")):
        try:
            records.append(dict(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path}: {error}; remove it and tune that method again") from None
    rows = [{key: "-" if value in ("", None) else _short(value) for key, value in record.items()} for record in records]
    caption = f"best: {tuning.rules.metric} on validation items; core seconds: of all trials together"
    return Page(
        BUDGETS, "Equal search budgets", [Sheet("Budgets", rows, ["method", "at an edge"], caption)], records, notes
    )


def _budget(found: SearchResult) -> Record:
    best, ended = found.best, [run["ended"] for record in found.records for run in record["runs"]]
    rounds = [] if best is None else [str(run["best_round"]) for run in found.records[best.trial.number]["runs"]]
    return {
        "method": found.space.name,
        "fields": len(found.ranges),
        "trials": len(found.records),
        "failed": sum(record["value"] is None for record in found.records),
        "below the median": ended.count(trials.BELOW),
        "no better": ended.count(trials.NO_BETTER),
        "best": None if best is None else best.value,
        "best trial": None if best is None else best.trial.number,
        "best round": ", ".join(rounds),
        "widened": len(found.steps),
        "at an edge": ", ".join(found.edges),
        "core seconds": math.fsum(record["cpu_seconds"] for record in found.records),
    }


def _short(value: Any) -> str:
    return str(value) if not isinstance(value, float) else f"{value:.4f}" if value < 1 else f"{value:.0f}"


def _page(tuning: Tuning, found: SearchResult, paid: Price | None) -> Page:
    best, last = found.best, {r.field: r for r in found.ranges}
    records = [_record(record, tuning.rules) for record in found.records]
    rows = [_row(record, found, tuning.rules.metric) for record in found.records]
    searched = [
        {
            "field": r.field,
            "at first": str(r),
            "at last": str(last[r.field]),
            "best": "-" if best is None else f"{best.trial.values[r.field]:.4g}",
        }
        for r in found.space.ranges
    ]
    caption, bold = ("", []) if best is None else (f"trial {best.trial.number} is the best", [best.trial.number])
    sheets = [
        Sheet("What was searched", searched, ["field", "at first", "at last"], found.space.why),
        Sheet("Trials", rows, ["ended"], caption, bold=bold),
    ]
    notes = [f"widened: {step}" for step in found.steps] + [f"at the edge to the end: {field}" for field in found.edges]
    notes += [] if paid is None else [str(paid)]
    fixed = ", ".join(f"{field} {shown(value)}" for field, value in found.space.fixed.items())
    return Page(found.space.name, f"{found.space.name}, tuned", sheets, records, [*notes, f"fixed: {fixed}"])


def _row(record: Mapping[str, Any], found: SearchResult, metric: str) -> dict[str, str]:
    values = {r.field: f"{record['values'][r.field]:.4g}" for r in found.ranges}
    runs = record["runs"]
    return {
        "trial": str(record["number"]),
        **values,
        metric: number(trials.value_of(record)),
        "best\nround": ", ".join(str(run["best_round"]) for run in runs) or "-",
        "ended": record.get("problem") or ", ".join(dict.fromkeys(run["ended"] for run in runs)),
        "core s": f"{record['cpu_seconds']:.1f}",
    }


def _record(record: Mapping[str, Any], rules: Rules) -> Record:
    """Return a trial unrounded, with the rules that it was made by: whoever has the table alone can tell."""
    runs = record["runs"]
    return {
        "trial": record["number"],
        **record["values"],
        f"validation {rules.metric}": record["value"],
        "best_rounds": " ".join(str(run["best_round"]) for run in runs),
        "rounds": " ".join(str(run["curve"][-1][0]) for run in runs),
        "ended": " ".join(run["ended"].replace(" ", "-") for run in runs),
        "core_seconds": record["cpu_seconds"],
        "problem": record.get("problem", ""),
        **rules.columns,
    }
