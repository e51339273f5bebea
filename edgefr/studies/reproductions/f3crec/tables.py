"""F3CRec's tables and figures compare methods over blocks, take its parts away, add noise, and turn one knob at a time.

Averages are over the increments D1 to D3. Tables 4, 5 and 7 are in `saved_models`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.data.datasets import load
from edgefr.data.splits.blocks import Blocks
from edgefr.metrics.continual import MASKS
from edgefr.metrics.significance import holm
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Pick, Summary, at, change, p_value
from edgefr.studies.reproductions.exhibits import Exhibit, Paper, by_data, rows_alone
from edgefr.studies.reproductions.f3crec import recipes
from edgefr.studies.reproductions.f3crec import saved_models as saved
from edgefr.studies.reproductions.f3crec.recipes import LABELS
from edgefr.studies.reproductions.published import published
from edgefr.studies.reproductions.statistics import Counts, statistics
from edgefr.studies.reproductions.tables import Column, Line, Made, Panel, Row, level, lines, seeds, sheet, versus
from privacy.progress import Progress

METRICS = ("NDCG@20", "Recall@20")
BACKBONES = ("fedmf", "fedncf", "pfedrec")
METHODS = ("ft", "reg", "kd", "rlp2", "spp", "f3crec")
ABLATIONS = {
    "table-3": ("f3crec", "f3crec-no-client", "f3crec-no-adaptive", "ft"),
    "table-6": ("f3crec", "f3crec-no-server", "f3crec-no-itemwise", "ft"),
}
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
REFERENCES = ("popularity", "popularity, all blocks", "chance")
INCREMENTS = (1, 2, 3)

Cells = Mapping[str, Cell]
"""The methods of one data set and backbone, by strategy."""


def average(metric: str, mask: str = MASKS[0]) -> Pick:
    """Pick the mean over the increments, under the mask of the released code or with the whole history masked."""
    return at("metrics" if mask == MASKS[0] else "metrics_history_masked", metric)


def average_group(group: str, metric: str) -> Pick:
    """`known_users` or `new_users` alone: the mean over the increments where there are any."""

    def pick(summary: Summary) -> float:
        values = [block[group].get(metric) for block in summary["blocks"][1:]]
        known = [value for value in values if value is not None and not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan

    return pick


# Table 2


def table_2(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet per backbone and metric, and one of what is kept."""
    made = Made()
    for backbone in backbones(ask):
        cells = ask.cells(data, METHODS, backbone)
        made += sum((compared(found, cells, metric) for metric in METRICS), Made()) + kept_sheet(found, cells)
    return made


def backbones(ask: Ask) -> list[str]:
    """Return the backbones that are asked for."""
    return [name for name in BACKBONES if name in (ask.backbones or BACKBONES)]


def compared(found: FinishedRuns, cells: Cells, metric: str) -> Made:
    """Make one data set, backbone and metric: a row per method, then the references, measured beside a method."""
    data, backbone = cells["ft"].data, cells["ft"].within

    def column(title: str, pick: Pick, paper: str | None = None, **words: str) -> Column:
        return level(title, pick, {"metric": metric, "on": "mean", "mask": MASKS[0], "users": "all", **words}, paper)

    def reference(name: str) -> list[Column]:
        means = {mask: at("references", name, mask, metric) for mask in MASKS}
        blocks = {t: at("blocks", t, "references", name, MASKS[0], metric) for t in INCREMENTS}
        return [
            *(column(f"D{t}", pick, on=f"D{t}") for t, pick in blocks.items()),
            column("mean", means[MASKS[0]]),
            column("mean, history\nmasked", means[MASKS[1]], mask=MASKS[1]),
            seeds,
        ]

    titles = ("over FT\n%", "over FT %\npaper", "p against\nFT")
    columns = [
        *(column(f"D{t}", at("blocks", t, "metrics", metric), f"D{t}\npaper", on=f"D{t}") for t in INCREMENTS),
        column("mean", average(metric), "mean\npaper"),
        versus(cells["ft"], average(metric), titles, ("over_ft", "p_against_ft")),
        column("mean, history\nmasked", average(metric, MASKS[1]), mask=MASKS[1]),
        column("mean, known\nusers", average_group("known_users", metric), users="known"),
        column("mean, new\nusers", average_group("new_users", metric), users="new"),
        seeds,
    ]
    head = {"data": data, "backbone": backbone}
    below = [
        (Line({"method": name}, cell, {**head, "method": name}), reference(name))
        for name in REFERENCES
        if (cell := found.fullest(cells.values(), at("references", name, MASKS[0], metric)))
    ]
    rows = lines(cells, head, published("f3crec", "table-2"), (data, backbone, metric))
    title = f"{data}, {LABELS[backbone]}, {metric}"
    return sheet(found, title, rows, columns, below, _caption(found, cells, metric), average(metric))


