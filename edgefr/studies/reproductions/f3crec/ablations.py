"""Tables 3 and 6 show F3CRec without its client part, without its server part, and with simpler ones; FedMF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, number
from edgefr.studies.reproductions.cells import Found, change, p_value
from edgefr.studies.reproductions.f3crec import published
from edgefr.studies.reproductions.f3crec.comparison import MASK_NOTE, P_NOTE
from edgefr.studies.reproductions.f3crec.recipes import Ask, Cell
from edgefr.studies.reproductions.f3crec.results import LABELS, average, average_history
from privacy.progress import Progress

CLIENT = ("f3crec", "f3crec-no-client", "f3crec-no-adaptive", "ft")
SERVER = ("f3crec", "f3crec-no-server", "f3crec-no-itemwise", "ft")

Printed = Mapping[str, tuple[float | None, ...]]


def needed_3(ask: Ask, data: str) -> list[Cell]:
    """Return the client part's ablations."""
    return list(ask.cells(data, "fedmf", CLIENT).values())


def needed_6(ask: Ask, data: str) -> list[Cell]:
    """Return the server part's ablations."""
    return list(ask.cells(data, "fedmf", SERVER).values())


def table_3(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make Table 3. w/o c.c: no client part; w/o a.r.m: the whole list is replayed."""
    made = [sheet(found, ask.cells(name, "fedmf", CLIENT), published.TABLE_3.get(name, {})) for name in data]
    return _page("table-3", "F3CRec Table 3: ablations of the client part (FedMF)", made)


def table_6(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make Table 6. w/o s.c: no server part; w/o i.t.m: one weight for all items."""
    made = [sheet(found, ask.cells(name, "fedmf", SERVER), published.TABLE_6.get(name, {})) for name in data]
    return _page("table-6", "F3CRec Table 6: ablations of the server part (FedMF)", made)


def _page(name: str, title: str, made: Sequence[tuple[Sheet, list[Record]]]) -> Page:
    notes = [
        "averages over D1 to D3, mean ± sd over seeds; decrease: against F3CRec, in %, over the seeds both have",
        P_NOTE,
        MASK_NOTE,
    ]
    return Page(name, title, [sheet for sheet, _ in made], [r for _, records in made for r in records], notes)


def sheet(found: Found, cells: Mapping[str, Cell], printed: Printed) -> tuple[Sheet, list[Record]]:
    """Make one data set: a row per variant; `printed[strategy]` is N@20, decrease, R@20, decrease."""
    rows, records = [], []
    for name, cell in cells.items():
        row = {"method": LABELS[name]}
        was = printed.get(name, (None, None, None, None))
        for at, metric in enumerate(published.METRICS):
            spread = found.spread(cell, average(metric))
            own, whole = found.by_seed(cell, average(metric)), found.by_seed(cells["f3crec"], average(metric))
            less, p = change(own, whole), p_value(own, whole)
            then, then_less = was[2 * at], was[2 * at + 1]
            row |= {metric: str(spread), f"{metric}\npaper": number(then)}
            itself = name == "f3crec"
            row[f"{metric}\ndecrease %"] = "" if itself else number(less, "+.2f")
            row[f"{metric}\ndecrease % paper"] = "" if itself else number(then_less, "+.2f")
            row[f"{metric}\np against F3CRec"] = "" if itself else number(p, ".3f")
            row[f"{metric}\nhistory masked"] = str(found.spread(cell, average_history(metric)))
            head = {"data": cell.data, "backbone": cell.backbone, "method": name, "metric": metric}
            compared = {"decrease_percent": less, "published_decrease_percent": then_less, "p_against_f3crec": p}
            records.append({**head, **spread.record(), "published": then} | ({} if itself else compared))
        rows.append(row | {"seeds": str(len(found.summaries.get(cell, {})))})
    return Sheet(f"{next(iter(cells.values())).data}, FedMF", rows, ["method"]), records
