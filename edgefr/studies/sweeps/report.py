"""A sweep has tables: a line per run, a line per point, and utility beside each kind of epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgefr.config.sheet import Sheet
from edgefr.metrics.cutoffs import main_first
from edgefr.report.attack import attack_metrics
from edgefr.report.figures import drawn as draw
from edgefr.report.over_seeds import versions
from edgefr.report.pages import Page, Record, Spread, number
from edgefr.report.verdict import ranked, ranking_of
from edgefr.studies.sweeps.grid import shown
from edgefr.studies.sweeps.results import (
    EPSILONS,
    SETTINGS,
    FinishedSweep,
    PointResult,
    SweepRun,
    epsilon_of,
    level_of,
    main_metric,
    mean_references,
    references,
    validation,
)
from edgefr.studies.sweeps.tradeoff import NOTHING, Comparable, charts, comparables

HELPED, BEST = "helped\nin runs", "best without\nlearning"
RULE = "a point is usable if learning helped with every seed"
CHOICE = "of points that differ in settings alone, the best on validation items is chosen, and only that one is tested"
KINDS = (
    "the kinds of epsilon are never compared with each other: nominal is the papers' formula for one round and no "
    "guarantee; guaranteed composes all rounds of the client that took part most; hypothetical is what the same noise "
    "would have guaranteed, had updates been clipped at the run's 90th percentile",
    "an epsilon is the largest over the seeds; inf means that nothing is guaranteed",
    "on the Pareto front is a usable point that no other has beaten, with at most its epsilon and at least its mean "
    "utility; a difference within the standard deviations does not count",
)


def is_private(fields: Iterable[str]) -> bool:
    """Say whether a sweep over these fields is about privacy: one of them is."""
    return any(field.split(".")[0] == "privacy" for field in fields)


def about(sweep: FinishedSweep) -> list[str]:
    """Say how the numbers were made: seeds, search, protocols, failures, versions."""
    record, search = sweep.record, sweep.record["search"]
    lines = [f"seeds {', '.join(map(str, record['seeds']))}; ± is the standard deviation over them (n - 1)"]
    if search is not None:
        ranges = search["space"].items()
        space = ", ".join(f"{field} {scale}({low:g}, {high:g})" for field, (scale, low, high) in ranges)
        metrics = ", ".join(dict.fromkeys(search["objectives"].values())) or "NDCG@10 (full ranking)"
        lines.append(
            f"searched per point: {search['trials']} trials over {space}, by {metrics} on validation items with seed "
            f"{search.get('seed', record['seeds'][0])}; the best trial stands for its point and is run with every seed"
        )
        lines.append("no epsilon here covers what the choice of settings tells about the data")
    summaries = [run.summary for run in sweep.entries if run.summary is not None]
    if any(not one.chosen for one in sweep.results):
        lines.append(f"{CHOICE}; settings are {', '.join(SETTINGS)}")
    lines += dict.fromkeys(f"protocol, {s['data']}: {s['protocol']}" for s in summaries)
    lines += [f"failed: {path}: {problem}" for path, problem in sweep.failures.items()]
    made_with = summaries[0]["versions"] if summaries else versions()
    return [*lines, f"versions: {', '.join(f'{name} {version}' for name, version in made_with.items())}"]


def table(found: Sequence[PointResult], metric: str | None = None, objectives: Mapping[str, str] | None = None) -> Page:
    """Show every point: its fields, what a search chose, validation items; of chosen ones tests and references too."""
    compared, objectives = comparables(found, metric), objectives or {}
    of = {id(result): group for group in compared for result in group.results}
    metrics = main_first(dict.fromkeys(name for result in found for s in result.summaries() for name in s["metrics"]))
    rankings = {group.ranking for group in compared}
    utilities = list(dict.fromkeys(group.metric for group in compared))
    how = f"\n{compared[0].ranking}" if len(rankings) == 1 else "\nits own ranking" if rankings else ""
    best = f"{BEST}\n{utilities[0] if len(utilities) == 1 else 'its metric'}{how}"
    by, passed = _validated_by(found, objectives), any(not one.chosen for one in found)
    rows = []
    for result in found:
        row = _point_columns(result, found) | _level(result, found)
        row |= {"chosen": "yes" if result.chosen else ""} if passed else {}
        row |= {"seeds": str(len(result.entries))}
        row |= {"failed": str(result.failed)} if any(one.failed for one in found) else {}
        row |= {by: str(result.validated(objectives.get(result.point.name)))} if of else {}
        tested = {name + how: str(Spread.of(result.metric(name))) for name in _apart(metrics, found)}
        tested |= {HELPED: str(result.helped)} | {best: best_beside(result, of.get(id(result)))} if of else {}
        rows.append(row | (tested if result.chosen else dict.fromkeys(tested, "")))
    caption = "Mean ± standard deviation over seeds, on test items except in the validation column"
    caption += f"; {CHOICE}" if passed else ""
    if of:
        caption = f"{caption}; {RULE}{judged_by(compared)}; each compared with the best baseline"
    sheet = Sheet(
        "Points of the grid", rows, _words(found), caption, bold=[at for at, r in enumerate(rows) if r.get("chosen")]
    )
    return Page("sweep", "Sweep", [sheet], [point_record(result, metrics) for result in found])


def _validated_by(found: Sequence[PointResult], objectives: Mapping[str, str]) -> str:
    """Name the column of validation items: the metric that points are chosen by, and how items were ranked."""
    some = [(objectives.get(one.point.name), s) for one in found for s in one.summaries()]
    names = dict.fromkeys(name or main_metric(list(s["metrics"])) for name, s in some)
    ranked_as = dict.fromkeys(s.get("validated") or ranking_of(s) for _, s in some)
    parts = [
        next(iter(own)) if len(own) == 1 else mixed
        for own, mixed in ((names, "own metric"), (ranked_as, "own ranking"))
    ]
    return "\n".join(["validation", *parts])


def judged_by(compared: Sequence[Comparable]) -> str:
    """Say in which metric and ranking verdicts are given; nothing where no run has one."""
    judged = list(dict.fromkeys(how for group in compared for how in group.judged))
    return f", by {' or '.join(judged)}" if judged else ""


def best_beside(result: PointResult, group: Comparable | None) -> str:
    """Write the best that needs no learning, in the metric that is utility, and what it is."""
    best = None if group is None else result.best_reference(group.metric)
    return "-" if best is None else f"{best[1]:.4f} {best[0]}"


def _apart(metrics: Sequence[str], found: Sequence[PointResult]) -> list[str]:
    """Leave out Recalls that are nothing but hit ratios, since one item per user is held out."""
    return [
        name
        for name in metrics
        if not name.startswith("Recall") or any(r.metric(name) != r.metric(f"HR{name[6:]}") for r in found)
    ]


def answers(compared: Sequence[Comparable]) -> list[dict[str, Any]]:
    """Return what each group of comparable points comes to, as values of JSON: which points are usable, if any."""
    return [
        {
            "title": group.title,
            "metric": group.metric,
            "ranking": group.ranking,
            "answer": f"{len(group.usable)} of {len(group.results)} points" if group.usable else NOTHING,
            "references": group.references(),
            "usable": [result.point.title() for result in group.usable],
            "front": {kind: [result.point.title() for result in group.front(kind)] for kind in EPSILONS},
        }
        for group in compared
    ]


def tradeoff(compared: Sequence[Comparable], drawn: bool = True) -> Page:
    """Show utility against each kind of epsilon, and who is on the Pareto front of each. `drawn`: also as a figure."""
    sheets, records = [], []
    for group in compared:
        fronts = {kind: [id(result) for result in group.front(kind)] for kind in EPSILONS}
        rows = []
        for result in group.results:
            on, first = {kind: id(result) in front for kind, front in fronts.items()}, result.summaries()[0]
            row = _point_columns(result, group.results)
            row |= {f"eps\n{kind}": number(result.epsilon(kind), ".4g") + " *" * on[kind] for kind in EPSILONS}
            row |= {f"{group.metric}\n{group.ranking}": str(group.worth(result))}
            rows.append(row | {BEST: best_beside(result, group), "usable": "yes" if result.usable else "no"})
            record = point_record(result, list(first["metrics"]))
            record |= {"utility": group.metric, "ranking": group.ranking, "data": first["data"]}
            records.append(record | {f"front_{kind}": there for kind, there in on.items()})
        levels = ", ".join(f"{name} {value:.4f}" for name, value in group.references().items())
        caption = f"* on the Pareto front; {ranked(group.metric, group.ranking)} of the baselines: {levels}"
        sheets.append(Sheet(group.title, rows, _words(group.results), caption))
    fronts_in_words = [_front_note(group, kind) for group in compared for kind in EPSILONS]
    notes = [*KINDS, f"{RULE}{judged_by(compared)}", *fronts_in_words]
    found = [chart for group in compared for chart in charts(group)] if drawn else []
    figure = draw(found, len(EPSILONS)) if found else None
    return Page("tradeoff", "Privacy and utility", sheets, records, notes, figure, "figures")


def _front_note(group: Comparable, kind: str) -> str:
    found = [
        f"{result.point.title()} ({number(result.epsilon(kind), '.4g')}, {group.worth(result).mean:.4f})"
        for result in group.front(kind)
    ]
    nobody = "none: no run has it"
    if any(not math.isnan(result.epsilon(kind)) for result in group.results):
        nobody = f"{NOTHING}: learning did not help with every seed at any point"
        nobody = "none: no usable point has it" if group.usable else nobody
    return f"{group.title}, front by {kind} epsilon: {'; '.join(found) or nobody}"


def _point_columns(result: PointResult, beside: Sequence[PointResult]) -> dict[str, str]:
    chosen = list(dict.fromkeys(field for one in beside for entry in one.entries for field in entry.chosen))
    values = result.entries[0].chosen if result.entries else {}
    own = {_heading(field): shown(value) for field, value in result.point.values} or {"point": "all"}
    return own | {f"{_heading(field)}\nchosen": short_value(values.get(field)) for field in chosen}


def _level(result: PointResult, beside: Sequence[PointResult]) -> dict[str, str]:
    """Return a column that says the level of a point, where those beside it differ in theirs."""
    levels = [{level_of(summary) for summary in one.summaries()} for one in beside]
    own = next(map(level_of, result.summaries()), "-")
    return {"level": own} if len(set[str]().union(*levels)) > 1 else {}


def _heading(field: str) -> str:
    return field.replace(".", ".\n", 1)


def short_value(value: Any) -> str:
    """Write what a search chose for a cell."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else shown(value)