def kept_sheet(found: FinishedRuns, cells: Cells) -> Made:
    """Show what the last model still knows of every block, a row per method, which the paper's table does not ask.

    LA, RA and forgetting are of NDCG@20 over all blocks, D0 included (`edgefr.metrics.continual`).
    """
    first, columns = cells["ft"], list[Column]()
    for mask in MASKS:
        for quantity in ("LA", "RA", "forgetting"):
            words = {"metric": METRICS[0], "on": quantity, "mask": mask, "users": "all"}
            columns.append(level(f"{quantity}\n{mask}", at("continual", mask, quantity), words))
        columns.append(partial(_p_of_kept, first, mask))
    caption = (
        "LA: mean of a(t, t), each block right after it was learned; RA: mean of a(3, s), every block at the end; "
        "forgetting: mean over s < 3 of the best a(t, s) before the end, less a(3, s); p against FT, pairs by seed"
    )
    title = f"{first.data}, {LABELS[first.within]}: what is kept (NDCG@20, all blocks)"
    rows = lines(cells, {"data": first.data, "backbone": first.within})
    return sheet(found, title, rows, columns, caption=caption)


def _p_of_kept(base: Cell, mask: str, found: FinishedRuns, line: Line, records: list[Record]) -> Row:
    own, other = (found.by_seed(cell, at("continual", mask, "RA")) for cell in (line.cell, base))
    return {f"p of RA\n{mask}": "" if line.cell == base else number(p_value(own, other), ".3f")}


def _caption(found: FinishedRuns, cells: Cells, metric: str) -> str:
    """Compare F3CRec with every baseline, with p-values corrected together, and say who does not beat popularity."""
    values = {name: found.by_seed(cell, average(metric)) for name, cell in cells.items()}
    own = values.pop("f3crec")
    pairs = {name: len(own.keys() & other.keys()) for name, other in values.items()}
    told = []
    for name, p in holm({name: p_value(own, other) for name, other in values.items() if pairs[name]}).items():
        tested = f"p = {number(p, '.3f')} of {pairs[name]} pairs" if pairs[name] > 1 else "p needs two or more seeds"
        told.append(f"{LABELS[name]} {number(change(own, values[name]), '+.2f')} % ({tested})")
    parts = [f"F3CRec against each baseline (p by Holm's correction over them): {', '.join(told)}"] if told else []
    popularity = at("references", "popularity, all blocks", MASKS[0], metric)
    if source := found.fullest(cells.values(), popularity):
        popular = found.spread(source, popularity).mean
        below = [LABELS[n] for n, c in cells.items() if found.spread(c, average(metric)).mean <= popular]
        parts += [f"not above popularity over all blocks: {', '.join(below)}"] if below else []
    return "; ".join(parts)


def misprints(data: Sequence[str]) -> list[str]:
    """Return a note on published averages that are not the mean of their own increments, where there are some."""
    found: dict[tuple[str, ...], list[str]] = {}
    for (*place, row), line in published("f3crec", "table-2").items():
        d1, d2, d3, mean, _ = (value or 0.0 for value in line.values())
        if place[0] in data and abs((d1 + d2 + d3) / 3 - mean) > 0.0002:
            found.setdefault(tuple(place), []).append(LABELS[row])
    places = [f"{d} {LABELS[backbone]} {metric} ({', '.join(rows)})" for (d, backbone, metric), rows in found.items()]
    said = "published averages that are not the mean of the published increments"
    return [f"{said}: {'; '.join(places)}"] if places else []


