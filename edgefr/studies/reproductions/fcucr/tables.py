"""FCUCR's tables show backbones with and without it, federated baselines, its parts, and one knob at a time.

Figure 2 is in `forgetting`. References that learn nothing stand below every table of levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.data.datasets import load
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Pick, Summary, at, change, p_value
from edgefr.studies.reproductions.exhibits import Exhibit, Paper, by_data, rows_alone
from edgefr.studies.reproductions.fcucr import recipes
from edgefr.studies.reproductions.fcucr.forgetting import figure_2
from edgefr.studies.reproductions.fcucr.recipes import BACKBONES, BASELINES, FIRST_SESSION, LABELS
from edgefr.studies.reproductions.published import published, specification
from edgefr.studies.reproductions.statistics import Counts, statistics
from edgefr.studies.reproductions.tables import Column, Line, Made, Panel, Row, level, seeds, sheet

Ranking = Literal["sampled", "seen", "new", "full"]

METRICS = ("HR@10", "NDCG@10")
TABLE_2 = (*BASELINES, *(name for b in BACKBONES for name in (b, f"fcucr-{b}")), "history")
TABLE_3 = ("fcucr-sasrec", "no-tasd", "no-iupr", "no-both", "sasrec")
Pairs = Sequence[tuple[str, str]]
ADDED: Pairs = [(f"fcucr-{backbone}", backbone) for backbone in BACKBONES]
TAKEN: Pairs = [("fcucr-sasrec", "no-tasd"), ("fcucr-sasrec", "no-iupr"), ("no-both", "sasrec")]
"""w/o TASD: no self-distillation; w/o IUPR: no prototypes; the last pair takes both away, then the MLP too."""
REFERENCES: Mapping[str, str] = specification("fcucr")["references"]
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
_ASKED = (
    *((name, "HR@10") for name in REFERENCES if name != "chance"),
    ("popularity", "HR@10, new"),
    ("follows last item", "HR@10, new"),
)


def measure(name: str, stage: str | None = None) -> Pick:
    """Pick one of `MEASURES` of a stage or reference (None: the model), of test items; NaN where it was not measured.

    >>> measure("HR@10")({"stage": "a", "split": "main", "stages": {"main": {"a": {"HR@10": 0.5}}}})
    0.5
    """
    metric, ranking = MEASURES[name]

    def pick(summary: Summary) -> float:
        of = summary["stage"] if stage is None else stage
        if ranking == "full":
            values = summary["full_ranking"].get(summary["split"], {}).get(of, {})
        elif ranking == "sampled":
            values = summary["stages" if stage is None else "references"][summary["split"]].get(of, {})
        else:
            values = summary["sessions"]["groups"].get(of, {}).get(ranking, {})
        return float(values.get(metric, math.nan))

    return pick


best_round = at("sessions", "best_round")


def seconds_per_round(summary: Summary) -> float:
    """Return the wall seconds that the clients of a round trained and the server worked, without evaluation."""
    return float(summary["engine"]["train_seconds"] / max(summary["sessions"]["rounds"], 1))


# Levels and gains


def line(column: str, label: str, cell: Cell, printed: Mapping[str, float | None] | None = None) -> Line:
    """Return a row of a table of levels."""
    return Line({column: label}, cell, {"data": cell.data, "row": label}, printed or {})


def lines(ask: Ask, data: str, rows: Iterable[str]) -> dict[str, Line]:
    """Return rows by name, with what the paper prints for them."""
    printed = {**published("fcucr", "table-2"), **published("fcucr", "table-3")}
    return {row: line("model", LABELS[row], c, printed.get((data, row))) for row, c in ask.cells(data, rows).items()}


def levels(found: FinishedRuns, title: str, of: Sequence[Line], more: Sequence[Column] = ()) -> Made:
    """Make a row per line and, below a rule, one per reference; `more`: further columns."""
    (column,), cells = of[0].head, [each.cell for each in of]
    columns = [
        level(_title(name), measure(name), {"measure": name}, f"{name}\n(paper)" if name in METRICS else "")
        for name in MEASURES
    ]
    columns.append(level("best\nround", best_round, form=lambda spread: number(spread.mean, ".0f")))
    below = [
        (
            Line({column: words}, source, {"data": source.data, "row": name}),
            [*(level(_title(m), measure(m, name), {"measure": m}) for m in MEASURES), seeds],
        )
        for name, words in REFERENCES.items()
        if (source := found.fullest(cells, measure("HR@10", name)))
    ]
    return sheet(found, title, of, [*columns, *more, seeds], below, best=measure(METRICS[0]))


def _title(name: str) -> str:
    return name.replace(", ", "\n")


def compared(found: FinishedRuns, title: str, one: Line, other: Line) -> Made:
    """Compare one line with another over the seeds that both have; say whether the gain is there on new targets too."""
    (label,), (against,) = one.head.values(), other.head.values()
    rows, records = [], list[Record]()
    for name in MEASURES:
        own, base = (found.by_seed(each.cell, measure(name)) for each in (one, other))
        gain, p, before, after = change(own, base), p_value(own, base), other.printed.get(name), one.printed.get(name)
        printed = 100 * (after / before - 1) if before and after else None
        row = {"measure": name, against: str(Spread.of(list(base.values()))), label: str(Spread.of(list(own.values())))}
        row |= {"gain\n%": number(gain, "+.1f"), "p": as_p(p), "gain %\n(paper)": number(printed, "+.1f")}
        rows.append(row)
        head: dict[str, Any] = {"data": one.cell.data, "row": label, "against": against, "measure": name}
        pairs = len(own.keys() & base.keys())
        records.append({**head, "gain_percent": gain, "p": p, "pairs": pairs, "published_gain_percent": printed})
    places = {"HR@10": "on all targets", "HR@10, new": "on new targets", "HR@10, seen": "on repeats"}
    by_name = {record["measure"]: record for record in records}
    parts = [f"{where} {told(by_name[m]['gain_percent'], by_name[m]['p'])}" for m, where in places.items()]
    said = f"{label} against {against}, {one.cell.data}, HR@10: {'; '.join(parts)}"
    return Made([Sheet(title, rows, ["measure"])], records, [said])


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


def beaten(found: FinishedRuns, of: Iterable[Line]) -> list[str]:
    """Write a sentence per reference: which lines have a higher mean HR@10 (of those that were run), and which do not.

    For popularity and co-occurrence it also says so where the target is new to the user.
    """
    run = {next(iter(each.head.values())): each.cell for each in of if found.by_seed(each.cell, best_round)}
    out = []
    for name, where in _ASKED:
        source = found.fullest(run.values(), measure("HR@10", name))
        if source is None:
            continue
        mean = found.spread(source, measure(where, name)).mean
        better = [label for label, cell in run.items() if found.spread(cell, measure(where)).mean > mean]
        worse = [label for label in run if label not in better]
        parts = [f"beaten by {', '.join(better)}" if better else "beaten by none"]
        parts += [f"not beaten by {', '.join(worse)}"] if worse and better else []
        out.append(f"{REFERENCES[name]} ({source.data}, {where} {mean:.4f}): {'; '.join(parts)}")
    return out


# Tables 2 and 3


def gains(title: str, rows: Sequence[str], said: str, pairs: Pairs, ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make Table 2 or 3: a sheet of levels, then one per pair of rows: what the one gains over the other."""
    of = lines(ask, data, rows)
    made = levels(found, f"{data}{title}: test sessions", list(of.values()))
    for one, other in pairs:
        words = said.format(one=LABELS[one], other=LABELS[other])
        made += compared(found, f"{data}: {words}", of[one], of[other])
    return made + Made(said=beaten(found, of.values()))


