"""A paper's printed numbers are CSV files, one per table; its titles and notes are in `paper.yaml` beside them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from edgefr.config.packaged_files import shipped

FOLDER = Path("studies/reproductions")
KEYS = ("data", "backbone", "metric", "row", "users", "noise", "window", "interval")
"""Columns that say which numbers a line has; all others are numbers."""

Numbers = Mapping[str, float | None]
"""Numbers of a line, by column; None: nothing is printed."""


@cache
def specification(paper: str) -> Mapping[str, Any]:
    """Return a paper's title, its exhibits by name, and the notes on how they are read."""
    found: Mapping[str, Any] = yaml.safe_load(shipped(FOLDER / paper / "paper.yaml").read_text(encoding="utf-8"))
    return found


def lines(paper: str, table: str) -> list[dict[str, str]]:
    """Return the lines of a table, as text."""
    with shipped(FOLDER / paper / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def published(paper: str, table: str) -> Mapping[tuple[str, ...], Numbers]:
    """Return the printed numbers of a table, by the words that its lines begin with.

    >>> published("f3crec", "table-7")["ml-100k", "f3crec"]["diff"]
    0.2726
    """
    return {
        tuple(text for name, text in line.items() if name in KEYS): {
            name: parsed(text) for name, text in line.items() if name not in KEYS
        }
        for line in lines(paper, table)
    }


def parsed(text: str) -> float | None:
    """Return a printed number, whole ones as such, None for no text."""
    return float(text) if "." in text else int(text) if text else None
