"""These functions pick what FCUCR's tables take from finished runs, and make the sheets that most of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Cell, Found, Pick, Summary, change, p_value
from edgefr.studies.reproductions.fcucr.published import METRICS, Pair

Ranking = Literal["sampled", "seen", "new", "full"]

LABELS = {
    "pfedrec": "PFedRec",
    "fedrap": "FedRAP",
    "gpfedrec": "GPFedRec",
    "dmi-gnn": "Fed-DMI-GNN",
    "hearint": "Fed-HearInt",
    "miasrec": "Fed-MiaSRec",
    "gru4rec": "Fed-GRU4Rec",
    "sasrec": "Fed-SASRec",
    "tisasrec": "Fed-TiSASRec",
    "fcucr-gru4rec": "FCUCR (GRU4Rec)",
    "fcucr-sasrec": "FCUCR (SASRec)",
    "fcucr-tisasrec": "FCUCR (TiSASRec)",
    "no-tasd": "w/o TASD",
    "no-iupr": "w/o IUPR",
    "no-both": "personal MLP alone",
    "history": "FCUCR (SASRec) + own history + popularity (ours)",
}
"""Names of rows as the paper prints them; the last two rows are not in the paper."""

REFERENCES = {
    "popularity": "popularity",
    "seen, then popularity": "seen, then popularity",
    "seen or in session, then popularity": "seen or in session, then popularity",
    "all seen, then popularity": "seen, in session or in the validation session, then popularity",
    "follows last item": "co-occurrence with the last item",
    "chance": "chance",
}
"""What learns nothing, by the name it has in a summary."""

MEASURES: dict[str, tuple[str, Ranking]] = {
    "HR@10": ("HR@10", "sampled"),
    "NDCG@10": ("NDCG@10", "sampled"),
    "HR@10, seen": ("HR@10", "seen"),
    "HR@10, new": ("HR@10", "new"),
    "NDCG@10, new": ("NDCG@10", "new"),
    "HR@10, all items": ("HR@10", "full"),
    "NDCG@10, all items": ("NDCG@10", "full"),
}
"""What is printed of every row: metric and ranking."""

NOTES = (
    "mean ± sd over seeds of the test sessions by the model of the best round on validation; (paper): as published, "
    "means of five runs; HR@10 and NDCG@10 rank the target among itself and 100 sampled items",
    "seen: the target is among the user's training items or came earlier in its session; new: neither",
    "all items: the target is ranked among all items of training sessions, nothing left out",
)
P_NOTE = (
    "p: two-sided paired t-test; a pair is one seed's two values (same seed: same candidates, same draws), so it "
    "speaks of seeds, not of users or other data sets"
)


@dataclass(frozen=True)
class Line:
    """A line is one row of a table.

    `printed`: the published pair, None where there is none. `more`: columns of its own.
    """

    label: str
    cell: Cell
    printed: Pair | None = None
    more: Mapping[str, str] = field(default_factory=dict)


def picked(metric: str, ranking: Ranking, stage: str | None = None) -> Pick:
    """Pick a test metric of a stage or reference (None: the model); NaN where it was not measured.

    >>> picked("HR@10", "sampled")({"stage": "a", "split": "main", "stages": {"main": {"a": {"HR@10": 0.5}}}})
    0.5
    """

    def pick(summary: Summary) -> float:
        name = summary["stage"] if stage is None else stage
        if ranking == "full":
            values = summary["full_ranking"].get(summary["split"], {})
        elif ranking == "sampled":
            values = summary["stages" if stage is None else "references"][summary["split"]]
        else:
            values = {name: summary["sessions"]["groups"].get(name, {}).get(ranking, {})}
        return float(values.get(name, {}).get(metric, math.nan))

    return pick


def measure(name: str, stage: str | None = None) -> Pick:
    """Pick one of `MEASURES`."""
    return picked(*MEASURES[name], stage)


def best_round(summary: Summary) -> float:
    """Return the round whose model is tested."""
    return float(summary["sessions"]["best_round"])


def seconds_per_round(summary: Summary) -> float:
    """Return the wall seconds that the clients of a round trained and the server worked, without evaluation."""
    return summary["engine"]["train_seconds"] / max(summary["sessions"]["rounds"], 1)


def levels(found: Found, title: str, column: str, lines: Sequence[Line]) -> tuple[Sheet, list[Record]]:
    """Make a row per line and, below a rule, one per reference; `column` is the title of the first column."""
    rows, records = [], list[Record]()
    for line in lines:
        row = {column: line.label}
        for name in MEASURES:
            spread = found.spread(line.cell, measure(name))
            row[_title(name)] = str(spread)
            printed = line.printed[METRICS.index(name)] if line.printed and name in METRICS else None
            if name in METRICS:
                row[f"{name}\n(paper)"] = number(printed)
            records.append(_record(line.cell, line.label, name, spread) | {"published": printed})
        rounds = found.spread(line.cell, best_round)
        rows.append({**row, "best\nround": number(rounds.mean, ".0f"), **line.more, "seeds": str(rounds.number)})
    ruled = len(rows) - 1
    for name in REFERENCES:
        source = _measured_most(found, lines, name)
        if source is not None:
            row, own = _reference(found, source, column, name, list(rows[0]))
            rows.append(row)
            records += own
    means = [found.spread(line.cell, measure(METRICS[0])).mean for line in lines]
    known = [mean for mean in means if not math.isnan(mean)]
    return Sheet(title, rows, [column], rules=[ruled], bold=[means.index(max(known))] if known else []), records


def _measured_most(found: Found, lines: Sequence[Line], name: str) -> Cell | None:
    """Return the cell that a reference is read from: the one with most seeds that have it; None where none has."""
    counts = {line.cell: found.spread(line.cell, measure("HR@10", name)).number for line in lines}
    best = max(counts, key=lambda cell: counts[cell])
    return best if counts[best] else None


def _title(name: str) -> str:
    return name.replace(", ", "\n")


def _reference(
    found: Found, cell: Cell, column: str, name: str, titles: Sequence[str]
) -> tuple[dict[str, str], list[Record]]:
    """Show a reference, measured beside the runs of a cell; the same for all runs of a seed."""
    spreads = {m: found.spread(cell, measure(m, name)) for m in MEASURES}
    row = dict.fromkeys(titles, "") | {column: REFERENCES[name]} | {_title(m): str(s) for m, s in spreads.items()}
    row["seeds"] = str(spreads[METRICS[0]].number)
    return row, [_record(cell, name, m, spread) for m, spread in spreads.items()]


def _record(cell: Cell, row: str, name: str, spread: Spread) -> Record:
    return {"data": cell.data, "row": row, "measure": name, **spread.record()}


def compared(found: Found, title: str, line: Line, against: Line) -> tuple[Sheet, list[Record]]:
    """Compare one line with another, measure by measure, over the seeds that both have."""
    rows, records = [], list[Record]()
    for name in MEASURES:
        own, other = (found.by_seed(each.cell, measure(name)) for each in (line, against))
        gain, p, printed = change(own, other), p_value(own, other), _printed_gain(name, line, against)
        rows.append(
            {
                "measure": name,
                against.label: str(Spread.of(list(other.values()))),
                line.label: str(Spread.of(list(own.values()))),
                "gain\n%": number(gain, "+.1f"),
                "p": as_p(p),
                "gain %\n(paper)": number(printed, "+.1f"),
            }
        )
        head: dict[str, Any] = {"data": line.cell.data, "row": line.label, "against": against.label, "measure": name}
        pairs = len(own.keys() & other.keys())
        records.append({**head, "gain_percent": gain, "p": p, "pairs": pairs, "published_gain_percent": printed})
    return Sheet(title, rows, ["measure"]), records


def _printed_gain(name: str, line: Line, against: Line) -> float | None:
    if name not in METRICS or line.printed is None or against.printed is None:
        return None
    at = METRICS.index(name)
    return 100 * (line.printed[at] / against.printed[at] - 1)


def survives(found: Found, line: Line, against: Line) -> str:
    """Answer in a sentence: is the gain there, and is it there on targets that are new to the user?"""
    parts = []
    for name, where in (("HR@10", "on all targets"), ("HR@10, new", "on new targets"), ("HR@10, seen", "on repeats")):
        own, other = (found.by_seed(each.cell, measure(name)) for each in (line, against))
        parts.append(f"{where} {told(change(own, other), p_value(own, other))}")
    return f"{line.label} against {against.label}, {line.cell.data}, HR@10: {'; '.join(parts)}"


def told(gain: float, p: float) -> str:
    """Say a gain in plain words.

    >>> told(12.3, 0.01), told(-4.0, 0.01)
    ('+12.3 % (p 0.010)', '-4.0 %, worse (p 0.010)')
    >>> told(12.3, 0.2), told(5.0, math.nan)
    ('+12.3 %, not told from chance (p 0.200)', '+5.0 %, of one seed')
    """
    if math.isnan(gain):
        return "not run"
    if math.isnan(p):
        return f"{gain:+.1f} %, of one seed"
    if p >= 0.05:
        return f"{gain:+.1f} %, not told from chance (p {as_p(p)})"
    return f"{gain:+.1f} %{', worse' if gain < 0 else ''} (p {as_p(p)})"


def as_p(p: float) -> str:
    """Write a p in a cell.

    >>> as_p(0.0123), as_p(0.0002), as_p(math.nan)
    ('0.012', '< 0.001', '-')
    """
    return "< 0.001" if p < 0.001 else number(p, ".3f")


_ASKED = (
    *((name, "HR@10") for name in REFERENCES if name != "chance"),
    ("popularity", "HR@10, new"),
    ("follows last item", "HR@10, new"),
)


def beaten(found: Found, lines: Sequence[Line]) -> list[str]:
    """Write a sentence per reference: which lines have a higher mean HR@10 (of those that were run), and which do not.

    For popularity and co-occurrence it also says so where the target is new to the user.
    """
    run = [line for line in lines if found.by_seed(line.cell, best_round)]
    if not run:
        return []
    out = []
    for name, where in _ASKED:
        source = _measured_most(found, run, name)
        if source is None:
            continue
        level = found.spread(source, measure(where, name)).mean
        better = [line.label for line in run if found.spread(line.cell, measure(where)).mean > level]
        worse = [line.label for line in run if line.label not in better]
        parts = [f"beaten by {', '.join(better)}" if better else "beaten by none"]
        parts += [f"not beaten by {', '.join(worse)}"] if worse and better else []
        out.append(f"{REFERENCES[name]} ({run[0].cell.data}, {where} {level:.4f}): {'; '.join(parts)}")
    return out
