"""Table 2 shows six methods on each data set and backbone, beside the published numbers and what needs no learning."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgefr.config.sheet import Sheet
from edgefr.metrics.continual import MASKS
from edgefr.metrics.significance import holm
from edgefr.report.pages import Page, Record, Spread, number
from edgefr.studies.reproductions.cells import BySeed, Found, Pick, change, p_value
from edgefr.studies.reproductions.f3crec import published
from edgefr.studies.reproductions.f3crec.recipes import Ask, Cell
from edgefr.studies.reproductions.f3crec.results import (
    LABELS,
    average,
    average_group,
    average_history,
    kept,
    on_block,
    reference,
)
from privacy.progress import Progress

REFERENCES = ("popularity", "popularity, all blocks", "chance")
INCREMENTS = (1, 2, 3)

Cells = dict[str, Cell]
"""The methods of one data set and backbone, by strategy."""

P_NOTE = (
    "p: two-sided paired t-test; a pair is one seed's two averages over D1 to D3 (same seed: same splits, same base "
    "block), so it speaks of seeds, not of users or other data sets"
)
MASK_NOTE = (
    "ranked against all items so far; masked are the user's training and validation items of the block just learned, "
    "as in the released code; 'history masked' also masks all items of earlier blocks"
)


def needed(ask: Ask, data: str) -> list[Cell]:
    """Return all methods on all backbones."""
    return [c for b in backbones(ask) for c in ask.cells(data, b, published.METHODS).values()]


def backbones(ask: Ask) -> Sequence[str]:
    """Return the backbones that are asked for."""
    return [name for name in published.BACKBONES if name in (ask.chosen.backbones or published.BACKBONES)]


def table_2(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet per data set, backbone and metric."""
    sheets, records = [], []
    for name in data:
        for backbone in backbones(ask):
            for metric in published.METRICS:
                made = sheet(found, ask.cells(name, backbone, published.METHODS), metric)
                sheets.append(made[0])
                records += made[1]
            made = kept_sheet(found, ask.cells(name, backbone, published.METHODS))
            sheets.append(made[0])
            records += made[1]
    notes = [
        "mean: over D1 to D3; cells are mean ± sd over seeds; beside each the published number (paper)",
        P_NOTE,
        MASK_NOTE,
        "known users had appeared in an earlier block, new users had not; means of the increments, released mask",
        "popularity (of the current block, and of all blocks so far) and chance need no learning",
    ]
    misprinted = misprints(data)
    title = "F3CRec Table 2: six methods, three increments"
    return Page("table-2", title, sheets, records, [*notes, *([misprinted] if misprinted else [])])


def sheet(found: Found, cells: Cells, metric: str) -> tuple[Sheet, list[Record]]:
    """Make one data set, backbone and metric: a row per method, then the references.

    Return the records for the CSV, too.
    """
    first = next(iter(cells.values()))
    printed = published.TABLE_2.get((first.data, first.backbone, metric), {})
    rows, records = [], list[Record]()
    for name, cell in cells.items():
        blocks = {f"D{t}": found.spread(cell, on_block(t, metric)) for t in INCREMENTS}
        blocks["mean"] = found.spread(cell, average(metric))
        row, made = _method(found, cells, name, metric, blocks, printed.get(name))
        rows.append(row)
        records += made
    for name in REFERENCES:
        row, made = _reference(found, found.any_of(cells.values()), name, metric)
        rows.append(row)
        records += made
    title = f"{first.data}, {LABELS[first.backbone]}, {metric}"
    means = [found.spread(cell, average(metric)).mean for cell in cells.values()]
    best = [means.index(max(m for m in means if not math.isnan(m)))] if not all(map(math.isnan, means)) else []
    return Sheet(title, rows, ["method"], _caption(found, cells, metric), rules=[len(cells) - 1], bold=best), records


def kept_sheet(found: Found, cells: Cells) -> tuple[Sheet, list[Record]]:
    """Show what the last model still knows of every block, a row per method, which the paper's table does not ask."""
    first, rows, records = next(iter(cells.values())), [], list[Record]()
    for name, cell in cells.items():
        row = {"method": LABELS[name]}
        for mask in MASKS:
            for quantity in ("LA", "RA", "forgetting"):
                spread = found.spread(cell, kept(quantity, mask))
                row[f"{quantity}\n{mask}"] = str(spread)
                records.append(_record(cell, name, "NDCG@20", quantity, mask, spread))
            own, fine_tuned = (found.by_seed(c, kept("RA", mask)) for c in (cell, cells["ft"]))
            row[f"p of RA\n{mask}"] = "" if name == "ft" else number(p_value(own, fine_tuned), ".3f")
        rows.append(row)
    caption = (
        "LA: mean of a(t, t), each block right after it was learned; RA: mean of a(3, s), every block at the end; "
        "forgetting: mean over s < 3 of the best a(t, s) before the end, less a(3, s); p against FT, pairs by seed"
    )
    title = f"{first.data}, {LABELS[first.backbone]}: what is kept (NDCG@20, all blocks)"
    return Sheet(title, rows, ["method"], caption), records


