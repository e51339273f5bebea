"""A sweep has one web page: every point beside what needs no learning, and utility against each kind of epsilon."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from edgefr.data.datasets import bare_name
from edgefr.experiment.short_names import field_of
from edgefr.report.pages import Report, comma_separated
from edgefr.report.small_groups import of_few
from edgefr.report.tables import count
from edgefr.report.web.answers import BAD, GOOD, NEUTRAL, Answer, capitals
from edgefr.report.web.chart import Axis, short
from edgefr.report.web.page import page
from edgefr.report.web.section import (
    Drawn,
    ReportTable,
    Section,
    SectionPart,
    chart,
    folded,
    heading,
    listed,
    sheet,
    text,
    yes_no,
)
from edgefr.report.web.section import command as code
from edgefr.studies.sweeps.report import (
    CHOICE,
    about,
    answers,
    best_beside,
    is_private,
    judged_by,
    run_record,
    table,
    tradeoff,
)
from edgefr.studies.sweeps.results import EPSILONS, RUNS, FinishedSweep, PointResult
from edgefr.studies.sweeps.tradeoff import Comparable, charts, comparables, epsilon_said
from privacy.files import write_atomic, write_json

OPTIONS = ("data", "method", "rounds", "clients_per_round", "epsilon", "clip")
"""Fields that `edgefr sweep` has an option for, in a record's `options`."""
LEAD = "One experiment at many settings: where does on-device learning help, and what does privacy cost?"
ORDER = ("guaranteed", "nominal", "hypothetical")
USABLE = (
    "A point is usable if learning helped with every seed: the model beats the same model before any round and "
    "every baseline, by an interval over users{}."
)


def write_files(sweep: FinishedSweep, metric: str | None = None) -> Report:
    """Write the files of a sweep into its folder; `metric`: the test metric that is utility (none: the first NDCG)."""
    folder, lines, found = sweep.folder, about(sweep), sweep.results
    records = [run_record(run, sweep) for run in sweep.entries]
    files = [write_atomic(folder / RUNS, comma_separated(records))]
    pages = [table(found, metric, sweep.objectives)] if found else []
    compared = comparables(found, metric)
    if compared and is_private(sweep.record["grid"]):
        pages.append(tradeoff(compared))
        files.append(write_json(folder / "tradeoff.json", answers(compared)))
    for one in pages:
        files += one.write(folder, lines)
    files.append(write_sweep(folder, metric=metric))
    opened = [record | {"folder": str(folder / record["folder"])} for record in records]  # from where we are
    return Report(pages, files, sweep.failures, records=opened)


def write_sweep(folder: Path, out: Path | None = None, metric: str | None = None) -> Path:
    """Write the page of a sweep that ended. Raises `InputError` for a folder that holds none."""
    return write_atomic(out or folder / "report.html", sweep_page(FinishedSweep.read(folder), metric))


def sweep_page(sweep: FinishedSweep, metric: str | None = None) -> str:
    """Return the page of a sweep."""
    found = sweep.results
    compared, private = comparables(found, metric), is_private(sweep.record["grid"])
    sections = [_points(compared, private, any(not one.chosen for one in found))]
    if compared:
        sections += [_tradeoff(compared)] if private else []
        sections.append(
            Section.of("measures", "All measurements", map(sheet, table(found, metric, sweep.objectives).sheets))
        )
    sections.append(_made(sweep))
    name = sweep.folder.resolve().name
    head: dict[str, Any] = {"kind": "sweep", "name": name, "lead": LEAD, "answers": _answers(compared, sweep)}
    head["few"] = of_few(summary for result in found for summary in result.summaries())
    fields = " × ".join(sweep.record["grid"]) or "one point"
    return page(f"Sweep over {fields}", head, sections)


def usable(compared: Sequence[Comparable]) -> str:
    """Say from which guaranteed epsilon on learning helped in every run of a point."""
    worth = [result.epsilon("guaranteed") for group in compared for result in group.usable]
    if not worth:
        return "There is no usable point: learning did not help in every run at any point."
    if math.isinf(min(worth)):
        return "There is no usable point with a guarantee: learning helped only without a guarantee."
    return f"The smallest guaranteed epsilon at which learning helped in every run is {short(min(worth))}."


def _answers(compared: Sequence[Comparable], sweep: FinishedSweep) -> list[Answer]:
    points = [result for group in compared for result in group.results]
    good = sum(result.usable for result in points)
    tone = BAD if not good else GOOD if good == len(points) else NEUTRAL
    why = f"Points at which it helped with every seed{judged_by(compared)}, each compared with its own baselines."
    out = [Answer("Does learning help?", f"At {good} of {count(len(points), 'point')}", why, tone)]
    if is_private(sweep.record["grid"]):
        said = usable(compared)
        none = said.startswith("There is no")
        shown = "No usable point" if none else "See epsilon"
        out.append(Answer("At which privacy?", shown, said, BAD if none else GOOD))
    failed = len(sweep.failures)
    work = f"{count(len(sweep.entries), 'run')} with seeds {', '.join(map(str, sweep.record['seeds']))}"
    broken = f"{count(failed, 'run')} failed" if failed else "None failed"
    return [*out, Answer("What was run?", work, f"{broken}.", BAD if failed else NEUTRAL)]


