"""This sums up how evenly a model serves groups of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.fleet.histogram import QUANTITIES
from edgefr.metrics.groups import by_group, known, rank_correlation
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
    device, took_part = device_of[users], sim.federation.counters.participation[users]
    tested = np.bincount(device, minlength=len(names))
    shown = np.array(tellable(tested.tolist()))
    for name, few in zip(names, (~shown & (tested > 0)).tolist(), strict=True):
        classes[name] |= {"metrics": {}, "few": few}
    overall, own = dict[str, Any](), shown[device_of[users]]
    for metric, values in found.items():
        mean = float(values.mean())
        groups = by_group(values[own], device[own], len(names))
        for number in np.flatnonzero(groups.users).tolist():
            gap = {"difference": float(groups.mean[number]) - mean}
            classes[names[number]]["metrics"][metric] = groups.cell(number) | gap
        by_part = by_group(values, (took_part > 0).astype(np.int64), 2)
        both = zip(("never_took_part", "took_part"), tellable(by_part.users.tolist()), strict=True)
        overall[metric] = {
            "mean": mean,
            "users": len(users),
            **groups.spread(names, mean),
            "fewest_users": FEWEST,
            "participation_correlation": known(rank_correlation(took_part, values)),
            **{name: by_part.cell(number) if one else None for number, (name, one) in enumerate(both)},
        }
    return {**fleet, "classes": classes, "fairness": overall}
