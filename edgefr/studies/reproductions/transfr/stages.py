"""Figures 3 and 4 take TransFR apart: what the target's users get after each stage (TransFR 4.2.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, Spread
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.transfr.recipes import ROWS, Ask, Cell, Task, tasks
from edgefr.studies.reproductions.transfr.results import REFERENCES, level, of_stage
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = {3: "HR@10", 4: "NDCG@10"}
BOTH = ("transfr", "transfr-ours")
STAGES: Mapping[str, str] = {
    "random": "Random",
    "pretrain": "Pretrain",
    "finetune": "Finetune",
    "context": "context",
    "localtrain": "Localtrain",
}
"""The paper's four stages; with context (ours) the target's items are known and nothing is trained on them."""
COLD = ("random", "pretrain", "finetune")
NOTES = (
    "Random: the encoder has random weights; Pretrain: the distilled encoder, nothing federated; Finetune: the adapter "
    "after rounds in the source; Localtrain: the head, too, after training on what the user has in the target",
    "the first three know nothing of the target's interactions. What Localtrain is above Finetune by mixes two things, "
    "which the paper does not tell apart: items of the target as the user's context, and training",
    "mean ± sd over seeds; the paper prints no numbers for this figure",
)


def needed(ask: Ask, data: str) -> list[Cell]:
    """Return TransFR by cross-entropy with Adam on devices, and as we recommend it: runs of Table 4."""
    return [cell for task in tasks(data) for cell in ask.cells(task, BOTH).values()]


def by_stage(number: int, ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet and a panel per task, as the paper's figure of this number."""
    metric = FIGURES[number]
    sheets, records, panels = list[Sheet](), list[Record](), dict[str, dict[str, list[Spread]]]()
    for task in (task for name in data for task in tasks(name)):
        cells = ask.cells(task, BOTH)
        drawn = {
            row: [found.spread(cell, of_stage("target", s, metric)) for s in STAGES] for row, cell in cells.items()
        }
        sheets.append(_sheet(found, cells, task, metric, drawn))
        panels[f"{task}"] = {ROWS[row].label: spreads for row, spreads in drawn.items()}
        for row, spreads in drawn.items():
            for name, one in zip(STAGES.values(), spreads, strict=True):
                head = {"data": task.data, "task": str(task), "method": row, "stage": name, "metric": metric}
                records.append({**head, **one.record()})
    title = f"TransFR Figure {number}: {metric} in the target after each stage"
    return Page(f"figure-{number}", title, sheets, records, NOTES, _bars(panels, metric))


def _sheet(
    found: Found, cells: Mapping[str, Cell], task: Task, metric: str, drawn: Mapping[str, Sequence[Spread]]
) -> Sheet:
    rows = [
        {"stage": name, **{ROWS[row].label: str(spreads[at]) for row, spreads in drawn.items()}}
        for at, name in enumerate(STAGES.values())
    ]
    for name, words in REFERENCES.items():
        values = {ROWS[row].label: str(level(found, [cell], "target", name, metric)) for row, cell in cells.items()}
        rows.append({"stage": words, **values})
    return Sheet(f"{task}, {metric} ({task.data})", rows, ["stage"], rules=[len(COLD) - 1, len(STAGES) - 1])


def _bars(panels: Mapping[str, Mapping[str, Sequence[Spread]]], metric: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * len(panels), 3.4), layout="constrained")
    for axis, (title, rows) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for at, (label, spreads) in enumerate(rows.items()):
            places = [place + 0.4 * at for place in range(len(spreads))]
            errors = [0.0 if spread.number < 2 else spread.sd for spread in spreads]
            means = [0.0 if not spread.number else spread.mean for spread in spreads]
            axis.bar(places, means, 0.38, yerr=errors, capsize=3, label=label)
        axis.set_xticks([place + 0.2 for place in range(len(STAGES))], list(STAGES.values()), rotation=20)
        axis.set(title=title, ylabel=f"test {metric}, target")
        axis.grid(alpha=0.3, axis="y")
        axis.legend(fontsize="x-small")
    return figure