def _words(found: Sequence[PointResult]) -> list[str]:
    """Name the columns of words: those whose grid values are any."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    first = found[0].point.values
    words = [f for at, (f, _) in enumerate(first) if any(not is_number(r.point.values[at][1]) for r in found)]
    return [_heading(field) for field in words] or ["point"]


def point_record(result: PointResult, metrics: Sequence[str]) -> Record:
    """Return a point unrounded: its fields, what a search chose, metrics over seeds, and what needs no learning."""
    record: Record = {field: shown(value) for field, value in result.point.values}
    for entry in result.entries[:1]:
        record |= {f"chosen {field}": value for field, value in entry.chosen.items()}
    record |= {"seeds": len(result.entries), "failed": result.failed, "chosen": result.chosen}
    record |= {key: result.epsilon(kind) for kind, key in EPSILONS.items()}
    if result.entries:
        validated = result.validated()
        record |= {"validation": validated.mean, "validation sd": validated.sd}
    if not result.chosen:
        return record | {name: math.nan for name in metrics}
    record |= {"helped": result.helped, "usable": result.usable}
    for name in metrics:
        spread = Spread.of(result.metric(name))
        record |= {name: spread.mean, f"{name} sd": spread.sd}
    names = dict.fromkeys(name for summary in result.summaries() for name in references(summary))
    means = {metric: mean_references(result.summaries(), metric) for metric in metrics}
    return record | {f"{n} {m}": means[m].get(n, math.nan) for n in names for m in metrics}


def run_record(run: SweepRun, sweep: FinishedSweep) -> Record:
    """Return a run unrounded, or why there is none."""
    record: Record = {field: shown(value) for field, value in run.point.values}
    search = sweep.record["search"]
    if search is not None:
        record |= {"trial": run.number, "best": run in sweep.speaking}
    record |= {"seed": run.seed, "status": "failed" if run.summary is None else "done"}
    record |= run.chosen
    if run.summary is not None:
        metrics = run.summary["metrics"]
        by = sweep.objectives.get(run.point.name) or main_metric(list(metrics))
        tested = run.path in sweep.tested
        record |= {name: metrics[name] if tested else math.nan for name in main_first(metrics)}
        record |= {f"validation {by}": validation(run.summary, by)} | (attack_metrics(run.summary) if tested else {})
        record |= {key: epsilon_of(run.summary, kind) for kind, key in EPSILONS.items()}
        record["seconds"] = run.summary["engine"]["wall_seconds"]
    return record | {"folder": str(run.path), "problem": run.problem or ""}
