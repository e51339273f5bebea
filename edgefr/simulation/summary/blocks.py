"""This sums up what a run over blocks learned and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefr.metrics.continual import MASKS, forgetting, harmonic_mean, learning_average, retained_average
from edgefr.report.small_groups import FEW, tellable
from edgefr.simulation.summary.summary import learning

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running


def summarise_blocks(sim: Running) -> dict[str, Any]:
    """Return the parts of summary.json that speak of blocks. Averages are over the increments D1, D2, ...

    (F3CRec Table 2).
    """
    names, last = [done["name"] for done in sim.done], sim.stages[-1]
    measured = list(sim.measured.table(ranking="full")[names[0]])

    def right_after(stage: str, block: str) -> dict[str, dict[str, float]]:
        return {mask: sim.measured.final(stage=stage, after=block, on=block, mask=mask) for mask in MASKS}

    stages = {stage: {name: right_after(stage, name) for name in names} for stage in measured}
    averages = {stage: {mask: _average(values, mask) for mask in MASKS} for stage, values in stages.items()}
    metric = next(m for m in averages[last][MASKS[0]] if m.startswith("NDCG"))
    references = [name for name in sim.schedule[0].compared if name in stages]
    blocks = [
        {
            **{k: done[k] for k in ("name", "clients_per_second", "train_seconds", "eval_seconds", "statistics")},
            "best_round": done["best_round"],
            "rounds": done["round"],
            "validation": done["best"] if np.isfinite(done["best"]) else None,
            "metrics": stages[last][done["name"]][MASKS[0]],
            "history": stages[last][done["name"]][MASKS[1]],
            **_known_and_new(sim, done["name"]),
            "references": {name: stages[name][done["name"]] for name in references},
        }
        for done in sim.done
    ]
    others = [name for name in measured if name not in sim.stages]
    found = [learning(sim.measured, stage, others, names[1:] or names, sim.rounds) for stage in sim.stages]
    helped = [one for one in found if one is not None]
    return {
        "stage": last,
        "metrics": averages[last][MASKS[0]],
        "metrics_history_masked": averages[last][MASKS[1]],
        "blocks": blocks,
        "stages": {name: averages[name] for name in measured if name not in references},
        "references": {name: averages[name] for name in references},
        "continual": {mask: _kept(sim, names, metric, mask) for mask in MASKS},
        "learning": {"main": {one.stage: one.record() for one in helped}},
        "verdicts": {"main": [str(one) for one in helped]},
    }


def _average(found: dict[str, dict[str, dict[str, float]]], mask: str) -> dict[str, float]:
    increments = list(found.values())[1:] or list(found.values())
    metrics = increments[0][mask]
    return {metric: float(np.mean([block[mask][metric] for block in increments])) for metric in metrics}


def _kept(sim: Running, blocks: Sequence[str], metric: str, mask: str) -> dict[str, Any]:
    """Return a(t, s) and what follows from it: over all blocks, as the released code averages."""
    matrix = sim.measured.matrix(sim.stages[-1], blocks, metric, mask)
    learned, retained = learning_average(matrix), retained_average(matrix)
    return {
        "metric": metric,
        "matrix": matrix,
        "LA": learned,
        "RA": retained,
        "HM": harmonic_mean(learned, retained),
        "forgetting": forgetting(matrix) if len(blocks) > 1 else 0.0,
    }


def _known_and_new(sim: Running, block: str) -> dict[str, dict[str, Any]]:
    """Return metrics of a block's users right after it who were known and who were new; none of a few of them."""
    wanted = {"stage": sim.stages[-1], "after": block, "on": block, "mask": MASKS[0], "round": None}
    rows = [row for row in sim.measured.rows if all(row[key] == value for key, value in wanted.items())]
    people = [next((row["users"] for row in rows if row["group"] == group), 0) for group in ("known", "new")]
    out: dict[str, dict[str, Any]] = {}
    for group, number, told in zip(("known", "new"), people, tellable(people), strict=True):
        found = {row["metric"]: row["value"] for row in rows if told and row["group"] == group}
        out[f"{group}_users"] = {"users": FEW} if number and not told else found
    return out
