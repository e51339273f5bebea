"""Figures 5 and 6 turn one knob of TransFR's local training: layers of the head, and epochs (TransFR 4.2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record
from edgefr.studies.reproductions.cells import Found, Values
from edgefr.studies.reproductions.transfr.published import METRICS
from edgefr.studies.reproductions.transfr.recipes import ROWS, Ask, Cell, Task, tasks
from edgefr.studies.reproductions.transfr.results import cold, warm
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCHS = (2, 4, 6, 8, 10)
WIDTHS: Sequence[list[int]] = ([32], [128, 32], [128, 64, 32], [256, 128, 64, 32])
"""Figure 5's heads, without the encoder's 312."""
ROW = "transfr"


@dataclass(frozen=True)
class Knob:
    """A knob is what a figure turns: the values of an experiment at each point, by how the point is called."""

    figure: int
    title: str
    axis: str
    points: Mapping[str, Values]
    notes: Sequence[str]


LAYERS = Knob(
    5,
    "layers of the local head",
    "layers",
    {str(len(widths)): {"model.head_form": "adapter", "model.adapter": widths} for widths in WIDTHS},
    (
        "the head stands on the encoder in the adapter's place and has its form (model.head_form: adapter), since both "
        "have the paper's widths [312, ..., 32]: so rounds learn an adapter of as many layers",
    ),
)
LOCAL_EPOCHS = Knob(
    6,
    "epochs of local training",
    "epochs",
    {str(number): {} if number == 6 else {"model.local_training_epochs": number} for number in EPOCHS},
    ("six epochs are Table 4's run",),
)
KNOBS = {knob.figure: knob for knob in (LAYERS, LOCAL_EPOCHS)}


def turned(ask: Ask, task: Task, knob: Knob) -> dict[str, Cell]:
    """Return TransFR, by cross-entropy with Adam on devices, at every point of a knob."""
    return {point: ask.cell(task, ROW, values) for point, values in knob.points.items()}


def needed(figure: int) -> Any:
    """Return the cells of a figure, as a function of request and data set."""
    knob = KNOBS[figure]
    return lambda ask, data: [cell for task in tasks(data) for cell in turned(ask, task, knob).values()]


def of_knob(figure: int, ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet and a panel per task: the target before and after local training."""
    knob = KNOBS[figure]
    sheets, records, panels = list[Sheet](), list[Record](), dict[str, Mapping[str, Cell]]()
    for task in (task for name in data for task in tasks(name)):
        panels[str(task)] = cells = turned(ask, task, knob)
        rows = []
        for point, cell in cells.items():
            row = {knob.axis: point}
            for metric in METRICS:
                for when, pick in (("cold start", cold("target", metric)), ("Localtrain", warm(metric))):
                    spread = found.spread(cell, pick)
                    row[f"{metric}\n{when}"] = str(spread)
                    head = {"data": task.data, "task": str(task), knob.axis: point, "stage": when, "metric": metric}
                    records.append({**head, **spread.record()})
            rows.append(row | {"seeds": str(len(found.summaries.get(cell, {})))})
        sheets.append(Sheet(f"{task}, {knob.title} ({task.data})", rows, [knob.axis]))
    notes = [
        f"{ROWS[ROW].label}; mean ± sd over seeds, in the target, before and after local training there",
        *knob.notes,
        "the paper prints no numbers for this figure",
    ]
    drawn = _curves(found, panels, knob)
    return Page(f"figure-{figure}", f"TransFR Figure {figure}: {knob.title}", sheets, records, notes, drawn)


def _curves(found: Found, panels: Mapping[str, Mapping[str, Cell]], knob: Knob) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(panels), 3.2), layout="constrained")
    for axis, (title, cells) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for metric in METRICS:
            spreads = [found.spread(cell, warm(metric)) for cell in cells.values()]
            errors = [0.0 if spread.number < 2 else spread.sd for spread in spreads]
            axis.errorbar(list(cells), [s.mean for s in spreads], errors, marker="o", capsize=3, label=metric)
        axis.set(title=title, xlabel=knob.axis, ylabel="test, target, Localtrain")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    return figure
