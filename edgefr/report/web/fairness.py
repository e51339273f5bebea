"""This section shows what the model is worth to the users of each device class."""

from __future__ import annotations

from typing import Any

from edgefr.report.fairness import fairness_table
from edgefr.report.small_groups import FEW, FEWEST, WHY
from edgefr.report.verdict import ranked, ranking_of
from edgefr.report.web.chart import Axis
from edgefr.report.web.facts import Facts
from edgefr.report.web.section import ROOMY, Drawn, ReportTable, Section, folded, sheet, text
from edgefr.report.web.section import facts as told


def section(facts: Facts) -> Section | None:
    """Return the section; None where users were not tested by class."""
    fleet, how = facts.summary["fleet"], ranking_of(facts.summary)
    metrics = [name for name in fleet.get("fairness", {}) if not name.startswith("Recall")]
    if not metrics:
        return None
    metric = next((name for name in metrics if name.startswith("NDCG")), metrics[0])
    overall, classes, all_metrics = fleet["fairness"][metric], fleet["classes"], fairness_table(fleet, how)
    cells = {name: row["metrics"].get(metric) for name, row in classes.items()}
    axis = Axis.over([0.0, *(end for cell in cells.values() if cell for end in _ends(cell))], most=4)
    mean = f"The dashed line is everybody's mean, {overall['mean']:.4f}."
    why = f" {WHY[0].upper()}{WHY[1:]}." if any(row.get("few") for row in classes.values()) else ""
    worth, at = ranked(metric, how), axis.place(overall["mean"])
    rows = [_row(row, cells[name], worth, axis, at) for name, row in classes.items()]
    table = ReportTable(f"{worth} by device class", rows, ["device class"], classes=list(classes), look=ROOMY)
    parts = [
        text(_sentence(worth, overall, classes)),
        table.part,
        text(mean + why, "note"),
        told(_also(overall)),
        folded("All metrics by device class", [sheet(all_metrics, "untitled")]) if all_metrics else None,
    ]
    return Section.of("fairness", "Fairness across device classes", parts)


def _ends(cell: dict[str, Any]) -> tuple[float, float]:
    error = cell["standard_error"] or 0.0
    return cell["mean"] - error, cell["mean"] + error


def _row(row: dict[str, Any], cell: dict[str, Any] | None, worth: str, axis: Axis, at: float) -> dict[str, Any]:
    """Return one class: its tested users, their mean with its standard error, and how often they took part."""
    users, said, strip = FEW if row.get("few") else "0", "–", None
    if cell is not None:
        error = cell["standard_error"]
        low, high = (None, None) if error is None else _ends(cell)
        users, said = f"{cell['users']:,}", f"{cell['mean']:.4f}" + ("" if error is None else f" ± {error:.4f}")
        strip = axis.strip(cell["mean"], low, high, f"{row['label']}: {said}, {users} users")
    return {
        "device class": row["label"],
        "tested users": users,
        f"{worth}, drawn": Drawn(axis, strip, "c2", at),
        f"{worth}, mean ± standard error": said,
        "rounds contributed to": "–" if row.get("participation") is None else f"{row['participation']:.0%}",
    }


def _sentence(metric: str, overall: dict[str, Any], classes: dict[str, Any]) -> str:
    """Say how far the classes are apart, and whether that is more than chance."""
    if overall["worst"] is None:
        return f"No class has {FEWEST} tested users, so no best or worst class is named."
    worst, best = overall["worst"], overall["best"]
    apart = (
        f"{metric} is {best['mean']:.4f} on the best class, {classes[best['class']]['label']}, and "
        f"{worst['mean']:.4f} on the worst, {classes[worst['class']]['label']}."
    )
    p = overall["p_equal"]
    if p is None:
        return apart
    if p < 0.05:
        return (
            f"{apart} The difference is statistically significant (one-way ANOVA over the classes shown, p = {p:.2g})."
        )
    return (
        f"{apart} The difference is not statistically significant (one-way ANOVA over the classes shown, p = {p:.2g})."
    )


def _also(overall: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the model is worth to those who took part and to those who never did."""
    names = {"took_part": "users who took part", "never_took_part": "users who never took part"}
    groups = [(words, overall.get(key)) for key, words in names.items()]
    out = [(words, f"{cell['mean']:.4f} ({cell['users']:,})") for words, cell in groups if cell]
    along = overall.get("participation_correlation")
    return out if along is None else [*out, ("rank correlation with rounds contributed", f"{along:+.2f}")]
