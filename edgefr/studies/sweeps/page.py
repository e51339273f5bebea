"""A sweep has one web page: every point beside what needs no learning, and utility against each kind of epsilon."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.report.pages import Spread
from edgefr.report.small_groups import of_few
from edgefr.report.tables import count
from edgefr.report.verdict import ranked
from edgefr.report.web.answers import BAD, GOOD, NEUTRAL, Answer
from edgefr.report.web.chart import Axis, Chart, Line, Point, Strip, levels, line, short
from edgefr.report.web.page import page
from edgefr.report.web.section import Section
from edgefr.studies.sweeps.finished_sweep import Kept
from edgefr.studies.sweeps.report import about, best_beside, is_private, judged_by, table, tradeoff
from edgefr.studies.sweeps.results import EPSILONS, Result, results
from edgefr.studies.sweeps.tradeoff import Group, Scale, curve_of, groups
from privacy.files import write_atomic

LEAD = "One experiment at many settings: where does learning on people's own devices help, and what does privacy cost?"


@dataclass(frozen=True)
class Row:
    """This is one point of the grid: its utility over seeds, and in how many of its runs learning helped."""

    name: str
    seeds: int
    failed: int
    utility: str
    strip: Strip | None
    helped: int
    usable: bool
    best: str
    epsilons: tuple[str, ...]


def write_sweep(folder: Path, out: Path | None = None, metric: str | None = None) -> Path:
    """Write the page of a sweep that ended. Raises `InputError` for a folder that holds none.

    `metric`: the test metric that is utility (none: the first NDCG).
    """
    return write_atomic(out or folder / "report.html", sweep_page(Kept.read(folder), metric))


def sweep_page(kept: Kept, metric: str | None = None) -> str:
    """Return the page of a sweep."""
    found = results(kept.speaking)
    compared, private = groups(found, metric), is_private(kept.record["grid"])
    sections = [
        _points(compared, private),
        *([_tradeoff(compared)] if private and compared else []),
        *([Section("measures", "All measurements", {"sheets": table(found, metric).sheets})] if compared else []),
        _made(kept),
    ]
    name = kept.folder.resolve().name
    head: dict[str, Any] = {"kind": "sweep", "name": name, "lead": LEAD, "answers": _answers(compared, kept)}
    head["few"] = of_few(summary for result in found for summary in result.summaries())
    fields = " × ".join(kept.record["grid"]) or "one point"
    return page(f"Sweep over {fields}", head, sections)


def usable(compared: Sequence[Group]) -> str:
    """Say from which guaranteed epsilon on learning helped in every run of a point."""
    worth = [result.epsilon("guaranteed") for group in compared for result in group.usable]
    if not worth:
        return "There is no usable point: nowhere did learning help in every run."
    if math.isinf(min(worth)):
        return "There is no usable point with a guarantee: learning helped only where nothing is guaranteed."
    return f"The smallest guaranteed epsilon at which learning helped in every run is {short(min(worth))}."


def _answers(compared: Sequence[Group], kept: Kept) -> list[Answer]:
    rows = [result for group in compared for result in group.results]
    good = sum(result.usable for result in rows)
    tone = BAD if not good else GOOD if good == len(rows) else NEUTRAL
    why = f"Points at which it helped in the run of every seed{judged_by(compared)}, each beside its own references."
    out = [Answer("Does learning help?", f"At {good} of {count(len(rows), 'point')}", why, tone)]
    if is_private(kept.record["grid"]):
        said = usable(compared)
        none = said.startswith("There is no")
        out.append(
            Answer("At which privacy?", "No usable point" if none else "See epsilon", said, BAD if none else GOOD)
        )
    failed = sum(entry.problem is not None for entry in kept.entries)
    work = f"{count(len(kept.entries), 'run')} with seeds {', '.join(map(str, kept.record['seeds']))}"
    broken = f"{count(failed, 'run')} failed" if failed else "None failed"
    return [*out, Answer("What was run?", work, f"{broken}.", BAD if failed else NEUTRAL)]


def _points(compared: Sequence[Group], private: bool) -> Section:
    """Return every point beside the best that needs no learning."""
    shown = []
    for group in compared:
        worth = [group.worth(result) for result in group.results]
        ends = [value.mean + sign * _sd(value) for value in worth for sign in (-1, 1)]
        axis = Axis.over([*ends, *group.references().values()], most=4)
        rows = [_row(group, result, axis) for result in group.results]
        best = group.best_reference
        shown.append(
            {
                "title": group.title,
                "metric": group.metric,
                "ranking": group.ranking,
                "judged": " or ".join(group.judged),
                "axis": axis,
                "rows": rows,
                "best": best,
                "best_at": None if best is None else axis.place(best[1]),
                "levels": group.references(),
            }
        )
    kinds = list(EPSILONS) if private else []
    return Section("points", "Where does learning help?", {"groups": shown, "kinds": kinds})


def _row(group: Group, result: Result, axis: Axis) -> Row:
    worth, name = group.worth(result), result.point.title()
    sd = None if math.isnan(worth.sd) else worth.sd
    low, high = (None, None) if sd is None else (worth.mean - sd, worth.mean + sd)
    return Row(
        name,
        len(result.entries),
        result.failed,
        str(worth),
        axis.strip(worth.mean, low, high, f"{name}: {group.metric} {worth}"),
        result.helped,
        result.usable,
        best_beside(result, group),
        tuple(_epsilon(result.epsilon(kind)) for kind in EPSILONS),
    )


def _epsilon(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else short(value)


def _sd(worth: Spread) -> float:
    return 0.0 if math.isnan(worth.sd) else worth.sd


def _tradeoff(compared: Sequence[Group]) -> Section:
    """Return utility against each kind of epsilon, a figure each: kinds are never mixed."""
    charts = {kind: [c for group in compared if (c := _chart(group, kind)) is not None] for kind in EPSILONS}
    values = {
        "said": usable(compared),
        "charts": charts.pop("guaranteed"),
        "others": [chart for found in charts.values() for chart in found],
        "page": tradeoff(compared, drawn=False),
    }
    return Section("tradeoff", "What does privacy cost?", values)


def _chart(group: Group, kind: str) -> Chart | None:
    """Return utility against one kind of epsilon; None where it is finite for no run."""
    known = [result for result in group.results if not math.isnan(result.epsilon(kind))]
    if not any(math.isfinite(result.epsilon(kind)) for result in known):
        return None
    scale = Scale.of([result.epsilon(kind) for result in known])
    x = Axis(*scale.limits, tuple((place, label.replace("inf", "∞")) for place, label in scale.ticks.items()), log=True)
    worth = [group.worth(result) for result in known]
    references = [(name, value, False) for name, value in group.references().items()]
    ends = [value.mean + sign * _sd(value) for value in worth for sign in (-1, 1)]
    y = Axis.over([*ends, *(value for _, value, _ in references)])
    curves: dict[str, list[Result]] = {}
    for result in known:
        curves.setdefault(curve_of(result), []).append(result)
    lines = [_line(group, kind, (name, place), own, (x, y)) for place, (name, own) in enumerate(curves.items())]
    utility = ranked(group.metric, group.ranking)
    about = f"{group.title}: {utility} of test items against the {kind} epsilon, with the deviation over seeds"
    across = f"epsilon, {kind}" + ("" if kind == "guaranteed" else ", which is no guarantee")
    return Chart(about, across, utility, x, y, tuple(lines), levels(references, y))


def _line(group: Group, kind: str, named: tuple[str, int], own: Sequence[Result], axes: tuple[Axis, Axis]) -> Line:
    (name, color), (x, y) = named, axes
    points = []
    scale = Scale.of([r.epsilon(kind) for r in group.results if not math.isnan(r.epsilon(kind))])
    for result in sorted(own, key=lambda one: one.epsilon(kind)):
        epsilon, worth = result.epsilon(kind), group.worth(result)
        said = f"{result.point.title()}: {kind} epsilon {_epsilon(epsilon)}, {group.metric} {worth}"
        points.append(Point(scale.place(epsilon), worth.mean, said, worth.sd))
    return line(name, color, points, x, y)


def _made(kept: Kept) -> Section:
    """Return the command, how the numbers were made, and what failed."""
    record = kept.record
    failures = [(str(entry.path), entry.problem) for entry in kept.entries if entry.problem is not None]
    values = {"command": command(record), "lines": about(record, kept.entries), "failures": failures}
    return Section("made", "How was this made, and how to make it again?", values)


def command(record: dict[str, Any]) -> str:
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
