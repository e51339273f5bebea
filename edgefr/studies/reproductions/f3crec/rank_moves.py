"""Tables 4, 5 and 7 show what static and dynamic users lose of the base block, and how far items' ranks move; FedMF."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.metrics.continual import MASKS, degradation
from edgefr.report.pages import Record, Spread, number
from edgefr.studies.reproductions.cells import Ask, FinishedRuns
from edgefr.studies.reproductions.f3crec.recipes import LABELS
from edgefr.studies.reproductions.f3crec.saved_models import Floats, Ints, Preparations, SavedModels, ends
from edgefr.studies.reproductions.published import Numbers, published
from edgefr.studies.reproductions.tables import Made
from privacy.progress import Progress

METHODS = ("f3crec", "f3crec-no-adaptive", "spp")
SERVERS = ("f3crec", "f3crec-no-itemwise")
GROUPS = ("static", "dynamic")
METRIC = "NDCG@20"


@dataclass(frozen=True)
class Loss:
    """This is one seed's group of users: NDCG@20 on D0's test items after D0 and after D1, and how many users."""

    before: float
    after: float
    users: int

    @property
    def degradation(self) -> float:
        """Return the share that is lost: (a00 - a10) / a00."""
        return degradation(self.before, self.after)


Losses = dict[tuple[str, str, str], list[Loss]]
"""By (method, mask, group): one per seed."""


def losses(ask: Ask, found: FinishedRuns, data: str, progress: Progress | None = None) -> Losses:
    """Measured on kept models, seed by seed, for seeds whose F3CRec run is finished: it says who is in which group."""
    cells, preparations = ask.cells(data, METHODS, "fedmf"), Preparations(ask.data_dir)
    out: Losses = {(m, mask, g): [] for m in METHODS for mask in MASKS for g in GROUPS}
    seeds = list(found.runs.get(cells["f3crec"], {}))
    for done, seed in enumerate(seeds):
        run = found.runs[cells["f3crec"]][seed]
        groups = ends(SavedModels.read(run, preparations.of(run.experiment)).shift(1))
        for name, cell in cells.items():
            if seed not in found.runs.get(cell, {}):
                continue
            own = found.runs[cell][seed]
            models = SavedModels.read(own, preparations.of(own.experiment))
            for mask in MASKS:
                before, after = (models.on_base(t, mask)[METRIC] for t in (0, 1))
                for group, users in zip(GROUPS, groups, strict=True):
                    out[name, mask, group].append(loss(before, after, users))
        if progress is not None:
            progress(f"kept models, {data}", done + 1, len(seeds), "Tables 4 and 5")
    return out


def loss(before: Floats, after: Floats, users: Ints) -> Loss:
    """Take the means over those of the users who have test items.

    >>> loss(np.array([0.4, 0.2, math.nan]), np.array([0.1, 0.2, math.nan]), np.array([0, 1, 2])).degradation
    0.5
    """
    own = users[~np.isnan(before[users])]
    if not len(own):
        return Loss(math.nan, math.nan, 0)
    return Loss(float(before[own].mean()), float(after[own].mean()), len(own))


def users(table: str, ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Make Table 4, the degradation on D0's test items, or Table 5, NDCG@20 on them after D1."""
    what, printed = "degradation" if table == "table-4" else "after", published("f3crec", table)
    return sum((users_sheet(name, losses(ask, found, name, progress), what, printed) for name in data), Made())


def users_sheet(data: str, found: Losses, what: str, printed: Mapping[tuple[str, ...], Numbers]) -> Made:
    """Make a row per mask and group. The published numbers stand beside the mask of the released code."""
    rows, records = [], list[Record]()
    for mask in MASKS:
        for group in GROUPS:
            row = {"users": group, "mask": mask}
            for name in METHODS:
                spread = Spread.of([getattr(one, what) for one in found[name, mask, group]])
                was = printed.get((data, group), {}).get(name) if mask == MASKS[0] else None
                row |= {LABELS[name]: str(spread), f"{LABELS[name]}\npaper": number(was)}
                head = {"data": data, "method": name, "users": group, "mask": mask, "value": what}
                records.append({**head, **spread.record(), "published": was})
            members = [one.users for one in found[METHODS[0], mask, group]]
            row["users\nper seed"] = f"{np.mean(members):.0f}" if members else "-"
            rows.append(row | {"seeds": str(len(members))})
    return Made([Sheet(f"{data}, FedMF, NDCG@20 on D0's test items", rows, ["users", "mask"], rules=[1])], records)


def table_7(ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None) -> Made:
    """Show how far static and dynamic items' ranks move for users who are away."""
    sheets, records = [], list[Record]()
    for name in data:
        rows, preparations = [], Preparations(ask.data_dir)
        for method, cell in ask.cells(name, SERVERS, "fedmf").items():
            seeds, changes = list(found.runs.get(cell, {}).values()), []
            for done, run in enumerate(seeds):
                changes.append(transitions(SavedModels.read(run, preparations.of(run.experiment))))
                if progress is not None:
                    progress(f"ranks, {name}", done + 1, len(seeds), LABELS[method])
            was, row = published("f3crec", "table-7").get((name, method), {}), {"type": LABELS[method]}
            for at, what in enumerate(("static items", "dynamic items", "diff")):
                spread = Spread.of([one[at] for one in changes])
                row |= {what: str(spread), f"{what}\npaper": number(was.get(what))}
                head = {"data": name, "method": method, "value": what}
                records.append({**head, **spread.record(), "published": was.get(what)})
            rows.append(row | {"seeds": str(len(seeds))})
        sheets.append(Sheet(f"{name}, FedMF, rate of change of ranks", rows, ["type"]))
    return Made(sheets, records)


def transitions(models: SavedModels) -> tuple[float, float, float]:
    """Return static, dynamic and their difference, as means over the transitions that somebody can be asked about."""
    known = [c for t in range(1, len(models.prepared.blocks)) if (c := models.rank_changes(t)) is not None]
    if not known:
        return math.nan, math.nan, math.nan
    static, dynamic = np.mean(known, axis=0)
    return float(static), float(dynamic), float(dynamic - static)
