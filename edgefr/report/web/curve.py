"""This section draws validation metrics over the rounds, beside every stage and reference on the same items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgefr.report.verdict import FULL, every_verdict, ranked, ranking_of
from edgefr.report.web.chart import Axis, Chart, Point, levels, line
from edgefr.report.web.facts import Facts, metrics_of
from edgefr.report.web.section import Section, chart, folded, text

Row = dict[str, Any]
BLOCKS = " Every block starts from the model of the one before and is measured on its own validation items."


def points_of(facts: Facts) -> list[Row]:
    """Return the measurements on validation items after rounds; none where round 0 alone was measured."""
    rows = [row for row in metrics_of(facts.rows, group="all", which="valid") if row["round"] is not None]
    return rows if any(row["round"] for row in rows) else []


def metric_of(facts: Facts, rows: Sequence[Row]) -> str:
    """Return the metric of the verdict, or the first NDCG that was measured."""
    names, found = list(dict.fromkeys(row["metric"] for row in rows)), every_verdict(facts.summary)
    if found and found[0].metric in names:
        return found[0].metric
    return next((name for name in names if name.startswith("NDCG")), names[0])


def charts(facts: Facts) -> list[Chart]:
    """Return a chart per metric, and per place where these are no blocks, the verdict's metric first.

    Recall is a hit ratio where one item is held out, and is left out.
    """
    rows = points_of(facts)
    if not rows:
        return []
    names = [n for n in dict.fromkeys(row["metric"] for row in rows) if not n.startswith("Recall")]
    names.sort(key=metric_of(facts, rows).__ne__)
    places = [{}] if "continual" in facts.summary else [{"on": on} for on in dict.fromkeys(row["on"] for row in rows)]
    found = [metrics_of(rows, metric=name, **place) for name in names for place in places]
    return [_chart(facts, points) for points in found if points]


def section(facts: Facts) -> Section | None:
    """Return the section; None where no round was measured."""
    found = charts(facts)
    if not found:
        return None
    first, *others = found
    rows = points_of(facts)
    unit = "round" if facts.federated else "epoch"
    kept = _kept(facts, metrics_of(rows, metric=metric_of(facts, rows)), unit)
    kept += BLOCKS if "continual" in facts.summary else ""
    fold = folded(f"Other metrics and items ({len(others)})", map(chart, others)) if others else None
    return Section.of("curve", "Learning curves", [chart(first), text(kept, "note"), fold])


def _kept(facts: Facts, points: Sequence[Row], unit: str) -> str:
    """Say which round's model is tested, and whether an earlier one was clearly better on validation items.

    Clearly is by more than two standard errors of a mean over as many users. These are at most those of a coin, since
    a user's value is between 0 and 1.
    """
    s = facts.summary
    if "central" in s or "best_round" in s["blocks"][0]:
        said = f"Validation items decide which {unit} is kept; the verdict uses separate test items."
        return said if "central" in s else f"{said} This choice has no noise and no part in epsilon."
    said = f"The last {unit} is kept; the verdict uses separate test items."
    last = points[-1]
    best = max(metrics_of(points, on=last["on"], stage=last["stage"]), key=lambda row: float(row["value"]))
    error = math.sqrt(best["value"] * (1 - best["value"]) / best["users"])
    if best["value"] - last["value"] <= 2 * error:
        return said
    more = f"{best['value']:.4f} after {unit} {best['round']}, {last['value']:.4f} after {unit} {last['round']}"
    better = f"An earlier {unit} was clearly better on validation items ({last['metric']} {more})"
    return f"{said} {better}: --set evaluation.keep=best keeps the best."


def _chart(facts: Facts, points: Sequence[Row]) -> Chart:
    """Return the chart of one metric: a line per stage (in blocks one after another), levels, ends of blocks."""
    like, metric = points[0], points[0]["metric"]
    unit, blocks = "round" if facts.federated else "epoch", "continual" in facts.summary
    starts = _starts(points) if blocks else {}
    placed = [(float(starts.get(row["after"], 0) + row["round"]), row) for row in points]
    final = [] if blocks else _final(facts, like)
    x = Axis.over([at for at, _ in placed], whole=True, tight=True)
    y = Axis.over([*(row["value"] for _, row in placed), *(value for _, value, _ in final)])
    groups: dict[str, list[Point]] = {}
    for at, row in placed:
        name = row["after"] if blocks else row["stage"]
        said = f"{name}, {unit} {row['round']}: {metric} {row['value']:.4f}"
        groups.setdefault(name, []).append(Point(at, row["value"], said))
    lines = tuple(line(name, 0, own, x, y) for name, own in groups.items())
    rules = tuple((own[-1].x, name) for name, own in groups.items()) if blocks else ()
    where = "" if like["on"] == "main" or blocks else f" on {like['on']}"
    ranking = FULL if like["ranking"] == "full" else ranking_of(facts.summary)
    about = f"{metric} on validation items{where} ({ranking}) after each {unit} that was measured"
    return Chart(about, unit, ranked(metric, ranking), x, y, lines, levels(final, y), rules)


def _starts(points: Sequence[Row]) -> dict[str, int]:
    """Return after how many rounds of all blocks each block begins, by name."""
    starts, total = dict[str, int](), 0
    for name in dict.fromkeys(row["after"] for row in points):
        starts[name] = total
        total += max(row["round"] for row in metrics_of(points, after=name))
    return starts


def _final(facts: Facts, like: Row) -> list[tuple[str, float, bool]]:
    """Return the final stages and references, (name, value, learned), asked in the same way as the curve."""
    same = {key: like[key] for key in ("on", "which", "ranking", "group", "metric")}
    learned = {like["stage"], *(one.stage for one in every_verdict(facts.summary))}
    values = {row["stage"]: row["value"] for row in metrics_of(facts.rows, round=None, **same)}
    return [(name, value, name in learned) for name, value in values.items()]
