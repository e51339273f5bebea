"""Tables 2 and 3 show the family at one search budget, full ranking first, each row against FedCAR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page, Record, Spread, number
from edgefr.studies.reproductions.cells import Found, Pick, Summary
from edgefr.studies.reproductions.fedcar import published
from edgefr.studies.reproductions.fedcar.paired import Against, against, best_of, per_user
from edgefr.studies.reproductions.fedcar.recipes import ROWS, SOURCE, Ask, Cell, searched
from privacy.progress import Progress

RANKINGS = {"full": "full ranking", "sampled": "1 + 99 candidates"}
REFERENCES = ("popularity", "chance")
MAIN = "NDCG@10"
BASE = "fedcar"
"""The row that others are compared with: the paper's own, so that no result chooses it."""
TABLE_2 = tuple(name for name in ROWS if name not in ("fedcar-context", "fedcar-neither"))
TABLE_3 = ("fedcar", "fedcar-context", "fedcar-neither", "gpfedrec")
NOTES = (
    "every row's recipe was found by one search budget on validation items, with seeds apart from these "
    "(experiments/fedcar/recipes: all trials); as-released rows are not searched, and train knowing the held-out items "
    "where their public code does, so they are compared with nothing",
    "mean ± sd over seeds; paper: FedCAR's printed numbers, on sampled candidates, of models not searched one by "
    "one; central rows have everybody's data in one place",
    "against FedCAR: a row's NDCG@10 in full ranking less FedCAR's, a user's being the mean over the seeds in which "
    "both rows ranked for the user, over n users, with the paired bootstrap's 95 % interval; p (users): Wilcoxon's "
    "signed-rank test, Holm's correction over the federated rows, and over the central ones; p (seeds): paired t-test, "
    "a pair is one seed",
    "two rows are told apart where p (users) is below 0.05 and the interval is on one side of 0; that says what more "
    "users like these would do, not what other seeds would",
)


def measure(metric: str, ranking: str) -> Pick:
    """Return what picks a test metric of a run's final model."""

    def pick(summary: Summary) -> float:
        if ranking == "sampled":
            return float(summary["metrics"][metric])
        return float(summary["full_ranking"][summary["split"]][summary["stage"]][metric])

    return pick


def reference(name: str, metric: str, ranking: str) -> Pick:
    """Return what picks a test metric of a reference that learns nothing."""

    def pick(summary: Summary) -> float:
        of = summary["references"] if ranking == "sampled" else summary["full_ranking"]
        return float(of[summary["split"]][name][metric])

    return pick


@dataclass(frozen=True)
class Compared:
    """These are the rows of one data set, the highest federated one, and how each stands to FedCAR."""

    cells: Mapping[str, Cell]
    found: Found
    best: str | None
    against: Mapping[str, Against]

    @classmethod
    def of(cls, found: Found, cells: Mapping[str, Cell]) -> Compared:
        """Compare the finished rows: federated ones are one family of tests, central ones another."""
        pick = measure(MAIN, "full")
        by_seed = {name: found.by_seed(cell, pick) for name, cell in cells.items()}
        kinds = {kind: [name for name in cells if ROWS[name].kind == kind] for kind in ("federated", "central")}
        best = best_of({name: list(by_seed[name].values()) for name in kinds["federated"]})
        if BASE not in cells:
            return cls(cells, found, best, {})
        judged = [name for names in kinds.values() for name in names]
        users = {name: per_user(found.runs.get(cells[name], {}), MAIN, "full") for name in judged}
        compared = dict[str, Against]()
        for names in kinds.values():
            compared |= against(users, by_seed, BASE, names)
        return cls(cells, found, best, compared)

    def row(self, name: str, ranking: str, printed: published.Row | None) -> dict[str, str]:
        """Return a row of a sheet."""
        cell = self.cells[name]
        row = {"method": ROWS[name].label}
        for at, metric in enumerate(published.METRICS):
            row[metric] = str(self.found.spread(cell, measure(metric, ranking)))
            if ranking == "sampled":
                row[f"{metric}\npaper"] = number(None if printed is None else printed[at])
        if ranking == "full":
            row |= self._against(name)
        return row | {"seeds": str(len(self.found.summaries.get(cell, {})))}

    def _against(self, name: str) -> dict[str, str]:
        one = self.against.get(name)
        if one is None:
            return dict.fromkeys(("against FedCAR", "n", "p\nusers", "p\nseeds"), "")
        return {
            "against FedCAR": f"{one.users.mean:+.4f} [{one.users.low:+.4f}, {one.users.high:+.4f}]",
            "n": str(one.users.users),
            "p\nusers": number(one.users.p_holm, ".3f"),
            "p\nseeds": number(one.p_seeds, ".3f"),
        }

    def verdict(self, data: str) -> str:
        """Say plainly which federated row is highest, and which of them FedCAR is above, below, or not told apart."""
        if self.best is None:
            return f"{data}: no federated row is finished"
        line = f"{data}: the highest federated row by {MAIN} (full ranking) is {ROWS[self.best].label}"
        sides: dict[int, list[str]] = {-1: [], 0: [], 1: []}
        for name, one in self.against.items():
            if ROWS[name].kind == "federated":
                sides[one.side].append(ROWS[name].label)
        if not any(sides.values()):
            return f"{line}; nothing is compared, since FedCAR and another are not both finished"
        if not sides[0] and not sides[1]:
            return f"{line}; FedCAR is above all others ({', '.join(sides[-1])})"
        said = {"above": sides[-1], "not told apart from": sides[0], "below": sides[1]}
        return f"{line}; FedCAR is " + "; ".join(f"{what} {', '.join(of)}" for what, of in said.items() if of)


