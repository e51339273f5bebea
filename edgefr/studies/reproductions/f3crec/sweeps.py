"""Table 8, noise on what clients send, and Figure 4, one knob at a time: F3CRec with FedMF, averages over D1 to D3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, number
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.f3crec import published
from edgefr.studies.reproductions.f3crec.recipes import Ask, Cell
from edgefr.studies.reproductions.f3crec.results import average, average_history
from privacy.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON, KD_WEIGHT, BETA = "continual.shift_scale", "continual.kd_weight", "aggregation.beta"
KNOBS = {EPSILON: "epsilon", KD_WEIGHT: "KD weight", BETA: "beta"}
_SCALES = {"ml-100k": 1e-3, "ml-latest-small": 1e-5, "lastfm-2k": 1e-4, "hetrec2011": 1e-3}  # §5.1
_POINTS: dict[str, Sequence[float]] = {
    EPSILON: (1, 3, 5, 7, 9),  # times the data set's scale
    KD_WEIGHT: (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
    BETA: (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
}


def noisy(ask: Ask, data: str) -> dict[float, Cell]:
    """Return F3CRec by the scale of the Laplace noise; 0 is the run without noise."""
    noise = {"privacy.mechanism": "laplace", "privacy.trust": "local"}
    cells = {0.0: ask.cell(data, "fedmf", "f3crec")}
    return cells | {
        scale: ask.cell(data, "fedmf", "f3crec", {**noise, "privacy.scale": scale}) for scale in published.NOISE[1:]
    }


def needed_noise(ask: Ask, data: str) -> list[Cell]:
    """Return the cells of six scales of noise."""
    return list(noisy(ask, data).values())


def table_8(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a row per scale of the noise."""
    sheets, records = [], list[Record]()
    for name in data:
        rows = []
        for at, (scale, cell) in enumerate(noisy(ask, name).items()):
            row = {"noise\nlambda": f"{scale:g}"}
            for metric in published.METRICS:
                spread, printed = found.spread(cell, average(metric)), published.TABLE_8[name][metric][at]
                row |= {metric: str(spread), f"{metric}\npaper": number(printed)}
                row[f"{metric}\nhistory masked"] = str(found.spread(cell, average_history(metric)))
                head = {"data": name, "noise": scale, "metric": metric}
                records.append({**head, **spread.record(), "published": printed})
            rows.append(row | {"seeds": str(len(found.summaries.get(cell, {})))})
        sheets.append(Sheet(f"{name}, FedMF, F3CRec", rows, ["noise\nlambda"]))
    notes = [
        "Laplace noise of scale lambda on every number a client sends, each client for itself, nothing clipped: "
        "without a bound on what one client can send it guarantees no differential privacy, whatever lambda is",
        "the noise is there from the base block on; averages over D1 to D3, mean ± sd over seeds",
    ]
    return Page("table-8", "F3CRec Table 8: noise on uploads (FedMF)", sheets, records, notes)


def turned(ask: Ask, data: str, knob: str) -> dict[float, Cell]:
    """Return F3CRec by the value of one knob; beta 0 is F3CRec without its server part (Eq. 10)."""
    scale = _SCALES[data] if knob == EPSILON else 1.0
    values = [float(f"{point * scale:.6g}") for point in _POINTS[knob]]  # 0.003, not 3 * 1e-3
    return {
        value: ask.cell(data, "fedmf", "f3crec-no-server")
        if knob == BETA and value == 0
        else ask.cell(data, "fedmf", "f3crec", {knob: value})
        for value in values
    }


def needed_knobs(ask: Ask, data: str) -> list[Cell]:
    """Return every point of every knob."""
    return [cell for knob in KNOBS for cell in turned(ask, data, knob).values()]


def figure_4(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet and a curve per data set and knob."""
    sheets, records = [], list[Record]()
    for name in data:
        for knob, label in KNOBS.items():
            rows = []
            for value, cell in turned(ask, name, knob).items():
                row = {label: f"{value:g}"}
                for metric in published.METRICS:
                    spread = found.spread(cell, average(metric))
                    row[metric] = str(spread)
                    head: dict[str, Any] = {"data": name, "knob": knob, "value": value, "metric": metric}
                    records.append({**head, **spread.record()})
                rows.append(row | {"seeds": str(len(found.summaries.get(cell, {})))})
            sheets.append(Sheet(f"{name}, FedMF, F3CRec by {label}", rows, [label]))
    notes = [
        "one knob at a time, the others as in the recipe; averages over D1 to D3, mean ± sd over seeds",
        "the paper prints no numbers for this figure; epsilon is in the paper's range of the data set",
        "beta 0 is F3CRec without its server part (Eq. 10); beta 1 is not run, since Eq. 9 asks for less than 1",
    ]
    title = "F3CRec Figure 4: one hyper-parameter at a time (FedMF)"
    return Page("figure-4", title, sheets, records, notes, _curves(found, ask, data))


def _curves(found: Found, ask: Ask, data: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    metric = published.METRICS[0]
    figure = Figure(figsize=(10.5, 2.8 * len(data)), layout="constrained")
    axes = figure.subplots(len(data), len(KNOBS), squeeze=False)
    for row, name in zip(axes, data, strict=True):
        for axis, (knob, label) in zip(row, KNOBS.items(), strict=True):
            points: Mapping[float, Any] = {
                value: found.spread(cell, average(metric)) for value, cell in turned(ask, name, knob).items()
            }
            spreads = list(points.values())
            axis.errorbar(
                list(points),
                [s.mean for s in spreads],
                [0.0 if s.number < 2 else s.sd for s in spreads],
                marker="o",
                markersize=4,
                capsize=3,
            )
            axis.set(xlabel=label, ylabel=metric, title=name, xscale="log" if knob == KD_WEIGHT else "linear")
            axis.grid(alpha=0.3)
    return figure
