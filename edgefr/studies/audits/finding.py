"""A finding is what one attack saw; the strongest bound of every attack is kept, and answers for having looked often.

Each bound is right with 95 % confidence by itself. Whoever takes the largest of k of them may claim it with 95 % only
if each is computed anew at 1 - 5 % / k (Bonferroni); k is the number of bounds that audits of the run ever computed,
the forgotten ones too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from privacy.audits import CONFIDENCE, Leak, epsilon_lower_bound, one_run_bound


@dataclass(frozen=True)
class Finding:
    """A finding is what one attack saw of `of` clients, draws or canaries; None where it does not say, `note` why.

    `unit`: what is told apart. `auc`, `tpr` (at 1 % FPR) beside what knowing nothing reaches at its 95 % quantile;
    `best_auc`: had somebody told the attacker the right sign for every client. `eps_lb95` bounds `releases` releases
    of a client, of which `claimed` is guaranteed; `counts` are what it is made of, `bounded` says by which theorem.
    """

    attack: str
    unit: str
    auc: float | None = None
    auc_null: float | None = None
    tpr: float | None = None
    tpr_null: float | None = None
    best_auc: float | None = None
    best_auc_null: float | None = None
    eps_lb95: float | None = None
    claimed: float | None = None
    releases: int = 1
    of: int = 0
    note: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    bounded: Literal["rates", "coins", ""] = ""
    seed: int = 0

    @classmethod
    def of_leak(cls, attack: str, unit: str, apart: Leak, **rest: Any) -> Finding:
        """Make a finding from how well scores told members from others."""
        return cls(attack, unit, *apart[:4], **rest)

    @property
    def exceeds(self) -> bool:
        """Say whether more was found than is guaranteed: a fault of mechanism or accounting."""
        return self.eps_lb95 is not None and self.claimed is not None and self.eps_lb95 > self.claimed

    def row(self) -> dict[str, Any]:
        """Return this for JSON: infinity is the word "inf", nan is None."""
        values = asdict(self) | {"exceeds": self.exceeds}
        return {k: _plain(v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value


@dataclass(frozen=True)
class Effort:
    """This says how much an audit may try: clients that are attacked, draws of games, and what keys these draws."""

    users: int = 50
    trials: int = 10_000
    seed: int = 0


Row = dict[str, Any]


BOUNDS: Mapping[str, tuple[Callable[..., float], Sequence[str]]] = {
    "rates": (epsilon_lower_bound, ("true_positives", "positives", "false_positives", "negatives")),
    "coins": (one_run_bound, ("canaries", "guesses", "correct")),
}
"""Theorems by which counts become a bound, at any confidence, and the counts that each takes."""


def strongest(before: Sequence[Row], found: Sequence[Row], delta: float) -> list[Row]:
    """Return one row an attack: of those `before` and those just `found` the one that proves most.

    `looks` is how often the attack has bounded this run. What was found again, with the same draws, is no new look.
    """
    rows = {row["attack"]: row for row in before}
    for row in found:
        old = rows.get(row["attack"])
        again = old is not None and {**old, **row} == old
        looks = (old["looks"] if old is not None else 0) + (0 if again or not row["bounded"] else 1)
        better = old is None or _proves(row) >= _proves(old)
        rows[row["attack"]] = {**(row if better or old is None else old), "looks": looks}
    looks = sum(row["looks"] for row in rows.values())
    return [_claimed(row, delta, looks) for row in rows.values()]


def bound(rows: Sequence[Row]) -> float | None:
    """Return the largest bound that may be claimed of a run's clients; None without any.

    What is found of single interactions is about another guarantee, and stands in its own row.
    """
    found = (row["eps_corrected"] for row in rows if row["unit"] == "client")
    return max((value for value in found if value is not None), default=None)


def _proves(row: Row) -> tuple[float, int]:
    return (-1.0 if row["eps_lb95"] is None else row["eps_lb95"], row["of"])


def _claimed(row: Row, delta: float, looks: int) -> Row:
    """Return a row with what it proves among so many, and whether that is more than is guaranteed."""
    if not row["bounded"]:
        return {**row, "eps_corrected": None, "exceeds": False}
    confidence = 1.0 - (1.0 - CONFIDENCE) / looks
    theorem, counts = BOUNDS[row["bounded"]]
    proved = theorem(*(row["counts"][name] for name in counts), delta, confidence)
    return {**row, "eps_corrected": proved, "exceeds": proved > float(row["claimed"])}


def verdict(report: Mapping[str, Any]) -> str:
    """Say in one line what an audit comes to, the worst first."""
    broken = [row for row in report["checks"] if not row["ok"]]
    over = [row for row in report["attacks"] if row["exceeds"]]
    if broken:
        named = "; ".join(f"{row['check']} of {row['way']}: {row['worst']}" for row in broken)
        return f"VIOLATED: {named}"
    if over:
        named = "; ".join(f"{row['attack']} {row['eps_corrected']:.3g} > {row['claimed']:.3g}" for row in over)
        return f"VIOLATED: leakage exceeds the guarantee: {named}: the mechanism or the accounting is wrong"
    if not report["promised"]:
        return "this run's updates have no guarantee; attack results are below"
    if not report["checks"]:
        return "nothing was checked: the distribution of this noise is not known here; attacks found no fault"
    found = "" if report["eps_lb95"] is None else f"; epsilon is at least {report['eps_lb95']:.3g}"
    return f"no fault found by {len(report['checks'])} checks{found}"
