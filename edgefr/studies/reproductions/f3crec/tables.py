"""F3CRec's tables and figures compare methods over blocks, take its parts away, add noise, and turn one knob at a time.

Averages are over the increments D1 to D3. Tables 4, 5 and 7 are in `moved`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from edgefr.studies.reproductions.cells import Ask, BySeed, Cell, FinishedRuns, Pick, Summary, change, p_value
from edgefr.studies.reproductions.exhibits import Exhibit, Paper, by_data
from edgefr.studies.reproductions.f3crec import rank_moves as moved
from edgefr.studies.reproductions.f3crec import recipes
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
    return lambda summary: summary["metrics" if mask == MASKS[0] else "metrics_history_masked"][metric]


def on_block(block: int, metric: str) -> Pick:
    """Pick a metric right after a block, on its test items."""
    return lambda summary: summary["blocks"][block]["metrics"][metric]


def average_group(group: str, metric: str) -> Pick:
    """`known_users` or `new_users` alone: the mean over the increments where there are any."""

    def pick(summary: Summary) -> float:
        values = [block[group].get(metric) for block in summary["blocks"][1:]]
        known = [value for value in values if value is not None and not math.isnan(value)]
        return float(np.mean(known)) if known else math.nan

    return pick


def reference(name: str, metric: str, mask: str, block: int | None = None) -> Pick:
    """Pick what a reference without learning reaches: on one block, or the mean over the increments."""
    if block is None:
        return lambda summary: summary["references"][name][mask][metric]
    return lambda summary: summary["blocks"][block]["references"][name][mask][metric]


def kept(quantity: str, mask: str) -> Pick:
    """Pick LA, RA or forgetting of NDCG@20 over all blocks, D0 included (`edgefr.metrics.continual`)."""
    return lambda summary: summary["continual"][mask][quantity]


# Table 2


def table_2(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet per backbone and metric, and one of what is kept."""
    made = Made()
    for backbone in backbones(ask):
        cells = ask.cells(data, METHODS, backbone)
        for metric in METRICS:
            made += compared(found, cells, metric)
        made += kept_sheet(found, cells)
    return made


def backbones(ask: Ask) -> list[str]:
    """Return the backbones that are asked for."""
    return [name for name in BACKBONES if name in (ask.chosen.backbones or BACKBONES)]


def compared(found: FinishedRuns, cells: Cells, metric: str) -> Made:
    """Make one data set, backbone and metric: a row per method, then the references."""
    data, backbone = cells["ft"].data, cells["ft"].within
    head = {"data": data, "backbone": backbone}
    titles = ("over FT\n%", "over FT %\npaper", "p against\nFT")
    columns = [
        *(level(f"D{t}", on_block(t, metric), _words(metric, f"D{t}"), f"D{t}\npaper") for t in INCREMENTS),
        level("mean", average(metric), _words(metric), "mean\npaper"),
        versus(cells["ft"], average(metric), titles, ("over_ft", "p_against_ft")),
        level("mean, history\nmasked", average(metric, MASKS[1]), _words(metric, mask=MASKS[1])),
        level("mean, known\nusers", average_group("known_users", metric), _words(metric, users="known")),
        level("mean, new\nusers", average_group("new_users", metric), _words(metric, users="new")),
        seeds,
    ]
    below = [
        (Line({"method": name}, cell, {**head, "method": name}), _reference(name, metric))
        for name in REFERENCES
        if (cell := found.fullest(cells.values(), reference(name, metric, MASKS[0])))
    ]
    rows = lines(cells, head, published("f3crec", "table-2"), (data, backbone, metric))
    title = f"{data}, {LABELS[backbone]}, {metric}"
    return sheet(found, title, rows, columns, below, _caption(found, cells, metric), average(metric))


def _reference(name: str, metric: str) -> list[Column]:
    """Return the columns of a reference, which was measured beside a method."""
    return [
        *(level(f"D{t}", reference(name, metric, MASKS[0], t), _words(metric, f"D{t}")) for t in INCREMENTS),
        level("mean", reference(name, metric, MASKS[0]), _words(metric)),
        level("mean, history\nmasked", reference(name, metric, MASKS[1]), _words(metric, mask=MASKS[1])),
        seeds,
    ]


def _words(metric: str, on: str = "mean", mask: str = MASKS[0], users: str = "all") -> Record:
    return {"metric": metric, "on": on, "mask": mask, "users": users}