# One knob of FCUCR (SASRec) at a time

ROW = "fcucr-sasrec"
WINDOW, INTERVAL, TOP_K, LAMBDA = "knowledge.window", "knowledge.interval", "knowledge.top_k", "model.distill_weight"
USUAL: Mapping[str, Any] = {WINDOW: None, INTERVAL: 1, TOP_K: 20, LAMBDA: 10.0}
"""What FCUCR has where nothing is said: that point is Table 2's run."""
POINTS: Mapping[str, Sequence[Any]] = {
    WINDOW: (1, 2, 3, 5, None),
    INTERVAL: (1, 2, 3, 4, 5),
    TOP_K: (1, 5, 20, 100, 200, 1000),
    LAMBDA: (0.1, 1.0, 5.0, 10.0, 20.0, 50.0),
}
"""Rounds whose prototypes are kept (Table 4; None: all), rounds between transfers (Table 5), k and lambda."""
ROUNDS: Mapping[Any, str] = {1: "this round", 2: "last 2", 3: "last 3", 5: "last 5", None: "all rounds"}
HIT = "test HR@10"
UPLOADS, REPLIES = "noise on uploads", "noise on received prototypes"
NOISE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Standard deviations of the noise of Figures 7 to 10 (§5.6, D.2)."""


def turned(ask: Ask, data: str, knob: str) -> dict[Any, Cell]:
    """Return FCUCR by the value of one knob."""
    return {v: ask.cell(data, ROW, {} if v == USUAL[knob] else {knob: v}) for v in POINTS[knob]}


def rounds(table: str, knob: str, ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make Table 4 or 5: a row per number of rounds."""
    printed = published("fcucr", table)
    of = [
        line(
            "rounds",
            ROUNDS[value] if knob == WINDOW else str(value),
            cell,
            printed.get((data, "all" if value is None else str(value))),
        )
        for value, cell in turned(ask, data, knob).items()
    ]
    paper = "seconds\n(paper)" if of[0].printed else None
    taken = level("seconds\nper round", seconds_per_round, None, paper, lambda spread: number(spread.mean, ".2f"))
    made = levels(found, f"{data}, {knob.rsplit('.', 1)[-1]}", of, [taken])
    return made + Made(said=beaten(found, of))


