"""The strongest bound of every attack is kept, and the bound of a run answers for having looked several times.

Each bound is right with 95 % confidence by itself. Whoever takes the largest of k of them may claim it with 95 % only
if each is computed anew at 1 - 5 % / k (Bonferroni); k is the number of bounds that audits of the run ever computed,
the forgotten ones too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from privacy.audits import CONFIDENCE, epsilon_lower_bound, one_run_bound

Row = dict[str, Any]


def _by_rates(counts: Mapping[str, int], delta: float, confidence: float) -> float:
    right, wrong = (counts["true_positives"], counts["positives"]), (counts["false_positives"], counts["negatives"])
    return epsilon_lower_bound(*right, *wrong, delta, confidence)


def _by_coins(counts: Mapping[str, int], delta: float, confidence: float) -> float:
    return one_run_bound(counts["canaries"], counts["guesses"], counts["correct"], delta, confidence)


BOUNDS: Mapping[str, Callable[[Mapping[str, int], float, float], float]] = {"rates": _by_rates, "coins": _by_coins}
"""Theorems by which counts become a bound, at any confidence."""


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
    proved = BOUNDS[row["bounded"]](row["counts"], delta, confidence)
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
        return f"VIOLATED: more leaks than is guaranteed: {named}: mechanism or accounting is at fault"
    if not report["promised"]:
        return "nothing is promised of this run's updates, and what attackers find stands below"
    if not report["checks"]:
        return "nothing was checked, since the law of this noise is not written down here; attacks found no fault"
    found = "" if report["eps_lb95"] is None else f"; epsilon is at least {report['eps_lb95']:.3g}"
    return f"no fault found by {len(report['checks'])} checks{found}"
