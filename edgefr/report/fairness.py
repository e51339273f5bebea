"""Fairness by device class compares what the model is worth to those with a fast device and with a slow one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.fleet.histogram import QUANTITIES
from edgefr.metrics.groups import Groups, by_group, rank_correlation
from edgefr.report.few import FEW, FEWEST, WHY, tellable
from edgefr.report.layout import Sheet

if TYPE_CHECKING:
    from edgefr.training import Training


def with_fairness(fleet: dict[str, Any], sim: Training) -> dict[str, Any]:
    """Return the fleet's summary with test metrics and participation of every class, and how unequal they are.

    Metrics are those of the final model on the run's last split or block: means over the users who have such a device.
    `participation` of a class: how often one of its clients contributed, as a share of the rounds. `fairness`, by
    metric: worst and best class, their distance (`spread`), what the classes' means deviate by (`sd`, weighted by
    users), whether that is more than chance (`p_equal`), the rank correlation of a user's metric with the number of
    rounds the user contributed to, and the means of those who never did and of those who did. What would tell of a few
    users is left out (`few`).
    """
    names, device_of = sim.fleet.classes, sim.fleet.device_of
    able = np.bincount(device_of[sim.clients], minlength=len(names))
    classes = {name: dict(row) for name, row in fleet["classes"].items()}
    for name, clients, told in zip(names, able.tolist(), tellable(able.tolist()), strict=True):
        rounds = clients * fleet["rounds"]
        classes[name]["participation"] = classes[name]["contributed"] / rounds if rounds and told else None
        if clients and not told:
            kept = {key: value for key, value in classes[name].items() if not key.startswith("total_")}
            classes[name] = {**kept, **dict.fromkeys(QUANTITIES), "few_clients": True}
    users, found = sim.tested()
    took_part = sim.federation.counters.participation[users]
    overall: dict[str, Any] = {}
    tested = np.bincount(device_of[users], minlength=len(names))
    shown = np.array(tellable(tested.tolist()))
    for name, few in zip(names, (~shown & (tested > 0)).tolist(), strict=True):
        classes[name] |= {"metrics": {}, "few": few}
    for metric, values in found.items():
        own, mean = shown[device_of[users]], float(values.mean())
        groups = by_group(values[own], device_of[users][own], len(names))
        for number, name in enumerate(names):
            if groups.users[number]:
                classes[name]["metrics"][metric] = _cell(groups, number) | {
                    "difference": float(groups.mean[number]) - mean
                }
        overall[metric] = {"mean": mean, "users": len(users), **_spread(names, groups, mean)} | {
            "participation_correlation": _known(rank_correlation(took_part, values)),
            **_by_participation(values, took_part > 0),
        }
    return {**fleet, "classes": classes, "fairness": overall}


def _cell(groups: Groups, number: int) -> dict[str, Any]:
    return {
        "users": int(groups.users[number]),
        "mean": _known(groups.mean[number]),
        "standard_error": _known(groups.error[number]),
    }


def _spread(names: list[str], groups: Groups, mean: float) -> dict[str, Any]:
    """Return how far the classes that are told of are apart, and the worst and the best of them."""
    there = groups.users > 0
    variance = float((groups.users[there] * (groups.mean[there] - mean) ** 2).sum()) / max(int(groups.users.sum()), 1)
    out: dict[str, Any] = {"sd": math.sqrt(variance), "p_equal": _known(groups.p_equal), "fewest_users": FEWEST}
    enough = np.flatnonzero(there)
    if not len(enough):
        return {"worst": None, "best": None, "spread": None, **out}
    ends = enough[[int(groups.mean[enough].argmin()), int(groups.mean[enough].argmax())]].tolist()
    worst, best = ({"class": names[end], **_cell(groups, end)} for end in ends)
    return {"worst": worst, "best": best, "spread": best["mean"] - worst["mean"], **out}


def _by_participation(values: np.ndarray, took_part: np.ndarray) -> dict[str, Any]:
    groups = by_group(values, took_part.astype(np.int64), 2)
    told = tellable(groups.users.tolist())
    return {
        name: _cell(groups, number) if told[number] else None
        for number, name in enumerate(("never_took_part", "took_part"))
    }


def _known(value: float) -> float | None:
    """Return a value for JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)


def over_runs(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return by metric, of the `fairness` of several runs, the worst class's mean and the spread.

    Runs count that had classes with enough users.

    >>> over_runs([{"HR@5": {"worst": {"mean": 0.1}, "spread": 0.3}}, {"HR@5": {"worst": None, "spread": None}}])
    {'HR@5': {'worst': [0.1], 'spread': [0.3]}}
    """
    rows = {metric: [row[metric] for row in found if row[metric]["worst"] is not None] for metric in found[0]}
    return {
        metric: {"worst": [row["worst"]["mean"] for row in known], "spread": [row["spread"] for row in known]}
        for metric, known in rows.items()
        if known
    }


def fairness_table(fleet: dict[str, Any], how: str) -> Sheet | None:
    """Show by device class participation, tested users, metrics ranked so, and how far from everybody's mean."""
    fairness = {name: row for name, row in fleet.get("fairness", {}).items() if not name.startswith("Recall")}
    if not fairness:
        return None
    rows = [_row(name, row, list(fairness)) for name, row in fleet["classes"].items()]
    first = next(iter(fairness))
    every = {"device class": "all", "rounds\ncontributed": "", "tested\nusers": f"{fairness[first]['users']:,}"}
    for metric, row in fairness.items():
        every |= {f"{metric}\n± s.e.": f"{row['mean']:.4f}", f"{metric}\nto the mean": ""}
    return Sheet(
        f"by device class: what the model is worth to its users ({how})",
        [*rows, every],
        words=["device class"],
        caption="\n".join([*(_line(metric, row) for metric, row in fairness.items()), *_why(fleet)]),
        rules=[len(rows) - 1],
    )


def _row(name: str, row: dict[str, Any], metrics: list[str]) -> dict[str, str]:
    found = row["metrics"]
    tested = f"{next(iter(found.values()))['users']:,}" if found else FEW if row.get("few") else "0"
    share = "-" if row["participation"] is None else f"{row['participation']:.1%}"
    cells = {"device class": name, "rounds\ncontributed": share, "tested\nusers": tested}
    for metric in metrics:
        cell = found.get(metric)
        error = "" if cell is None or cell["standard_error"] is None else f" ± {cell['standard_error']:.4f}"
        cells[f"{metric}\n± s.e."] = "-" if cell is None else f"{cell['mean']:.4f}{error}"
        cells[f"{metric}\nto the mean"] = "-" if cell is None else f"{cell['difference']:+.4f}"
    return cells


def _why(fleet: dict[str, Any]) -> list[str]:
    """Say why classes are not told of, where any is not."""
    return [WHY] if any(row.get("few") for row in fleet["classes"].values()) else []


def _line(metric: str, row: dict[str, Any]) -> str:
    """Say one metric in words: worst and best class, and what goes along with it."""
    if row["worst"] is None:
        return f"{metric}: no class has {FEWEST} tested users, so none is called the worst"
    p, correlation = row["p_equal"], row["participation_correlation"]
    chance = "" if p is None else f" (one-way ANOVA over these classes: p = {p:.2g})"
    along = "" if correlation is None else f"; rank correlation with rounds contributed {correlation:+.2f}"
    worst, best = row["worst"], row["best"]
    return (
        f"{metric}: worst {worst['class']} {worst['mean']:.4f}, best {best['class']} {best['mean']:.4f} "
        f"(of classes with {FEWEST} users), spread {row['spread']:.4f}{chance}{along}"
    )