def kept_sheet(found: FinishedRuns, cells: Cells) -> Made:
    """Show what the last model still knows of every block, a row per method, which the paper's table does not ask."""
    first, columns = cells["ft"], list[Column]()
    for mask in MASKS:
        for quantity in ("LA", "RA", "forgetting"):
            columns.append(level(f"{quantity}\n{mask}", kept(quantity, mask), _words(METRICS[0], quantity, mask)))
        columns.append(partial(_p_of_kept, first, mask))
    caption = (
        "LA: mean of a(t, t), each block right after it was learned; RA: mean of a(3, s), every block at the end; "
        "forgetting: mean over s < 3 of the best a(t, s) before the end, less a(3, s); p against FT, pairs by seed"
    )
    title = f"{first.data}, {LABELS[first.within]}: what is kept (NDCG@20, all blocks)"
    rows = lines(cells, {"data": first.data, "backbone": first.within})
    return sheet(found, title, rows, columns, caption=caption)


def _p_of_kept(base: Cell, mask: str, found: FinishedRuns, line: Line, records: list[Record]) -> Row:
    own, other = (found.by_seed(cell, kept("RA", mask)) for cell in (line.cell, base))
    return {f"p of RA\n{mask}": "" if line.cell == base else number(p_value(own, other), ".3f")}


def _rivals(found: FinishedRuns, cells: Cells, metric: str) -> dict[str, BySeed]:
    return {name: found.by_seed(cell, average(metric)) for name, cell in cells.items() if name != "f3crec"}


def _caption(found: FinishedRuns, cells: Cells, metric: str) -> str:
    """Compare F3CRec with every baseline, with p-values corrected together, and say who does not beat popularity."""
    own, rivals = found.by_seed(cells["f3crec"], average(metric)), _rivals(found, cells, metric)
    pairs = {name: len(own.keys() & values.keys()) for name, values in rivals.items()}
    told = []
    for name, p in holm({name: p_value(own, values) for name, values in rivals.items() if pairs[name]}).items():
        tested = f"p = {number(p, '.3f')} of {pairs[name]} pairs" if pairs[name] > 1 else "no p of one seed"
        told.append(f"{LABELS[name]} {number(change(own, rivals[name]), '+.2f')} % ({tested})")
    parts = [f"F3CRec against each baseline (p by Holm's correction over them): {', '.join(told)}"] if told else []
    popularity = reference("popularity, all blocks", metric, MASKS[0])
    source = found.fullest(cells.values(), popularity)
    if source is not None:
        popular = found.spread(source, popularity).mean
        below = [LABELS[n] for n, c in cells.items() if found.spread(c, average(metric)).mean <= popular]
        parts += [f"not above popularity over all blocks: {', '.join(below)}"] if below else []
    return "; ".join(parts)


def misprinted() -> dict[tuple[str, ...], list[str]]:
    """Return the methods whose printed average is not the mean of the printed increments, by cells of Table 2."""
    found: dict[tuple[str, ...], list[str]] = {}
    for (*place, row), line in published("f3crec", "table-2").items():
        d1, d2, d3, mean, _ = (value or 0.0 for value in line.values())
        if abs((d1 + d2 + d3) / 3 - mean) > 0.0002:
            found.setdefault(tuple(place), []).append(row)
    return found


def misprints(data: Sequence[str]) -> list[str]:
    """Return a note on published averages that are not the mean of their own increments, where there are some."""
    places = [
        f"{d} {LABELS[backbone]} {metric} ({', '.join(LABELS[m] for m in methods)})"
        for (d, backbone, metric), methods in misprinted().items()
        if d in data
    ]
    said = "published averages that are not the mean of the published increments"
    return [f"{said}: {'; '.join(places)}"] if places else []


# Tables 3, 6 and 8: FedMF