def _method(
    found: Found, cells: Cells, name: str, metric: str, blocks: dict[str, Spread], printed: published.Row | None
) -> tuple[dict[str, str], list[Record]]:
    cell, fine_tuned = cells[name], found.by_seed(cells["ft"], average(metric))
    row = {"method": LABELS[name]}
    own = found.by_seed(cell, average(metric))
    better, p = change(own, fine_tuned), p_value(own, fine_tuned)
    was = dict(zip(("D1", "D2", "D3", "mean"), printed[:4], strict=True)) if printed else {}
    records = []
    for on, spread in blocks.items():
        row |= {on: str(spread), f"{on}\npaper": number(was.get(on))}
        records.append(_record(cell, name, metric, on, MASKS[0], spread) | {"published": was.get(on)})
    records[-1] |= {"over_ft_percent": better, "published_over_ft_percent": printed.improvement if printed else None}
    records[-1] |= {"p_against_ft": p}
    is_ft = name == "ft"
    row["over FT\n%"] = "" if is_ft else number(better, "+.2f")
    row["over FT %\npaper"] = "" if is_ft else number(printed.improvement if printed else None, "+.2f")
    row["p against\nFT"] = "" if is_ft else number(p, ".3f")
    parts: dict[str, tuple[Pick, str, str]] = {
        "mean, history\nmasked": (average_history(metric), MASKS[1], "all"),
        "mean, known\nusers": (average_group("known_users", metric), MASKS[0], "known"),
        "mean, new\nusers": (average_group("new_users", metric), MASKS[0], "new"),
    }
    for title, (pick, mask, users) in parts.items():
        spread = found.spread(cell, pick)
        row[title] = str(spread)
        records.append(_record(cell, name, metric, "mean", mask, spread, users))
    return row | {"seeds": str(blocks["mean"].number)}, records


def _reference(found: Found, cell: Cell, name: str, metric: str) -> tuple[dict[str, str], list[Record]]:
    """Show a reference, which was measured beside the first method; it is the same for all of them."""
    row, records = {"method": name}, []
    for on, block in {**{f"D{t}": t for t in INCREMENTS}, "mean": None}.items():
        spread = found.spread(cell, reference(name, metric, MASKS[0], block))
        row |= {on: str(spread), f"{on}\npaper": ""}
        records.append(_record(cell, name, metric, on, MASKS[0], spread))
    history = found.spread(cell, reference(name, metric, MASKS[1]))
    records.append(_record(cell, name, metric, "mean", MASKS[1], history))
    row |= dict.fromkeys(("over FT\n%", "over FT %\npaper", "p against\nFT"), "")
    row |= {"mean, history\nmasked": str(history), "mean, known\nusers": "", "mean, new\nusers": ""}
    return row | {"seeds": str(history.number)}, records


def _record(cell: Cell, method: str, metric: str, on: str, mask: str, spread: Spread, users: str = "all") -> Record:
    head = {"data": cell.data, "backbone": cell.backbone, "method": method, "metric": metric}
    return {
        **head,
        "on": on,
        "mask": mask,
        "users": users,
        "mean": spread.mean,
        "sd": spread.sd,
        "seeds": spread.number,
    }


def best_baseline(found: Found, cells: Cells, metric: str) -> tuple[str, BySeed] | None:
    """Return the method other than F3CRec with the highest mean, and its values; None where no run is finished."""
    values = {name: found.by_seed(cell, average(metric)) for name, cell in cells.items() if name != "f3crec"}
    means = {name: Spread.of(list(v.values())).mean for name, v in values.items() if v}
    means = {name: mean for name, mean in means.items() if not math.isnan(mean)}
    if not means:
        return None
    name = max(means, key=lambda n: means[n])
    return name, values[name]


def against(found: Found, cells: Cells, metric: str) -> list[str]:
    """Say by how much F3CRec is above each baseline that has runs, with p-values corrected together."""
    own = found.by_seed(cells["f3crec"], average(metric))
    rivals = {name: found.by_seed(cell, average(metric)) for name, cell in cells.items() if name != "f3crec"}
    pairs = {name: len(own.keys() & values.keys()) for name, values in rivals.items()}
    p = holm({name: p_value(own, values) for name, values in rivals.items() if pairs[name]})
    told = []
    for name, value in p.items():
        tested = f"p = {number(value, '.3f')} of {pairs[name]} pairs" if pairs[name] > 1 else "no p of one seed"
        told.append(f"{LABELS[name]} {number(change(own, rivals[name]), '+.2f')} % ({tested})")
    return told


def _caption(found: Found, cells: Cells, metric: str) -> str:
    """Compare F3CRec with every baseline, and say who does not beat popularity."""
    told = against(found, cells, metric)
    parts = [f"F3CRec against each baseline (p by Holm's correction over them): {', '.join(told)}"] if told else []
    popular = found.spread(found.any_of(cells.values()), reference(REFERENCES[1], metric, MASKS[0])).mean
    below = [LABELS[n] for n, c in cells.items() if found.spread(c, average(metric)).mean <= popular]
    if below:
        parts.append(f"not above popularity over all blocks: {', '.join(below)}")
    return "; ".join(parts)


def misprints(data: Sequence[str]) -> str | None:
    """A note on published averages that are not the mean of their own increments."""
    places = [
        f"{d} {LABELS[backbone]} {metric} ({', '.join(LABELS[m] for m in methods)})"
        for (d, backbone, metric), methods in published.MISPRINTED.items()
        if d in data
    ]
    if not places:
        return None
    return f"published averages that are not the mean of the published increments: {'; '.join(places)}"
