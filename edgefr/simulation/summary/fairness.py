"""This sums up how evenly a model serves groups of users."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.fleet.histogram import QUANTITIES
from edgefr.metrics.groups import Groups, by_group, rank_correlation
from edgefr.report.fairness import _known
from edgefr.report.small_groups import FEWEST, tellable

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running


def with_fairness(fleet: dict[str, Any], sim: Running) -> dict[str, Any]:
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
