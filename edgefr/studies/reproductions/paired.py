"""Rows are compared over users and over seeds, each with one that was named before; p-values over users are Holm's.

A row that won on these very users would be too high among them by chance, and no correction of its comparisons with
others undoes that. Over users: a user's difference is its mean over the seeds in which both rows have the user, an
interval is the paired bootstrap's and p Wilcoxon's signed-rank test's. Over seeds: the paired t-test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefr.metrics.paired import Apart, apart, family
from edgefr.report.pages import Record, number
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.cells import BySeed, Cell, FinishedRuns, Pick, Summary, p_value
from edgefr.studies.reproductions.tables import Column, Line, Row

ByUser = Mapping[int, Mapping[str, float]]
"""A metric of every user, by seed and the user's name."""


@dataclass(frozen=True)
class Against:
    """This says how far a row is above another over users, and p over seeds."""

    users: Apart
    p_seeds: float


def compared(
    found: FinishedRuns,
    cells: Mapping[str, Cell],
    base: str,
    metric: str,
    pick: Pick,
    where: Callable[[Summary], Mapping[str, str]],
    families: Iterable[Sequence[str]],
) -> dict[str, Against]:
    """Compare the finished rows of each family with the base; `where`: a run's lines of its table of users."""
    users = {row: _per_user(found.runs.get(cell, {}), metric, where) for row, cell in cells.items()}
    by_seed = {row: found.by_seed(cell, pick) for row, cell in cells.items()}
    return {row: one for rows in families for row, one in against(users, by_seed, base, rows).items()}


def _per_user(runs: Mapping[int, Run], metric: str, where: Callable[[Summary], Mapping[str, str]]) -> ByUser:
    out = {}
    for seed, run in runs.items():
        table = run.users
        for column, value in where(run.summary).items():
            table = table[table[column] == value]
        out[seed] = dict(zip(table["user"], table[metric].astype(float), strict=True))
    return out


def beside(stands: Mapping[str, Against], title: str, base: str) -> Column:
    """Return columns of how each row stands to the base, over users and over seeds."""

    def column(found: FinishedRuns, line: Line, records: list[Record]) -> Row:
        one = stands.get(line.cell.row)
        if one is None:
            return dict.fromkeys((title, "n", "p\nusers", "p\nseeds"), "")
        users = one.users
        records[-1] |= {"against": base, "n": users.users, "difference": users.mean, "low": users.low}
        records[-1] |= {"high": users.high, "p_users_holm": users.p_holm, "p_seeds": one.p_seeds}
        return {
            title: f"{users.mean:+.4f} [{users.low:+.4f}, {users.high:+.4f}]",
            "n": str(users.users),
            "p\nusers": number(users.p_holm, ".3f"),
            "p\nseeds": number(one.p_seeds, ".3f"),
        }

    return column


def sides(stands: Mapping[str, Against]) -> dict[str, list[str]]:
    """Return the names that the base is above, below, and not significantly different from, where there are any."""
    words = {-1: "above", 0: "not significantly different from", 1: "below"}
    found = {words[side]: [name for name, one in stands.items() if one.users.side == side] for side in words}
    return {word: names for word, names in found.items() if names}


def against(
    rows: Mapping[str, ByUser], by_seed: Mapping[str, BySeed], base: str, names: Iterable[str]
) -> dict[str, Against]:
    """Compare rows that share users of a seed with `base`, which no result has chosen, by one family of tests."""
    found = dict[str, Apart]()
    for name in names:
        differences = _differences(rows[name], rows[base])
        if name != base and len(differences):
            (found[name],) = apart([(np.arange(len(differences)), differences[:, None])])
    return {name: Against(one, p_value(by_seed[name], by_seed[base])) for name, one in family(found).items()}


def _differences(one: ByUser, other: ByUser) -> npt.NDArray[np.float64]:
    """Return a difference for every user: its mean over the seeds in which both rows have the user.

    A seed may rank a sample of users of its own, so users differ in how many seeds have them.
    """
    by_user: dict[str, list[float]] = {}
    for seed in sorted(one.keys() & other.keys()):
        for user in one[seed].keys() & other[seed].keys():
            by_user.setdefault(user, []).append(one[seed][user] - other[seed][user])
    return np.array([np.mean(by_user[user]) for user in sorted(by_user)], np.float64)
