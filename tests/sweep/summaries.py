"""Summaries as small as a sweep's tables need, from literal numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefr.studies.sweeps.grid import Point
from edgefr.studies.sweeps.results import SweepRun

PROTOCOL = "leave-one-out; sampled ranking: 99 fixed uniform negatives"


def summary(
    ndcg: float, guaranteed: float | str | None, data: str = "demo", protocol: str = PROTOCOL, won: bool | None = None
) -> dict[str, Any]:
    """A finished run: NDCG@10 as given, HR@10 twice that; popularity 0.25; nominal epsilon half the guaranteed.

    Learning helped if `won` says so; None: if NDCG@10 is above popularity.
    """
    helped = ndcg > 0.25 if won is None else won
    against = {"popularity": {"value": 0.25, "difference": ndcg - 0.25, "low": 0.1 if helped else -0.1, "high": 0.3}}
    record = {"helped": helped, "metric": "NDCG@10", "ranking": "full", "users": 100, "value": ndcg, "against": against}

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
        "learning": {"main": {"federated": record}},
        "privacy": {"eps_nominal": nominal, "eps_guaranteed": guaranteed, "eps_hypothetical": None},
        "engine": {"wall_seconds": 2.0},
        "versions": {"edgefr": "0"},
    }


def entry(point: dict[str, Any], seed: int, found: dict[str, Any] | str) -> SweepRun:
    """A run that ended: with a summary, or with a problem."""
    at = Point.of(tuple(point.items()))
    problem = found if isinstance(found, str) else None
    return SweepRun(at, seed, None, Path("runs", at.name), None if isinstance(found, str) else found, problem)