def _points(compared: Sequence[Comparable], private: bool, passed: bool) -> Section:
    parts = list[SectionPart | None]([text(f"{capitals(CHOICE)}.", "note")] if passed else [])
    for group in compared:
        axis, best = Axis.over([*group.ends(group.results), *group.references().values()], most=4), group.best_reference
        utility, dashed = f"{group.metric}, {group.ranking}", ""
        if best is not None:
            dashed = f"The dashed line is {best[0]}, {best[1]:.4f}, the best baseline. "
        rows = [_row(group, result, axis, utility, private) for result in group.results]
        judged = f" in {' or '.join(group.judged)}" if group.judged else ""
        says = Markup("<strong>{}</strong>: {} of test items ({}), mean ± standard deviation over seeds")
        parts += [
            text(says.format(group.title, group.metric, group.ranking), "says"),
            ReportTable(f"{group.title}, point by point", rows, ("point", "usable?"), look="strips").part,
            text(dashed + USABLE.format(judged), "note"),
        ]
    return Section.of("points", "Where does learning help?", parts or [text("No run ended.")])


def _row(group: Comparable, result: PointResult, axis: Axis, utility: str, private: bool) -> dict[str, Any]:
    """Return one point of the grid: its utility over seeds, and in how many of its runs learning helped."""
    worth, name, best = group.worth(result), result.point.title(), group.best_reference
    low, high = (None, None) if math.isnan(worth.sd) else (worth.mean - worth.sd, worth.mean + worth.sd)
    strip = axis.strip(worth.mean, low, high, f"{name}: {group.metric} {worth}")
    at = None if best is None else axis.place(best[1])
    failed = f", {result.failed} failed" if result.failed else ""
    kinds = EPSILONS if private else ()
    return {
        "point": name,
        **{f"epsilon {kind}": epsilon_said(result.epsilon(kind)) for kind in kinds},
        utility: str(worth),
        "best baseline": best_beside(result, group),
        f"{group.metric}, drawn": Drawn(axis, strip, "good" if result.usable else "bad", at),
        "helped in runs": f"{result.helped} of {len(result.entries)}{failed}",
        "usable?": yes_no(result.usable),
    }


def _tradeoff(compared: Sequence[Comparable]) -> Section:
    """Show utility against each kind of epsilon, a figure each: kinds are never mixed."""
    first, *others = ([c for group in compared for c in charts(group, [kind])] for kind in ORDER)
    more, told = [c for found in others for c in found], tradeoff(compared, drawn=False)
    parts = [
        text(usable(compared), "big"),
        *map(chart, first),
        folded("The same over other kinds of epsilon, which are no guarantees", map(chart, more)) if more else None,
        listed(told.notes),
        folded("The same as a table, with the Pareto front of each kind", map(sheet, told.sheets)),
    ]
    return Section.of("tradeoff", "What does privacy cost?", parts)


def _made(sweep: FinishedSweep) -> Section:
    failures = [Markup("<code>{}</code>: {}").format(*one) for one in sweep.failures.items()]
    parts = [
        code(command(sweep.record)),
        text("With the experiment file, the fleet and the data where they were.", "note"),
        *([heading("What failed"), listed(failures)] if failures else []),
        heading("How the numbers were made"),
        listed(about(sweep)),
    ]
    return Section.of("made", "How to reproduce this run", parts)


def command(record: Mapping[str, Any]) -> str:
    """Return the command of a sweep, as far as its record keeps it.

    >>> kept = {"experiment": None, "set": ["rounds=3"], "grid": {"lr": ["1", "2"]}, "seeds": [4, 5], "search": None}
    >>> command(kept | {"options": {"data": "own.csv"}})
    "edgefr sweep --data own.csv --set rounds=3 --grid 'lr=[1,2]' --seed 4 --seeds 2"
    """
    words = ["edgefr", "sweep"]
    words += [] if record["experiment"] is None else ["--experiment", record["experiment"]]
    for name, given in record.get("options", {}).items():
        value = bare_name(given) if name == "data" else given
        words += [f"--{name.replace('_', '-')}", value] if name in OPTIONS else ["--set", f"{field_of(name)}={value}"]
    words += [word for change in record["set"] for word in ("--set", change)]
    grid, search = record["grid"], record["search"]
    if "privacy" in record:
        words += ["--privacy", "--trials", str(search["trials"])]
        grid, search = {}, None
    words += [word for field, values in grid.items() for word in ("--grid", f"{field}=[{','.join(values)}]")]
    if search is not None:
        words += ["--search", str(search["trials"])]
        for field, (scale, low, high) in search["space"].items():
            words += ["--search-space", f"{field}={scale}({low:g},{high:g})"]
    seeds = record["seeds"]
    words += [] if seeds[0] == 0 else ["--seed", str(seeds[0])]
    return shlex.join([*words, "--seeds", str(len(seeds))])
