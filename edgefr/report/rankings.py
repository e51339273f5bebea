"""A metric is said with its ranking: against the full catalogue, or among some items that were sampled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FULL, SAMPLED = "full ranking", "sampled"


def ranking_of(summary: Mapping[str, Any]) -> str:
    """Return how the `metrics` of a summary were ranked, and with them its references and its device classes.

    >>> ranking_of({"protocol": "leave-one-out; sampled ranking: 99 fixed uniform negatives"})
    '1 + 99 sampled'
    >>> ranking_of({"protocol": "blocks of time", "continual": {}})
    'full ranking'
    """
    if "continual" in summary:
        return FULL
    found = re.search(r"sampled ranking: (\d+)", summary.get("protocol", ""))
    return SAMPLED if found is None else f"1 + {found[1]} {SAMPLED}"


def ranked(metric: str, how: str) -> str:
    """Write a metric with its ranking.

    >>> ranked("NDCG@10", "1 + 99 sampled")
    'NDCG@10 (1 + 99 sampled)'
    """
    return f"{metric} ({how})"
