"""A sweep has one web page: every point beside what needs no learning, and utility against each kind of epsilon."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefr.report.pages import Report, comma_separated
from edgefr.report.small_groups import of_few
from edgefr.report.tables import count
from edgefr.report.verdict import ranked
from edgefr.report.web.answers import BAD, GOOD, NEUTRAL, Answer
from edgefr.report.web.chart import Axis, Chart, Point, levels, line, short
from edgefr.report.web.page import page
from edgefr.report.web.section import Section
from edgefr.studies.sweeps.report import about, answers, best_beside, is_private, judged_by, run_record, table, tradeoff
from edgefr.studies.sweeps.results import EPSILONS, RUNS, FinishedSweep, PointResult, results
from edgefr.studies.sweeps.tradeoff import Comparable, Scale, comparables, curves
from privacy.files import write_atomic, write_json

LEAD = "One experiment at many settings: where does learning on people's own devices help, and what does privacy cost?"


def write_files(sweep: FinishedSweep, metric: str | None = None) -> Report:
    """Write the tables, the figure and the page of a sweep into its folder.

    `metric`: the test metric that is utility (none: the first NDCG).
    """
    folder, lines, found = sweep.folder, about(sweep), results(sweep.speaking)
    records = [run_record(run, sweep) for run in sweep.entries]
    files = [write_atomic(folder / RUNS, comma_separated(records))]
    pages = [table(found, metric)] if found else []
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
    found = results(sweep.speaking)
    compared, private = comparables(found, metric), is_private(sweep.record["grid"])
    sections = [_points(compared, private)]
    if compared:
        sections += [_tradeoff(compared)] if private else []
        sections.append(Section("measures", "All measurements", {"sheets": table(found, metric).sheets}))
    made = {"command": command(sweep.record), "lines": about(sweep), "failures": list(sweep.failures.items())}
    sections.append(Section("made", "How was this made, and how to make it again?", made))
    name = sweep.folder.resolve().name
    head: dict[str, Any] = {"kind": "sweep", "name": name, "lead": LEAD, "answers": _answers(compared, sweep)}
    head["few"] = of_few(summary for result in found for summary in result.summaries())
    fields = " × ".join(sweep.record["grid"]) or "one point"
    return page(f"Sweep over {fields}", head, sections)


def usable(compared: Sequence[Comparable]) -> str:
    """Say from which guaranteed epsilon on learning helped in every run of a point."""
    worth = [result.epsilon("guaranteed") for group in compared for result in group.usable]
    if not worth:
        return "There is no usable point: nowhere did learning help in every run."
    if math.isinf(min(worth)):
        return "There is no usable point with a guarantee: learning helped only where nothing is guaranteed."
    return f"The smallest guaranteed epsilon at which learning helped in every run is {short(min(worth))}."


def _answers(compared: Sequence[Comparable], sweep: FinishedSweep) -> list[Answer]:
    points = [result for group in compared for result in group.results]
    good = sum(result.usable for result in points)
    tone = BAD if not good else GOOD if good == len(points) else NEUTRAL
    why = f"Points at which it helped in the run of every seed{judged_by(compared)}, each beside its own references."
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


def _points(compared: Sequence[Comparable], private: bool) -> Section:
    shown = []
    for group in compared:
        axis, best = Axis.over([*group.ends(group.results), *group.references().values()], most=4), group.best_reference
        shown.append(
            {
                "title": group.title,
                "metric": group.metric,
                "ranking": group.ranking,
                "judged": " or ".join(group.judged),
                "axis": axis,
                "rows": [_row(group, result, axis) for result in group.results],
                "best": best,
                "best_at": None if best is None else axis.place(best[1]),
                "levels": group.references(),
            }
        )
    kinds = list(EPSILONS) if private else []
    return Section("points", "Where does learning help?", {"groups": shown, "kinds": kinds})


def _row(group: Comparable, result: PointResult, axis: Axis) -> dict[str, Any]:
    """Return one point of the grid: its utility over seeds, and in how many of its runs learning helped."""
    worth, name = group.worth(result), result.point.title()
    low, high = (None, None) if math.isnan(worth.sd) else (worth.mean - worth.sd, worth.mean + worth.sd)
    return {
        "name": name,
        "seeds": len(result.entries),
        "failed": result.failed,
        "utility": str(worth),
        "strip": axis.strip(worth.mean, low, high, f"{name}: {group.metric} {worth}"),
        "helped": result.helped,
        "usable": result.usable,
        "best": best_beside(result, group),
        "epsilons": [_epsilon(result.epsilon(kind)) for kind in EPSILONS],
    }


def _epsilon(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else short(value)


def _tradeoff(compared: Sequence[Comparable]) -> Section:
    """Show utility against each kind of epsilon, a figure each: kinds are never mixed."""
    charts = {kind: [c for group in compared if (c := _chart(group, kind)) is not None] for kind in EPSILONS}
    values = {
        "said": usable(compared),
        "charts": charts.pop("guaranteed"),
        "others": [chart for found in charts.values() for chart in found],
        "page": tradeoff(compared, drawn=False),
    }
    return Section("tradeoff", "What does privacy cost?", values)


def _chart(group: Comparable, kind: str) -> Chart | None:
    """Return utility against one kind of epsilon; None where it is finite for no run."""
    known = group.known(kind)
    if not any(math.isfinite(result.epsilon(kind)) for result in known):
        return None
    scale = Scale.of([result.epsilon(kind) for result in known])
    x = Axis(*scale.limits, tuple((place, label.replace("inf", "∞")) for place, label in scale.ticks.items()), log=True)
    references = [(name, value, False) for name, value in group.references().items()]
    y = Axis.over([*group.ends(known), *(value for _, value, _ in references)])
    lines = []
    for color, (name, own) in enumerate(curves(known).items()):
        points = [_drawn_point(group, kind, scale, result) for result in sorted(own, key=lambda r: r.epsilon(kind))]
        lines.append(line(name, color, points, x, y))
    utility = ranked(group.metric, group.ranking)
    said = f"{group.title}: {utility} of test items against the {kind} epsilon, with the deviation over seeds"
    across = f"epsilon, {kind}" + ("" if kind == "guaranteed" else ", which is no guarantee")
    return Chart(said, across, utility, x, y, tuple(lines), levels(references, y))


def _drawn_point(group: Comparable, kind: str, scale: Scale, result: PointResult) -> Point:
    epsilon, worth = result.epsilon(kind), group.worth(result)
    said = f"{result.point.title()}: {kind} epsilon {_epsilon(epsilon)}, {group.metric} {worth}"
    return Point(scale.place(epsilon), worth.mean, said, worth.sd)


def command(record: Mapping[str, Any]) -> str:
    """Return the command of a sweep, as far as its record keeps it.

    >>> command({"experiment": None, "set": ["rounds=3"], "grid": {"lr": ["1", "2"]}, "seeds": [4, 5], "search": None})
    "edgefr sweep --set rounds=3 --grid 'lr=[1,2]' --seed 4 --seeds 2"
    """
    words = ["edgefr", "sweep"]
    words += [] if record["experiment"] is None else ["--experiment", record["experiment"]]
    words += [word for change in record["set"] for word in ("--set", change)]
    words += [word for field, values in record["grid"].items() for word in ("--grid", f"{field}=[{','.join(values)}]")]
    search = record["search"]
    if search is not None:
        words += ["--search", str(search["trials"])]
        for field, (scale, low, high) in search["space"].items():
            words += ["--search-space", f"{field}={scale}({low:g},{high:g})"]
    seeds = record["seeds"]
    words += [] if seeds[0] == 0 else ["--seed", str(seeds[0])]
    return shlex.join([*words, "--seeds", str(len(seeds))])
