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
BLOCKS = " Every block starts from what the one before left; its own validation items are asked for."


def section(facts: Facts) -> Section | None:
    """Return the section; None where no round was measured."""
    rows = [row for row in metrics_of(facts.rows, group="all", which="valid") if row["round"] is not None]
    if not any(row["round"] for row in rows):  # round 0 alone is no curve
        return None
    places = list(dict.fromkeys(row["on"] for row in rows))
    blocks = "continual" in facts.summary
    charts = _charts(facts, rows) if blocks else [c for on in places for c in _charts(facts, metrics_of(rows, on=on))]
    wanted = _main(facts, rows)
    first = next((one for one in charts if one.y_title.startswith(f"{wanted} (")), charts[0])
    others = [one for one in charts if one is not first]
    unit = "round" if facts.federated else "epoch"
    kept = _kept(facts, metrics_of(rows, metric=wanted), unit)
    kept += BLOCKS if blocks else ""
    fold = folded(f"Other metrics and items ({len(others)})", map(chart, others)) if others else None
    return Section.of("curve", "How does it learn?", [chart(first), text(kept, "note"), fold])


def _kept(facts: Facts, points: Sequence[Row], unit: str) -> str:
    """Say which round's model is tested, and whether an earlier one was clearly better on validation items.

    Clearly is by more than two standard errors of a mean over as many users. These are at most those of a coin, since
    a user's value is between 0 and 1.
    """
    s = facts.summary
    if "central" in s or "best_round" in s["blocks"][0]:
        return f"Validation items decide which {unit} is kept; test items, of which the verdict speaks, are others."
    said = f"The last {unit} is kept; test items, of which the verdict speaks, are others than these."
    last = points[-1]
    best = max(metrics_of(points, on=last["on"], stage=last["stage"]), key=lambda row: float(row["value"]))
    error = math.sqrt(best["value"] * (1 - best["value"]) / best["users"])
    if best["value"] - last["value"] <= 2 * error:
        return said
    more = f"{best['value']:.4f} after {unit} {best['round']}, {last['value']:.4f} after {unit} {last['round']}"
    better = f"An earlier {unit} was clearly better on validation items ({last['metric']} {more})"
    return f"{said} {better}: --set evaluation.keep=best keeps the best."


def _ranking(facts: Facts, row: Row) -> str:
    """Return how a point of the curve was ranked."""
    return FULL if row["ranking"] == "full" else ranking_of(facts.summary)


def _main(facts: Facts, rows: Sequence[Row]) -> str:
    """Return the metric of the verdict, or the first NDCG that was measured."""
    found = every_verdict(facts.summary)
    names = list(dict.fromkeys(row["metric"] for row in rows))
    if found and found[0].metric in names:
        return found[0].metric
    return next((name for name in names if name.startswith("NDCG")), names[0])


def _charts(facts: Facts, rows: Sequence[Row]) -> list[Chart]:
    """Return a chart per metric; Recall is a hit ratio where one item is held out, and is left out."""
    names = [n for n in dict.fromkeys(row["metric"] for row in rows) if not n.startswith("Recall")]
    return [_chart(facts, metrics_of(rows, metric=name), name) for name in names]


def _chart(facts: Facts, points: Sequence[Row], metric: str) -> Chart:
    """Return the chart of one metric: a line per stage (in blocks one after another), levels, ends of blocks."""
    unit = "round" if facts.federated else "epoch"
    blocks = "continual" in facts.summary
    placed, rules = _in_a_row(points) if blocks else ([(float(row["round"]), row) for row in points], [])
    final = [] if blocks else _final(facts, points[0], metric)
    x = Axis.over([at for at, _ in placed], whole=True, tight=True)
    y = Axis.over([*(row["value"] for _, row in placed), *(value for _, value, _ in final)])
    groups: dict[str, list[Point]] = {}
    for at, row in placed:
        name = row["after"] if blocks else row["stage"]
        groups.setdefault(name, []).append(Point(at, row["value"], _said(name, unit, row, metric)))
    lines = [line(name, 0, own, x, y) for name, own in groups.items()]
    where = "" if points[0]["on"] == "main" or blocks else f" on {points[0]['on']}"
    ranking = _ranking(facts, points[0])
    about = f"{metric} on validation items{where} ({ranking}) after each {unit} that was measured"
    return Chart(about, unit, ranked(metric, ranking), x, y, tuple(lines), levels(final, y), tuple(rules))


def _said(name: str, unit: str, row: Row, metric: str) -> str:
    return f"{name}, {unit} {row['round']}: {metric} {row['value']:.4f}"


def _final(facts: Facts, like: Row, metric: str) -> list[tuple[str, float, bool]]:
    """Return the final stages and references, (name, value, learned), asked in the same way as the curve."""
    same = {key: like[key] for key in ("on", "which", "ranking", "group")}
    found = metrics_of(facts.rows, round=None, metric=metric, **same)
    learned = {like["stage"], *(one.stage for one in every_verdict(facts.summary))}
    values = {row["stage"]: row["value"] for row in found}
    return [(name, value, name in learned) for name, value in values.items()]


def _in_a_row(points: Sequence[Row]) -> tuple[list[tuple[float, Row]], list[tuple[float, str]]]:
    """Return the points of blocks one block after another, and where each ends: (number of rounds, name)."""
    ends = {name: max(row["round"] for row in metrics_of(points, after=name)) for name in _names(points)}
    starts, total = {}, 0
    rules = []
    for name, rounds in ends.items():
        starts[name] = total
        total += rounds
        rules.append((float(total), name))
    return [(float(starts[row["after"]] + row["round"]), row) for row in points], rules


def _names(points: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["after"] for row in points))
