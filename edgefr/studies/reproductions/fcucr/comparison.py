"""Tables 2 and 3 show backbones with and without FCUCR beside federated baselines, and FCUCR without its parts."""

from __future__ import annotations

from collections.abc import Sequence

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.fcucr import published
from edgefr.studies.reproductions.fcucr.recipes import BACKBONES, BASELINES, Ask, Cell
from edgefr.studies.reproductions.fcucr.results import LABELS, NOTES, P_NOTE, Line, beaten, compared, levels, survives
from privacy.progress import Progress

OURS = ("history",)
TABLE_2 = (*BASELINES, *(name for b in BACKBONES for name in (b, f"fcucr-{b}")), *OURS)
TABLE_3 = ("fcucr-sasrec", "no-tasd", "no-iupr", "no-both", "sasrec")


def needed_2(ask: Ask, data: str) -> list[Cell]:
    """Return baselines, backbones alone and with FCUCR, and our variant."""
    return list(ask.cells(data, TABLE_2).values())


def needed_3(ask: Ask, data: str) -> list[Cell]:
    """Return FCUCR on SASRec, whole and without its parts."""
    return list(ask.cells(data, TABLE_3).values())


def lines(ask: Ask, data: str, rows: Sequence[str]) -> dict[str, Line]:
    """Return the rows of a table, by name, with what the paper prints for them."""
    printed = published.TABLE_2.get(data, {}) | published.TABLE_3.get(data, {})
    return {row: Line(LABELS[row], cell, printed.get(row)) for row, cell in ask.cells(data, rows).items()}


def table_2(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet of levels per data set, then one per backbone: what FCUCR adds to it."""
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    for name in data:
        of = lines(ask, name, TABLE_2)
        made = [levels(found, f"{name}: test sessions", "model", list(of.values()))]
        for backbone in BACKBONES:
            with_it, alone = of[f"fcucr-{backbone}"], of[backbone]
            made.append(compared(found, f"{name}: what FCUCR adds to {alone.label}", with_it, alone))
            verdicts.append(survives(found, with_it, alone))
        verdicts += beaten(found, list(of.values()))
        sheets += [sheet for sheet, _ in made]
        records += [record for _, own in made for record in own]
    notes = [
        *verdicts,
        *NOTES,
        P_NOTE,
        "Fed-DMI-GNN, Fed-HearInt and Fed-MiaSRec have what 8 trials of 12 rounds chose on validation sessions of XING "
        "(experiments/fcucr/recipes); what was done to make centralised models federated is in docs/papers.md, for the "
        "paper does not say",
        "own history + popularity (ours, not in the paper): items that the client has had come first, its validation "
        "session's too, the rest by the model and by how many clients had an item; the weight was chosen on validation "
        "(experiments/fcucr/history.py)",
    ]
    title = "FCUCR Table 2: sequential backbones with and without FCUCR, and federated baselines"
    return Page("table-2", title, sheets, records, notes)


def table_3(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make Table 3.

    w/o TASD: no self-distillation; w/o IUPR: no prototypes; the last two rows take both away, then the MLP too.
    """
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    for name in data:
        of = lines(ask, name, TABLE_3)
        made = [levels(found, f"{name}, SASRec: test sessions", "model", list(of.values()))]
        pairs = [
            (of["fcucr-sasrec"], of["no-tasd"]),
            (of["fcucr-sasrec"], of["no-iupr"]),
            (of["no-both"], of["sasrec"]),
        ]
        for one, other in pairs:
            made.append(compared(found, f"{name}: {one.label} against {other.label}", one, other))
            verdicts.append(survives(found, one, other))
        verdicts += beaten(found, list(of.values()))
        sheets += [sheet for sheet, _ in made]
        records += [record for _, own in made for record in own]
    notes = [*verdicts, *NOTES, P_NOTE, "personal MLP alone: neither distillation nor prototypes; not in the paper"]
    return Page("table-3", "FCUCR Table 3: without its parts (SASRec)", sheets, records, notes)
