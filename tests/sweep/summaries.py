"""Summaries as small as a sweep's tables need, from literal numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefr.sweeps.grid import Point
from edgefr.sweeps.results import Entry


def summary(
    ndcg: float, guaranteed: float | str | None, data: str = "demo", protocol: str = "leave-one-out; 99 negatives"
) -> dict[str, Any]:
    """A finished run: NDCG@10 as given, HR@10 twice that; popularity 0.25; nominal epsilon half the guaranteed."""

    def both(value: float) -> dict[str, float]:
        return {"HR@10": 2 * value, "NDCG@10": value, "Recall@10": 2 * value}

    nominal = guaranteed if not isinstance(guaranteed, float) else guaranteed / 2
    return {
        "data": data,
        "protocol": protocol,
        "split": "main",
        "stage": "federated",
        "metrics": both(ndcg),
        "references": {"main": {"popularity": both(0.25), "chance": both(0.05)}},
        "validation": {"main": {"federated": both(ndcg + 0.01), "popularity": both(0.3)}},
        "privacy": {"eps_nominal": nominal, "eps_guaranteed": guaranteed, "eps_hypothetical": None},
        "engine": {"wall_seconds": 2.0},
        "versions": {"edgefr": "0"},
    }


def entry(point: dict[str, Any], seed: int, found: dict[str, Any] | str) -> Entry:
    """A run that ended: with a summary, or with a problem."""
    at = Point.of(tuple(point.items()))
    problem = found if isinstance(found, str) else None
    return Entry(at, seed, None, Path("runs", at.name), None if isinstance(found, str) else found, problem)
