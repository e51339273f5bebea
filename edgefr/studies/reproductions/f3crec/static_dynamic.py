"""Tables 4, 5 and 7 show what static and dynamic users lose of the base block.

They also show how far static and dynamic items' ranks move; FedMF.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefr.config.sheet import Sheet
from edgefr.metrics.continual import MASKS, degradation
from edgefr.report.pages import Page, Record, Spread, number
from edgefr.studies.reproductions.cells import Found
from edgefr.studies.reproductions.f3crec import published
from edgefr.studies.reproductions.f3crec.recipes import Ask, Cell
from edgefr.studies.reproductions.f3crec.results import LABELS
from edgefr.studies.reproductions.f3crec.saved_models import SHARE, Floats, Ints, Preparations, SavedModels, ends
from privacy.progress import Progress

METHODS = ("f3crec", "f3crec-no-adaptive", "spp")
SERVERS = ("f3crec", "f3crec-no-itemwise")
GROUPS = ("static", "dynamic")
METRIC = "NDCG@20"

_NAN = float("nan")


@dataclass(frozen=True)
class Loss:
    """This is one seed's group of users.

    NDCG@20 on D0's test items after D0 and after D1, and how many users that is of.
    """

    before: float
    after: float
    users: int

    @property
    def degradation(self) -> float:
        """Return the share that is lost: (a00 - a10) / a00."""
        return degradation(self.before, self.after)


Losses = dict[tuple[str, str, str], list[Loss]]
"""By (method, mask, group): one per seed."""


def needed_users(ask: Ask, data: str) -> list[Cell]:
    """Return F3CRec, which also tells the groups, its fixed memory, and SPP."""
    return list(ask.cells(data, "fedmf", METHODS).values())


def needed_items(ask: Ask, data: str) -> list[Cell]:
    """Return F3CRec with and without the item-wise weight."""
    return list(ask.cells(data, "fedmf", SERVERS).values())


def losses(ask: Ask, found: Found, data: str, progress: Progress | None = None) -> Losses:
    """Measured on kept models, seed by seed, for seeds whose F3CRec run is finished: it says who is in which group."""
    cells, preparations = ask.cells(data, "fedmf", METHODS), Preparations(ask.data_dir)
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

    >>> loss(np.array([0.4, 0.2, _NAN]), np.array([0.1, 0.2, _NAN]), np.array([0, 1, 2])).degradation
    0.5
    """
    own = users[~np.isnan(before[users])]
    if not len(own):
        return Loss(_NAN, _NAN, 0)
    return Loss(float(before[own].mean()), float(after[own].mean()), len(own))


def table_4(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Show the degradation on D0's test items."""
    printed, lost = published.TABLE_4, "degradation"
    made = [_sheet(name, losses(ask, found, name, progress), lost, printed.get(name, {})) for name in data]
    return _page("table-4", "F3CRec Table 4: what static and dynamic users lose (FedMF)", made)


def table_5(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Show NDCG@20 on D0's test items after D1."""
    made = [_sheet(name, losses(ask, found, name, progress), "after", published.TABLE_5.get(name, {})) for name in data]
    return _page("table-5", "F3CRec Table 5: what static and dynamic users keep (FedMF)", made)


def _sheet(data: str, found: Losses, what: str, printed: dict[str, dict[str, float]]) -> tuple[Sheet, list[Record]]:
    """Make a row per mask and group. The published numbers stand beside the mask of the released code."""
    rows, records = [], []
    for mask in MASKS:
        for group in GROUPS:
            row = {"users": group, "mask": mask}
            for name in METHODS:
                seeds = found[name, mask, group]
                spread = Spread.of([getattr(one, what) for one in seeds])
                was = printed.get(group, {}).get(name) if mask == MASKS[0] else None
                row |= {LABELS[name]: str(spread), f"{LABELS[name]}\npaper": number(was)}
                head = {"data": data, "method": name, "users": group, "mask": mask, "value": what}
                records.append({**head, **spread.record(), "published": was})
            members = [one.users for one in found[METHODS[0], mask, group]]
            row["users\nper seed"] = f"{np.mean(members):.0f}" if members else "-"
            rows.append(row | {"seeds": str(len(members))})
    return Sheet(f"{data}, FedMF, NDCG@20 on D0's test items", rows, ["users", "mask"], rules=[1]), records


def _page(name: str, title: str, made: Sequence[tuple[Sheet, list[Record]]]) -> Page:
    notes = [
        f"static and dynamic: the {SHARE:.0%} of the users of both D0 and D1 with the least and the greatest "
        "preference shift (Eq. 2) after F3CRec's first round on D1; the same users for every method",
        "degradation is (a00 - a10) / a00 of the group's mean NDCG@20 on D0's test items, after D0 and after D1",
        "mask 'as released' leaves out the items that a user trained on and validated in the block just learned: after "
        "D1 those of D1, so the user's D0 training items are ranked and take places from D0's test items, which is "
        "part of the degradation. 'history' leaves out all items the user has had, and measures forgetting alone",
        "the paper does not name its mask; its numbers stand beside the released code's",
        "the published Tables 4 and 5 together imply an a00 that differs by method (ML-100K, static users: 0.178, "
        "0.235 and 0.235), though every method starts from the same base block",
    ]
    return Page(name, title, [sheet for sheet, _ in made], [r for _, records in made for r in records], notes)


def table_7(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Show how far static and dynamic items' ranks move for users who are away."""
    sheets, records = [], list[Record]()
    for name in data:
        rows = []
        preparations = Preparations(ask.data_dir)
        for method, cell in ask.cells(name, "fedmf", SERVERS).items():
            seeds = list(found.runs.get(cell, {}).values())
            changes = []
            for done, run in enumerate(seeds):
                changes.append(transitions(SavedModels.read(run, preparations.of(run.experiment))))
                if progress is not None:
                    progress(f"ranks, {name}", done + 1, len(seeds), LABELS[method])
            was = published.TABLE_7.get(name, {}).get(method, (None, None, None))
            row = {"type": LABELS[method]}
            for at, what in enumerate(("static items", "dynamic items", "diff")):
                spread = Spread.of([one[at] for one in changes])
                row |= {what: str(spread), f"{what}\npaper": number(was[at])}
                head = {"data": name, "method": method, "value": what}
                records.append({**head, **spread.record(), "published": was[at]})
            rows.append(row | {"seeds": str(len(seeds))})
        sheets.append(Sheet(f"{name}, FedMF, rate of change of ranks", rows, ["type"]))
    notes = [
        f"static and dynamic: the {SHARE:.0%} of the items that existed before with the least and the greatest phi "
        "(Eq. 8); phi is of the tables of best rounds, after the temporal mean, which orders items within a run as "
        "phi before it does; each method's own groups",
        "|old rank - new rank| / old rank, mean over users who trained in the block before and not in this one, then "
        "over the three transitions; ranked are the items that existed before, among themselves, nothing masked",
        "users keep the private vector they had after the block before, so that only the item table moves",
    ]
    return Page("table-7", "F3CRec Table 7: the item-wise temporal mean (FedMF)", sheets, records, notes)


def transitions(models: SavedModels) -> tuple[float, float, float]:
    """Return static, dynamic and their difference, as means over the transitions that somebody can be asked about."""
    known = [c for t in range(1, len(models.prepared.blocks)) if (c := models.rank_changes(t)) is not None]
    if not known:
        return math.nan, math.nan, math.nan
    static, dynamic = np.mean(known, axis=0)
    return float(static), float(dynamic), float(dynamic - static)
