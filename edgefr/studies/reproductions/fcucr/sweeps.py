"""Tables 4 and 5, Figures 3 to 6 and 7 to 10 turn one knob of FCUCR (SASRec) at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, number
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.fcucr import published
from edgefr.studies.reproductions.fcucr.recipes import Ask, Cell
from edgefr.studies.reproductions.fcucr.results import NOTES, Line, beaten, levels, measure, seconds_per_round
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = "fcucr-sasrec"
WINDOW, INTERVAL, TOP_K, LAMBDA = "knowledge.window", "knowledge.interval", "knowledge.top_k", "model.distill_weight"
USUAL: Mapping[str, Any] = {WINDOW: None, INTERVAL: 1, TOP_K: 20, LAMBDA: 10.0}
"""What FCUCR has where nothing is said: that point is Table 2's run."""

POINTS: Mapping[str, Sequence[Any]] = {
    WINDOW: published.WINDOWS,
    INTERVAL: published.INTERVALS,
    TOP_K: published.TOP_K,
    LAMBDA: published.LAMBDAS,
}
SECONDS_NOTE = (
    "seconds per round: wall time of training and of the server on one core, without evaluation; the paper's, on its "
    "GPUs, are beside"
)
UPLOADS, REPLIES = "noise on uploads", "noise on received prototypes"


def turned(ask: Ask, data: str, knob: str) -> dict[Any, Cell]:
    """Return FCUCR by the value of one knob."""
    return {v: ask.cell(data, ROW, {} if v == USUAL[knob] else {knob: v}) for v in POINTS[knob]}


def needed(*knobs: str) -> Any:
    """Return the cells of every point of these knobs, as a function of request and data set."""
    return lambda ask, data: [cell for knob in knobs for cell in turned(ask, data, knob).values()]


