"""This section shows what the model is worth to the users of each device class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgefr.report.fairness import fairness_table
from edgefr.report.small_groups import FEW, FEWEST, WHY
from edgefr.report.verdict import ranked, ranking_of
from edgefr.report.web.chart import Axis, Strip
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import Section


@dataclass(frozen=True)
class Row:
    """This is one class: its tested users, their mean with its standard error, and how often they took part."""

    name: str
    label: str
    users: str
    said: str
    strip: Strip | None
    participation: str


def section(facts: Facts) -> Section | None:
    """Return the section; None where users were not tested by class."""
    fleet = facts.summary["fleet"]
    metrics = [name for name in fleet.get("fairness", {}) if not name.startswith("Recall")]
    if not metrics:
        return None
    metric = next((name for name in metrics if name.startswith("NDCG")), metrics[0])
    how = ranking_of(facts.summary)
    overall, cells = fleet["fairness"][metric], {n: row["metrics"].get(metric) for n, row in fleet["classes"].items()}
    axis = Axis.over([0.0, *(end for cell in cells.values() if cell for end in _ends(cell))], most=4)
    rows = [_row(name, row, cells[name], axis) for name, row in fleet["classes"].items()]
    values = {
        "metric": ranked(metric, how),
        "axis": axis,
        "mean": overall["mean"],
        "mean_at": axis.place(overall["mean"]),
        "rows": rows,
        "sentence": _sentence(ranked(metric, how), overall, fleet["classes"]),
        "also": _also(overall),
        "sheet": fairness_table(fleet, how),
        "why": WHY if any(row.get("few") for row in fleet["classes"].values()) else None,
    }
    return Section("fairness", "Is it fair to every device class?", values)


def _ends(cell: dict[str, Any]) -> tuple[float, float]:
    error = cell["standard_error"] or 0.0
    return cell["mean"] - error, cell["mean"] + error


def _row(name: str, row: dict[str, Any], cell: dict[str, Any] | None, axis: Axis) -> Row:
    share = "–" if row.get("participation") is None else f"{row['participation']:.0%}"
    if cell is None:
        return Row(name, row["label"], FEW if row.get("few") else "0", "–", None, share)
    low, high = (None, None) if cell["standard_error"] is None else _ends(cell)
    error = "" if cell["standard_error"] is None else f" ± {cell['standard_error']:.4f}"
    said = f"{cell['mean']:.4f}{error}"
    strip = axis.strip(cell["mean"], low, high, f"{row['label']}: {said}, {cell['users']:,} users")
    return Row(name, row["label"], f"{cell['users']:,}", said, strip, share)


def _sentence(metric: str, overall: dict[str, Any], classes: dict[str, Any]) -> str:
    """Say how far the classes are apart, and whether that is more than chance."""
    if overall["worst"] is None:
        return f"No class has {FEWEST} tested users, so none is called the best or the worst."
    worst, best = overall["worst"], overall["best"]
    apart = (
        f"{metric} is {best['mean']:.4f} on the best class, {classes[best['class']]['label']}, and "
        f"{worst['mean']:.4f} on the worst, {classes[worst['class']]['label']}."
    )
    p = overall["p_equal"]
    if p is None:
        return apart
    if p < 0.05:
        return f"{apart} So much would rarely be chance (one-way ANOVA over classes that are told of, p = {p:.2g})."
    return f"{apart} So much may well be chance (one-way ANOVA over classes that are told of, p = {p:.2g})."


def _also(overall: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the model is worth to those who took part and to those who never did."""
    names = {"took_part": "users who took part", "never_took_part": "users who never took part"}
    groups = [(words, overall.get(key)) for key, words in names.items()]
    out = [(words, f"{cell['mean']:.4f} ({cell['users']:,})") for words, cell in groups if cell]
    along = overall.get("participation_correlation")
    return out if along is None else [*out, ("rank correlation with rounds contributed", f"{along:+.2f}")]