def ablations(name: str, ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make Table 3 or 6: a row per variant, compared with F3CRec."""
    cells, columns = ask.cells(data, ABLATIONS[name], "fedmf"), list[Column]()
    for metric in METRICS:
        titles = (f"{metric}\ndecrease %", f"{metric}\ndecrease % paper", f"{metric}\np against F3CRec")
        columns += [
            level(metric, average(metric), {"metric": metric}, f"{metric}\npaper"),
            versus(cells["f3crec"], average(metric), titles, ("decrease", "p_against_f3crec")),
            level(f"{metric}\nhistory masked", average(metric, MASKS[1])),
        ]
    rows = lines(cells, {"data": data, "backbone": "fedmf"}, published("f3crec", name), (data,))
    return sheet(found, f"{data}, FedMF", rows, [*columns, seeds])


def noisy(ask: Ask, data: str) -> dict[float, Cell]:
    """Return F3CRec by the scale of the Laplace noise; 0 is the run without noise."""
    noise = {"privacy.mechanism": "laplace", "privacy.trust": "local"}
    return {
        scale: ask.cell(data, "f3crec", {**noise, "privacy.scale": scale} if scale else {}, "fedmf") for scale in NOISE
    }


def table_8(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a row per scale of the noise."""
    columns = [
        column
        for metric in METRICS
        for column in (
            level(metric, average(metric), {"metric": metric}, f"{metric}\npaper"),
            level(f"{metric}\nhistory masked", average(metric, MASKS[1])),
        )
    ]
    printed = published("f3crec", "table-8")
    rows = [
        Line({"noise\nlambda": f"{scale:g}"}, cell, {"data": data, "noise": scale}, printed[data, f"{scale:g}"])
        for scale, cell in noisy(ask, data).items()
    ]
    return sheet(found, f"{data}, FedMF, F3CRec", rows, [*columns, seeds])


# Figures 3 and 4


def figure_3(ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Make a sheet and a panel per metric: how far F3CRec is above the second best, per data set and backbone."""
    made = Made()
    for metric in METRICS:
        records = [_improvement(ask, found, name, backbone, metric) for name in data for backbone in BACKBONES]
        title = f"F3CRec above the second best, {metric}"
        shown = Sheet(title, [_shown(record) for record in records], ["data set, backbone"])
        bars = {
            label: {
                f"{record['data']}\n{LABELS[record['backbone']]}": Spread(record[value], math.nan, 1)
                for record in records
            }
            for label, value in (("here", "improvement_percent"), ("paper", "published_improvement_percent"))
        }
        panel = Panel(metric, "", "improvement over the\nsecond best, %", bars, kind="bar")
        made += Made([shown] if records else [], records, panels=[panel])
    return made


def _improvement(ask: Ask, found: FinishedRuns, data: str, backbone: str, metric: str) -> Record:
    cells = ask.cells(data, METHODS, backbone)
    means = {
        name: spread.mean
        for name in METHODS
        if name != "f3crec" and not math.isnan((spread := found.spread(cells[name], average(metric))).mean)
    }
    best = max(means, key=lambda name: means[name], default=None)
    own = found.by_seed(cells["f3crec"], average(metric)) if best else {}
    other = found.by_seed(cells[best], average(metric)) if best else {}
    printed = {
        row: line["mean"] or 0.0
        for (*place, row), line in published("f3crec", "table-2").items()
        if place == [data, backbone, metric]
    }
    second = max((name for name in printed if name != "f3crec"), key=lambda name: printed[name])
    return {
        "data": data,
        "backbone": backbone,
        "metric": metric,
        "second": best,
        "improvement_percent": change(own, other),
        "p": p_value(own, other),
        "pairs": len(own.keys() & other.keys()),
        "published_second": second,
        "published_improvement_percent": 100 * (printed["f3crec"] / printed[second] - 1),
    }


def _shown(record: Record) -> Row:
    return {
        "data set, backbone": f"{record['data']}, {LABELS[record['backbone']]}",
        "improvement\n%": number(record["improvement_percent"], "+.2f"),
        "improvement %\npaper": number(record["published_improvement_percent"], "+.2f"),
        "second best": LABELS.get(record["second"], "-"),
        "second best\npaper": LABELS[record["published_second"]],
        "p": number(record["p"], ".3f"),
        "pairs": str(record["pairs"]),
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


def _of(rows: Sequence[str]) -> Callable[[Ask, str], Iterable[Cell]]:
    return lambda ask, data: ask.cells(data, rows, "fedmf").values()


def _methods(ask: Ask, data: str) -> list[Cell]:
    return [cell for name in backbones(ask) for cell in ask.cells(data, METHODS, name).values()]


def _points(ask: Ask, data: str) -> list[Cell]:
    return [cell for knob in KNOBS for cell in turned(ask, data, knob).values()]


_exhibit = partial(Exhibit.of, "f3crec")
_ablated = [_exhibit(name, _of(rows), by_data(partial(ablations, name))) for name, rows in ABLATIONS.items()]
F3CREC = Paper(
    "f3crec",
    recipes.F3CRecCell,
    (
        statistics("f3crec", "table-1", _counted),
        _exhibit("table-2", _methods, by_data(table_2), last=misprints),
        _ablated[0],
        *(_exhibit(name, _of(moved.METHODS), partial(moved.users, name)) for name in ("table-4", "table-5")),
        _ablated[1],
        _exhibit("table-7", _of(moved.SERVERS), moved.table_7),
        _exhibit("table-8", lambda ask, data: noisy(ask, data).values(), by_data(table_8)),
        _exhibit("figure-3", _methods, figure_3, last=misprints, grid=(1, 9.0, 3.4)),
        _exhibit("figure-4", _points, by_data(figure_4), grid=(3, 10.5, 2.8)),
    ),
)