def knobs(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet and a panel per knob."""
    made = Made()
    for knob, label in ((TOP_K, "k"), (LAMBDA, "lambda")):
        cells, title = turned(ask, data, knob), f"{data}, {label}"
        of = [line(label, f"{label} {v:g}", cell) for v, cell in cells.items()]
        own = levels(found, f"{data}, FCUCR (SASRec) by {label}", of)
        made += _drawn(found, own, {"knob": knob}, beaten(found, of), Panel(title, title, HIT, {}, "log"), cells)
    return made


def _drawn(
    found: FinishedRuns, own: Made, words: Record, said: Sequence[str], panel: Panel, cells: Mapping[float, Cell]
) -> Made:
    """Return a table with further words in its records, with what is said of it and its picture by value of a knob."""
    curves = {
        label: {value: found.spread(cell, measure(name)) for value, cell in cells.items()}
        for name, label in (("HR@10", "all targets"), ("HR@10, new", "new to the user"))
    }
    return Made(own.sheets, [record | words for record in own.records], said, [replace(panel, curves=curves)])


def noisy(ask: Ask, data: str) -> dict[str, dict[float, Cell]]:
    """Return FCUCR by the standard deviation of noise, on uploads (the paper) and on replies (its code); 0: none."""
    # sizes would leave devices unprotected
    plain = {"aggregation.weights": "uniform"} if ask.fidelity == "paper" else {}
    out: dict[str, dict[float, Cell]] = {kind: {0.0: ask.cell(data, ROW, plain)} for kind in (UPLOADS, REPLIES)}
    for std in NOISE:
        scale = float(f"{std / math.sqrt(2):.6g}")  # b of a Laplace of this standard deviation
        noise = {"privacy.mechanism": "paper-laplace", "privacy.trust": "local", "privacy.scale": scale}
        out[UPLOADS][std] = ask.cell(data, ROW, {**plain, **noise})
        out[REPLIES][std] = ask.cell(data, ROW, {**plain, "model.receiver_noise": std})
    return out


def nominal(std: float) -> float:
    """Return the paper's epsilon: one release, of sensitivity 1, as if the noise were Gaussian, delta = 1e-5 (§5.6).

    >>> nominal(0.1), nominal(0.0)
    (48.45, inf)
    """
    return round(math.sqrt(2 * math.log(1.25 / 1e-5)) / std, 2) if std else math.inf


def noise(ask: Ask, found: FinishedRuns, data: str) -> Made:
    """Make a sheet and a panel per kind of noise."""
    made = Made()
    for kind, cells in noisy(ask, data).items():
        of = [line("noise", f"std {std:g}", cell) for std, cell in cells.items()]
        own = levels(found, f"{data}, {kind}", of, [_epsilon])
        said = [f"{kind}: {sentence}" for sentence in beaten(found, of)]
        panel = Panel(f"{data}, {kind}", "standard deviation", HIT, {})
        made += _drawn(found, own, {"noise": kind}, said, panel, cells)
    return made


def _epsilon(found: FinishedRuns, one: Line, records: list[Record]) -> Row:
    return {"epsilon\n(paper)": f"{nominal(float(one.head['noise'].removeprefix('std '))):g}"}


@cache
def _counted(data: str, data_dir: Path | None) -> Counts:
    table = SessionsProtocol().restrict(load(data, data_dir))
    assert table.session is not None
    found, sessions = table.statistics(), len(np.unique(table.session))
    return {**found, "sessions": sessions, "mean length": found["interactions"] / sessions}


def _turned(which: Sequence[str], ask: Ask, data: str) -> list[Cell]:
    return [cell for knob in which for cell in turned(ask, data, knob).values()]


def _noisy(ask: Ask, data: str) -> list[Cell]:
    return list(dict.fromkeys(cell for cells in noisy(ask, data).values() for cell in cells.values()))


_exhibit: Any = partial(Exhibit.of, "fcucr")
FCUCR = Paper(
    "fcucr",
    recipes.FCUCRCell,
    (
        statistics("fcucr", "table-1", lambda label, data, data_dir: _counted(data[0], data_dir)),
        _exhibit(
            "table-2",
            rows_alone(TABLE_2),
            by_data(partial(gains, "", TABLE_2, "what FCUCR adds to {other}", ADDED)),
        ),
        _exhibit(
            "table-3",
            rows_alone(TABLE_3),
            by_data(partial(gains, ", SASRec", TABLE_3, "{one} against {other}", TAKEN)),
        ),
        _exhibit("table-4", partial(_turned, [WINDOW]), by_data(partial(rounds, "table-4", WINDOW))),
        _exhibit("table-5", partial(_turned, [INTERVAL]), by_data(partial(rounds, "table-5", INTERVAL))),
        _exhibit("figure-2", rows_alone(FIRST_SESSION), by_data(figure_2), grid=(3, 11.0, 3.2)),
        *(
            _exhibit(f"figure-{n}", partial(_turned, [TOP_K, LAMBDA]), by_data(knobs), grid=(2, 9.0, 3.0))
            for n in (3, 4, 5, 6)
        ),
        *(_exhibit(f"figure-{n}", _noisy, by_data(noise), grid=(2, 9.0, 3.0)) for n in (7, 8, 9, 10)),
    ),
    streams=("one-pass", "cyclic"),
    others=True,
)
