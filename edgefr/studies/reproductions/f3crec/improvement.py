"""Figure 3: by how much F3CRec is above the second best method, from Table 2's runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, number
from edgefr.studies.reproductions.cells import Found, change, p_value
from edgefr.studies.reproductions.f3crec import published
from edgefr.studies.reproductions.f3crec.comparison import P_NOTE, best_baseline, misprints
from edgefr.studies.reproductions.f3crec.recipes import Ask
from edgefr.studies.reproductions.f3crec.results import LABELS, average
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_3(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet per metric; bars per data set and backbone, beside the improvement of the published averages."""
    records = [_record(ask, found, n, b, m) for m in published.METRICS for n in data for b in published.BACKBONES]
    sheets = [
        Sheet(f"F3CRec above the second best, {metric}", rows, ["data set, backbone"])
        for metric in published.METRICS
        if (rows := [_row(record) for record in records if record["metric"] == metric])
    ]
    notes = [
        "the second best is the best of the other five by the average over D1 to D3, here and in the paper each by its "
        "own numbers; the paper's improvement is computed from its printed averages",
        P_NOTE,
    ]
    misprinted = misprints(data)
    notes += [misprinted] if misprinted else []
    title = "F3CRec Figure 3: improvement over the second best method"
    return Page("figure-3", title, sheets, records, notes, _bars(records))


def _record(ask: Ask, found: Found, data: str, backbone: str, metric: str) -> Record:
    cells = ask.cells(data, backbone, published.METHODS)
    head = {"data": data, "backbone": backbone, "metric": metric}
    own, best = found.by_seed(cells["f3crec"], average(metric)), best_baseline(found, cells, metric)
    printed = {name: row.average for name, row in published.TABLE_2[data, backbone, metric].items()}
    second = max((name for name in printed if name != "f3crec"), key=lambda name: printed[name])
    was = {"published_second": second, "published_improvement_percent": 100 * (printed["f3crec"] / printed[second] - 1)}
    if best is None:
        return {**head, "second": None, "improvement_percent": math.nan, "p": math.nan, "pairs": 0, **was}
    better, p, pairs = change(own, best[1]), p_value(own, best[1]), len(own.keys() & best[1].keys())
    return {**head, "second": best[0], "improvement_percent": better, "p": p, "pairs": pairs, **was}


def _row(record: Record) -> dict[str, str]:
    return {
        "data set, backbone": f"{record['data']}, {LABELS[record['backbone']]}",
        "improvement\n%": number(record["improvement_percent"], "+.2f"),
        "improvement %\npaper": number(record["published_improvement_percent"], "+.2f"),
        "second best": LABELS.get(record["second"], "-"),
        "second best\npaper": LABELS[record["published_second"]],
        "p": number(record["p"], ".3f"),
        "pairs": str(record["pairs"]),
    }


def _bars(records: Sequence[Record]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4 * len(published.METRICS)), layout="constrained")
    axes = figure.subplots(len(published.METRICS), 1, squeeze=False)[:, 0]
    for axis, metric in zip(axes, published.METRICS, strict=True):
        shown = [record for record in records if record["metric"] == metric]
        places = range(len(shown))
        axis.bar([p - 0.2 for p in places], [r["improvement_percent"] for r in shown], 0.4, label="here")
        published_ones = [r["published_improvement_percent"] for r in shown]
        axis.bar([p + 0.2 for p in places], published_ones, 0.4, label="paper", alpha=0.6)
        labels = [f"{r['data']}\n{LABELS[r['backbone']]}" for r in shown]
        axis.set_xticks(list(places), labels, fontsize="x-small")
        axis.set(ylabel="improvement over the\nsecond best, %", title=metric)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3, axis="y")
    return figure
