"""Of a test with many cases some run with every commit, and the others with what is slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

VARIANTS = ("fedmf", "fcf", "transfr mean", "transfr lora", "fedcar", "fcucr", "sasrec, full softmax")
"""Variants that run with every commit: one of each paper's method and of each kind of program.

A table of items, whole gradients in closed form, an encoder's vectors, LoRA, several heads, sessions.
"""


def mostly_slow(cases: Iterable[Any], quick: Collection[Any] = VARIANTS) -> list[Any]:
    """Return cases to parametrise a test with, of which all are slow but the quick ones."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def mostly_slow_params(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Do the same for cases that `pytest.param` made."""
    return [case if case in quick else case._replace(marks=[*case.marks, pytest.mark.slow]) for case in cases]