def needed_2(ask: Ask, data: str) -> list[Cell]:
    """Return every row of the family."""
    return list(ask.cells(data, TABLE_2).values())


def needed_3(ask: Ask, data: str) -> list[Cell]:
    """Return FedCAR without its parts, and the row that the paper prints for neither."""
    return list(ask.cells(data, TABLE_3).values())


def table_2(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make a sheet per data set and ranking: federated rows, central ones, what learns nothing."""
    title = "FedCAR Table 2: the leave-one-out family at one search budget"
    return _page(("table-2", title), ask, found, data, TABLE_2, published.TABLE_2)


def table_3(ask: Ask, found: Found, data: Sequence[str], progress: Progress | None = None) -> Page:
    """Make the ablation, each row with a search of its own."""
    title = "FedCAR Table 3: without contrast, without contrast and context"
    page = _page(("table-3", title), ask, found, data, TABLE_3, published.TABLE_3)
    note = (
        "neither: FedCAR's own program without context and contrast, a private scorer over the shared item table; the "
        "paper prints GPFedRec's row there, which stands below it"
    )
    return Page(page.name, page.title, page.sheets, page.records, [note, *page.notes])


def _page(
    named: tuple[str, str],
    ask: Ask,
    found: Found,
    data: Sequence[str],
    rows: Sequence[str],
    printed: Mapping[str, Mapping[str, published.Row]],
) -> Page:
    sheets, records, verdicts = list[Sheet](), list[Record](), list[str]()
    for name in data:
        compared = Compared.of(found, ask.cells(name, rows))
        verdicts.append(compared.verdict(name))
        for ranking in RANKINGS:
            sheets.append(_sheet(compared, name, ranking, printed.get(name, {})))
        records += _records(compared, name, printed.get(name, {}))
    return Page(*named, sheets, records, [*verdicts, *map(_lent, filterfalse(searched, data)), *NOTES])


def _lent(data: str) -> str:
    """Return what is to be said of a data set on which nothing was searched."""
    return (
        f"{data}: nothing was searched on it; every row that is compared has the recipe that was found on {SOURCE}, so "
        "all rows are as far from their best there as that makes them"
    )


def _sheet(compared: Compared, data: str, ranking: str, printed: Mapping[str, published.Row]) -> Sheet:
    rows = [compared.row(name, ranking, printed.get(name)) for name in compared.cells]
    blank = dict.fromkeys(rows[0], "")
    for name in REFERENCES:
        levels = {metric: str(_level(compared, name, metric, ranking)) for metric in published.METRICS}
        rows.append({**blank, "method": name, **levels})
    names = list(compared.cells)
    bold = [names.index(compared.best)] if compared.best in names else []
    title = f"{data}, {RANKINGS[ranking]}"
    return Sheet(title, rows, ["method"], rules=[len(names) - 1], bold=bold)


def _level(compared: Compared, name: str, metric: str, ranking: str) -> Spread:
    """Return a reference's metric: the same for all rows, so of the first that is finished."""
    spreads = (compared.found.spread(cell, reference(name, metric, ranking)) for cell in compared.cells.values())
    return next((spread for spread in spreads if spread.number), Spread.of([]))


def _records(compared: Compared, data: str, printed: Mapping[str, published.Row]) -> list[Record]:
    out = []
    for name, cell in compared.cells.items():
        for ranking in RANKINGS:
            for at, metric in enumerate(published.METRICS):
                spread = compared.found.spread(cell, measure(metric, ranking))
                head = {"data": data, "method": name, "kind": ROWS[name].kind, "ranking": ranking, "metric": metric}
                own = printed.get(name) if ranking == "sampled" else None
                record: Record = {**head, **spread.record(), "published": None if own is None else own[at]}
                one = compared.against.get(name)
                if one is not None and (metric, ranking) == (MAIN, "full"):
                    over = one.users
                    record |= {"against": BASE, "n": over.users, "difference": over.mean, "low": over.low}
                    record |= {"high": over.high, "p_users_holm": over.p_holm, "p_seeds": one.p_seeds}
                out.append(record)
    return out