def table_4(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a row per number of rounds whose prototypes are kept."""
    words = {v: "all rounds" if v is None else f"last {v}" if v > 1 else "this round" for v in published.WINDOWS}
    title = "FCUCR Table 4: rounds whose prototypes are kept (SASRec)"
    return _table("table-4", title, ask, found, data, WINDOW, words, (published.TABLE_4, published.SECONDS_4))


def table_5(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a row per number of rounds from one transfer of prototypes to the next."""
    words = {v: str(v) for v in published.INTERVALS}
    title = "FCUCR Table 5: rounds between transfers of prototypes (SASRec)"
    return _table("table-5", title, ask, found, data, INTERVAL, words, (published.TABLE_5, published.SECONDS_5))


_Printed = tuple[Mapping[str, Sequence[published.Pair]], Mapping[str, Sequence[float]]]


def _table(
    name: str,
    title: str,
    ask: Ask,
    found: Found,
    data: Sequence[str],
    knob: str,
    words: Mapping[Any, str],
    printed: _Printed,
) -> Page:
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    for each in data:
        own = []
        for at, (value, cell) in enumerate(turned(ask, each, knob).items()):
            ours = number(found.spread(cell, seconds_per_round).mean, ".2f")
            more = {"seconds\nper round": ours}
            if each in printed[1]:
                more["seconds\n(paper)"] = f"{printed[1][each][at]:g}"
            own.append(Line(words[value], cell, printed[0][each][at] if each in printed[0] else None, more))
        sheet, made = levels(found, f"{each}, {knob.rsplit('.', 1)[-1]}", "rounds", own)
        verdicts += beaten(found, own)
        sheets.append(sheet)
        records += made
    return Page(name, title, sheets, records, [*verdicts, *NOTES, SECONDS_NOTE])


def of_knobs(figure: int, ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet and a curve per data set and knob, as the paper's figure of this number (3 to 6)."""
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    curves: dict[str, dict[float, Cell]] = {}
    for name in data:
        for knob, label in ((TOP_K, "k"), (LAMBDA, "lambda")):
            cells = turned(ask, name, knob)
            own = [Line(f"{label} {v:g}", c) for v, c in cells.items()]
            sheet, made = levels(found, f"{name}, FCUCR (SASRec) by {label}", label, own)
            verdicts += beaten(found, own)
            sheets.append(sheet)
            records += [record | {"knob": knob} for record in made]
            curves[f"{name}, {label}"] = cells
    notes = [
        *verdicts,
        "k: prototypes that an answer is made of; lambda: weight of the distillation, or (released) its clamp",
        "one knob at a time; the paper prints no numbers for this figure",
        *NOTES,
    ]
    drawn = _curves(found, curves, "log", list(curves))
    title = f"FCUCR Figure {figure}: one hyper-parameter at a time (SASRec)"
    return Page(f"figure-{figure}", title, sheets, records, notes, drawn)


def noisy(ask: Ask, data: str) -> dict[str, dict[float, Cell]]:
    """Return FCUCR by the standard deviation of noise, on uploads (the paper) and on replies (its code); 0: none."""
    plain = (
        {"aggregation.weights": "uniform"} if ask.fidelity == "paper" else {}
    )  # sizes would leave devices unprotected
    out: dict[str, dict[float, Cell]] = {kind: {0.0: ask.cell(data, ROW, plain)} for kind in (UPLOADS, REPLIES)}
    for std in published.NOISE:
        scale = float(f"{std / math.sqrt(2):.6g}")  # b of a Laplace of this standard deviation
        noise = {"privacy.mechanism": "paper-laplace", "privacy.trust": "local", "privacy.scale": scale}
        out[UPLOADS][std] = ask.cell(data, ROW, {**plain, **noise})
        out[REPLIES][std] = ask.cell(data, ROW, {**plain, "model.receiver_noise": std})
    return out


def needed_noise(ask: Ask, data: str) -> list[Cell]:
    """Return six levels of either noise, and none."""
    return list(dict.fromkeys(cell for cells in noisy(ask, data).values() for cell in cells.values()))


def of_noise(figure: int, ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet and a curve per data set and kind of noise, as the paper's figure of this number (7 to 10)."""
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    curves: dict[str, dict[float, Cell]] = {}
    for name in data:
        for kind, cells in noisy(ask, name).items():
            nominal = {std: {"epsilon\n(paper)": f"{published.NOMINAL_EPSILON.get(std, math.inf):g}"} for std in cells}
            own = [Line(f"std {std:g}", cell, more=nominal[std]) for std, cell in cells.items()]
            sheet, made = levels(found, f"{name}, {kind}", "noise", own)
            verdicts += [f"{kind}: {line}" for line in beaten(found, own)]
            sheets.append(sheet)
            records += [record | {"noise": kind} for record in made]
            curves[f"{name}, {kind}"] = cells
    notes = [
        *verdicts,
        "noise on uploads: Laplace noise of this standard deviation on every number of every client's update, nothing "
        "clipped (§5.6, D.2); prototypes are sent without noise. Without a bound on what one client can send it "
        "guarantees no differential privacy, and the paper's epsilon is nominal: sqrt(2 ln(1.25 / delta)) / std, as if "
        "one release of sensitivity 1 had Gaussian noise",
        "noise on received prototypes: Gaussian noise that a client adds to what it was sent, as the released code "
        "does; nothing that leaves a device is protected by it",
        *NOTES,
    ]
    drawn = _curves(found, curves, "linear", ["standard deviation"] * len(curves))
    return Page(f"figure-{figure}", f"FCUCR Figure {figure}: noise (SASRec)", sheets, records, notes, drawn)


def _curves(found: Found, curves: Mapping[str, Mapping[float, Cell]], scale: str, below: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.0 * math.ceil(len(curves) / 2)), layout="constrained")
    axes = figure.subplots(math.ceil(len(curves) / 2), 2, squeeze=False).ravel()
    for axis, (title, cells), label in zip(axes, curves.items(), below, strict=True):
        _curve(axis, found, cells)
        axis.set(title=title, xscale=scale, xlabel=label, ylabel="test HR@10")
    return figure


def _curve(axis: Axes, found: Found, cells: Mapping[float, Cell]) -> None:
    for name, label in (("HR@10", "all targets"), ("HR@10, new", "new to the user")):
        spreads = [found.spread(cell, measure(name)) for cell in cells.values()]
        errors = [0.0 if s.number < 2 else s.sd for s in spreads]
        axis.errorbar(list(cells), [s.mean for s in spreads], errors, marker="o", markersize=4, capsize=3, label=label)
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
