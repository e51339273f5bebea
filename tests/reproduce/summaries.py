"""Summaries of continual runs as small as the tables need, from literal numbers; cells of a page's tables."""

from __future__ import annotations

from typing import Any

from edgefr.metrics.continual import MASKS
from edgefr.report.pages import Page

POPULARITY = {"popularity": 0.25, "popularity, all blocks": 0.3, "chance": 0.01}


def summary(d1: float, d2: float, d3: float, known: float | None = 0.1, new: float | None = 0.2) -> dict[str, Any]:
    """A run that reached these NDCG@20 on D1 to D3; Recall@20 is twice as high, the history mask adds 0.01."""

    def both(value: float) -> dict[str, float]:
        return {"NDCG@20": value, "Recall@20": 2 * value}

    def group(value: float | None) -> dict[str, float]:
        return {} if value is None else both(value)

    def block(number: int, value: float) -> dict[str, Any]:
        references = {name: dict.fromkeys(MASKS, both(level)) for name, level in POPULARITY.items()}
        groups = {"known_users": group(known), "new_users": group(new)}
        return {"name": f"D{number}", "metrics": both(value), "history": both(value + 0.01), **groups} | {
            "references": references
        }

    mean = (d1 + d2 + d3) / 3
    return {
        "metrics": both(mean),
        "metrics_history_masked": both(mean + 0.01),
        "blocks": [block(number, value) for number, value in enumerate((0.9, d1, d2, d3))],
        "references": {name: dict.fromkeys(MASKS, both(level)) for name, level in POPULARITY.items()},
        "protocol": "blocks",
        "versions": {"edgefr": "0"},
    }


def assert_cells(page: Page, number: int, row: str, cells: dict[str, str]) -> None:
    """A row of a page's table, found by its first cell, has these texts."""
    (own,) = [each for each in page.sheets[number].rows if next(iter(each.values())) == row]
    assert {column: own[column] for column in cells} == cells