# Tables 3, 6 and 8: FedMF


def ablations(name: str, ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make Table 3 or 6: a row per variant, compared with F3CRec."""
    cells = ask.cells(data, ABLATIONS[name], "fedmf")
    rows = lines(cells, {"data": data, "backbone": "fedmf"}, published("f3crec", name), (data,))
    return sheet(found, f"{data}, FedMF", rows, _both_masks(cells["f3crec"]))


def _both_masks(base: Cell | None = None) -> list[Column]:
    """Return columns of both metrics beside the paper's, under both masks, and compared with a base if there is one."""
    columns = list[Column]()
    for metric in METRICS:
        titles = (f"{metric}\ndecrease %", f"{metric}\ndecrease % paper", f"{metric}\np against F3CRec")
        columns.append(level(metric, average(metric), {"metric": metric}, f"{metric}\npaper"))
        columns += [] if base is None else [versus(base, average(metric), titles, ("decrease", "p_against_f3crec"))]
        columns.append(level(f"{metric}\nhistory masked", average(metric, MASKS[1])))
    return [*columns, seeds]


def noisy(ask: Ask, data: str) -> dict[float, Cell]:
    """Return F3CRec by the scale of the Laplace noise; 0 is the run without noise."""
    noise = {"privacy.mechanism": "laplace", "privacy.trust": "local"}
    return {
        scale: ask.cell(data, "f3crec", {**noise, "privacy.scale": scale} if scale else {}, "fedmf") for scale in NOISE
    }


def table_8(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a row per scale of the noise."""
    printed = published("f3crec", "table-8")
    rows = [
        Line({"noise\nlambda": f"{scale:g}"}, cell, {"data": data, "noise": scale}, printed[data, f"{scale:g}"])
        for scale, cell in noisy(ask, data).items()
    ]
    return sheet(found, f"{data}, FedMF, F3CRec", rows, _both_masks())


# Figures 3 and 4


def figure_3(ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Make a sheet and a panel per metric: how far F3CRec is above the second best, per data set and backbone."""
    made = Made()
    for metric in METRICS:
        records = [_improvement(ask, found, name, backbone, metric) for name in data for backbone in BACKBONES]
        shown, bars = list[Row](), dict[str, dict[str, Spread]]({"here": {}, "paper": {}})
        for r in records:
            here, paper = r["improvement_percent"], r["published_improvement_percent"]
            for label, value in (("here", here), ("paper", paper)):
                bars[label][f"{r['data']}\n{LABELS[r['backbone']]}"] = Spread(value, math.nan, 1)
            row = {"data set, backbone": f"{r['data']}, {LABELS[r['backbone']]}"}
            row |= {"improvement\n%": number(here, "+.2f"), "improvement %\npaper": number(paper, "+.2f")}
            row |= {"second best": LABELS.get(r["second"], "-"), "second best\npaper": LABELS[r["published_second"]]}
            shown.append({**row, "p": number(r["p"], ".3f"), "pairs": str(r["pairs"])})
        sheets = [Sheet(f"F3CRec above the second best, {metric}", shown, ["data set, backbone"])] if records else []
        panel = Panel(metric, "", "improvement over the\nsecond best, %", bars, kind="bar")
        made += Made(sheets, records, panels=[panel])
    return made


def _improvement(ask: Ask, found: FinishedRuns, data: str, backbone: str, metric: str) -> Record:
    runs = {name: found.by_seed(cell, average(metric)) for name, cell in ask.cells(data, METHODS, backbone).items()}
    rivals = {name: Spread.of(list(values.values())).mean for name, values in runs.items() if name != "f3crec"}
    known = {name: mean for name, mean in rivals.items() if not math.isnan(mean)}
    best = max(known, key=lambda name: known[name], default=None)
    own, other = (runs["f3crec"], runs[best]) if best else ({}, {})
    printed = {
        row: line["mean"] or 0.0
        for (*place, row), line in published("f3crec", "table-2").items()
        if place == [data, backbone, metric]
    }
    second = max((name for name in printed if name != "f3crec"), key=lambda name: printed[name])
    return {
        **{"data": data, "backbone": backbone, "metric": metric, "second": best},
        "improvement_percent": change(own, other),
        "p": p_value(own, other),
        "pairs": len(own.keys() & other.keys()),
        "published_second": second,
        "published_improvement_percent": 100 * (printed["f3crec"] / printed[second] - 1),
    }


EPSILON, KD_WEIGHT, BETA = "continual.shift_scale", "continual.kd_weight", "aggregation.beta"
KNOBS = {EPSILON: "epsilon", KD_WEIGHT: "KD weight", BETA: "beta"}
_SCALES = {"ml-100k": 1e-3, "ml-latest-small": 1e-5, "lastfm-2k": 1e-4, "hetrec2011": 1e-3}  # §5.1
_POINTS: dict[str, Sequence[float]] = {
    EPSILON: (1, 3, 5, 7, 9),  # times the data set's scale
    KD_WEIGHT: (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0),
    BETA: (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
}


def turned(ask: Ask, data: str, knob: str) -> dict[float, Cell]:
    """Return F3CRec by the value of one knob; beta 0 is F3CRec without its server part (Eq. 10)."""
    scale = _SCALES[data] if knob == EPSILON else 1.0
    values = [float(f"{point * scale:.6g}") for point in _POINTS[knob]]  # 0.003, not 3 * 1e-3
    return {
        value: ask.cell(data, "f3crec-no-server", within="fedmf")
        if knob == BETA and value == 0
        else ask.cell(data, "f3crec", {knob: value}, "fedmf")
        for value in values
    }


def figure_4(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet and a panel per knob."""
    made, columns = Made(), [level(metric, average(metric), {"metric": metric}) for metric in METRICS]
    for knob, label in KNOBS.items():
        cells = turned(ask, data, knob)
        rows = [
            Line({label: f"{value:g}"}, cell, {"data": data, "knob": knob, "value": value})
            for value, cell in cells.items()
        ]
        points = {value: found.spread(cell, average(METRICS[0])) for value, cell in cells.items()}
        scale = "log" if knob == KD_WEIGHT else "linear"
        made += sheet(found, f"{data}, FedMF, F3CRec by {label}", rows, [*columns, seeds])
        made += Made(panels=[Panel(data, label, METRICS[0], {"": points}, scale)])
    return made


# Table 1


@cache
def _blocks(data: str, data_dir: Path | None) -> tuple[dict[str, Any], ...]:
    protocol = Blocks(min_interactions=5 if data == "lastfm-2k" else 10)
    return tuple(block.statistics() for block in protocol.apply(protocol.restrict(load(data, data_dir)), 0))


def _counted(label: str, data: Sequence[str], data_dir: Path | None) -> Counts:
    found = _blocks(data[0], data_dir)[int(label[-1])]
    return {**found, "sparsity, %": 100 * found["sparsity"]}


def _methods(ask: Ask, data: str) -> list[Cell]:
    return [cell for name in backbones(ask) for cell in ask.cells(data, METHODS, name).values()]


def _points(ask: Ask, data: str) -> list[Cell]:
    return [cell for knob in KNOBS for cell in turned(ask, data, knob).values()]


_exhibit, _rows = partial(Exhibit.of, "f3crec"), partial(rows_alone, within="fedmf")
_ablated = [_exhibit(name, _rows(rows), by_data(partial(ablations, name))) for name, rows in ABLATIONS.items()]
F3CREC = Paper(
    "f3crec",
    recipes.F3CRecCell,
    (
        statistics("f3crec", "table-1", _counted),
        _exhibit("table-2", _methods, by_data(table_2), last=misprints),
        _ablated[0],
        *(_exhibit(name, _rows(saved.METHODS), partial(saved.users, name)) for name in ("table-4", "table-5")),
        _ablated[1],
        _exhibit("table-7", _rows(saved.SERVERS), saved.table_7),
        _exhibit("table-8", lambda ask, data: noisy(ask, data).values(), by_data(table_8)),
        _exhibit("figure-3", _methods, figure_3, last=misprints, grid=(1, 9.0, 3.4)),
        _exhibit("figure-4", _points, by_data(figure_4), grid=(3, 10.5, 2.8)),
    ),
)
