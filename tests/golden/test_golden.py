"""Small runs of everything come to the values that were kept, on any processor, to 1e-5 of their size."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefr.data import protocol
from edgefr.experiment.continual import STRATEGIES
from edgefr.experiment.method import METHODS
from tests.caches import new_cache
from tests.export.worlds import student
from tests.golden.cases import PROTOCOLS, cases, known
from tests.golden.kept import HOW, kept
from tests.golden.make import values
from tests.golden.values import differences
from tests.mostly_slow import mostly_slow

FIRST = {case.split(",")[0]: case for case in reversed(known())}.values()
"""The first case of each method."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for all cases, so that texts are read once; no archives."""
    place = new_cache(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEFR_CACHE", str(place))
        patch.delenv("EDGEFR_DATA", raising=False)
        yield place


@pytest.mark.parametrize("case", mostly_slow(known(), FIRST))
def test_it_comes_to_what_was_kept(case: str, tmp_path: Path) -> None:
    lines = differences(values(case, student(), tmp_path / "run"), kept()[case])
    assert not lines, "\n".join([f"{len(lines)} values differ", *lines[:20]])


def test_everything_that_can_be_run_is_here() -> None:
    assert not cases().keys() - kept().keys(), f"no values are kept for these: {HOW}"
    assert not kept().keys() - cases().keys(), f"cases that are refused now, or gone; {HOW}, and drops these"
    asked = {parts[0] for parts in (case.split(", ") for case in cases())}
    beginnings = {name for part in asked for name in part.split(" on ")} | {part.split()[0] for part in asked}
    assert beginnings >= METHODS.keys() | STRATEGIES.keys()
    assert {part for case in cases() for part in case.split(", ")} >= PROTOCOLS.keys()


def test_every_protocol_is_asked() -> None:
    assert protocol.PROTOCOLS.keys() == PROTOCOLS.keys()


@pytest.mark.parametrize("part", ["tensors", "metrics", "ledger", "epsilon", "clock"])
def test_a_value_that_moves_is_seen(part: str) -> None:
    case = kept()["fedmf, a budget"]
    moved = copy.deepcopy(case)
    assert not differences(moved, case)
    _move(moved[part], 3e-5)
    assert len(differences(moved, case)) == 1
    assert differences({k: v for k, v in case.items() if k != part}, case)


def _move(values: Any, share: float) -> bool:
    """Move the first number of a value by a share of its size."""
    places = values if isinstance(values, dict) else range(len(values))
    for place in places:
        value = values[place]
        if isinstance(value, dict | list):
            if _move(value, share):
                return True
        elif isinstance(value, float | int) and value > 0:
            values[place] = value * (1 + share) if isinstance(value, float) else value + 1
            return True
    return False
