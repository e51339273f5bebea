"""Edges of ranges: seen, moved outward within what the setting allows, and the same after any kill."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefr.studies.sweeps.grid import Range
from edgefr.studies.sweeps.search import BATCH, EndedTrial, Trial
from edgefr.studies.tuning.wider_ranges import FIRST_LOOK, at_edges, edge, moved, widened, wider

LR = Range("model.lr", "log", 0.01, 1.0)
OTHER = Range("model.init_scale", "uniform", 0.0, 2.0)


def told(number: int, lr: float, value: float, other: float = 1.0) -> EndedTrial:
    return EndedTrial(Trial(number, {"model.lr": lr, "model.init_scale": other}), value)


def anything(r: Range) -> bool:
    return True


@pytest.mark.parametrize(
    ("r", "value", "side"),
    [
        (LR, 0.01, -1),
        (LR, 0.0125, -1),
        (LR, 0.013, 0),
        (LR, 0.1, 0),
        (LR, 0.7, 0),
        (LR, 0.81, 1),
        (LR, 1.0, 1),
        (OTHER, 0.1, -1),
        (OTHER, 0.11, 0),
        (OTHER, 1.9, 1),
    ],
)
def test_an_edge_is_a_twentieth_of_the_range_in_its_own_scale(r: Range, value: float, side: int) -> None:
    assert edge(r, value) == side


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    low=st.floats(1e-6, 1.0),
    factor=st.floats(1.5, 1e6),
    side=st.sampled_from([-1, 1]),
    scale=st.sampled_from(["log", "uniform"]),
)
def test_a_wider_range_holds_the_old_one_and_moves_one_end(low: float, factor: float, side: int, scale: str) -> None:
    before = Range("x", scale, low, low * factor)  # type: ignore[arg-type]
    after = wider(before, side)
    assert (after.low == before.low) == (side > 0)
    assert (after.high == before.high) == (side < 0)
    assert after.low <= before.low < before.high <= after.high
    assert edge(after, before.high if side > 0 else before.low) == 0 or scale == "log"


CALM, HIGH = (0.1, 0.2), (0.99, 0.3)
"""Choices of `LR` and their values: in its middle, and better at its upper edge."""


@pytest.mark.parametrize(
    ("found", "trials", "after", "end"),
    [
        ([CALM] * (FIRST_LOOK - 1), 20, [], 1.0),
        ([*[CALM] * (FIRST_LOOK - 1), HIGH], 20, [8], 10.0),
        ([*[CALM] * (FIRST_LOOK - 1), HIGH], FIRST_LOOK, [], 1.0),
        ([*[CALM] * 7, HIGH, *[(5.0, 0.25)] * 8], 20, [8], 10.0),
        ([*[CALM] * 7, HIGH, *[(9.9, 0.4)] * 8], 20, [8, 12], 100.0),
        ([*[CALM] * 9, HIGH, CALM, CALM], 20, [12], 10.0),
        ([(0.01, math.nan)] * 12, 20, [], 1.0),
    ],
    ids=["before two batches", "after", "no trial is left", "once", "again", "later trials count later", "all failed"],
)
def test_a_range_is_widened_where_the_best_of_its_batches_is(
    found: list[tuple[float, float]], trials: int, after: list[int], end: float
) -> None:
    ended = [told(number, lr, value) for number, (lr, value) in enumerate(found)]
    now, steps = widened([LR, OTHER], ended, trials, anything)
    assert now == [replace(LR, high=end), OTHER]
    assert [step.after for step in steps] == after
    assert [str(step) for step in steps[:1]] == [
        f"model.lr: log(0.01, 1) became log(0.01, 10) after {n} trials" for n in after[:1]
    ]


def test_an_end_that_the_setting_does_not_go_beyond_is_no_edge() -> None:
    best = told(0, 0.99, 0.3, other=0.01)
    assert [old.field for old, _ in at_edges([LR, OTHER], best, anything)] == ["model.lr", "model.init_scale"]
    assert [old.field for old, _ in at_edges([LR, OTHER], best, lambda r: r.low > 0)] == ["model.lr"]


@pytest.mark.parametrize(
    ("r", "best", "limit", "end"),
    [
        (Range("model.dim", "int", 8, 3000), 2990, 4096, 4096),
        (Range("model.dim", "int", 8, 4095), 4090, 4096, 4096),
        (Range("x", "uniform", 0.0, 0.9), 0.89, 1.0, 1.0),
        (Range("x", "log", 0.01, 0.3), 0.29, 1.0, 1.0),
    ],
)
def test_an_end_moves_to_where_the_setting_ends_and_no_further(r: Range, best: float, limit: float, end: float) -> None:
    def allowed(asked: Range) -> bool:
        return asked.high <= limit

    trials = [EndedTrial(Trial(n, {r.field: best if n == 5 else 0.1}), float(n == 5)) for n in range(12)]
    assert at_edges([r], trials[5], allowed) == [(r, replace(r, high=end))]
    now, steps = widened([r], trials[:8], 20, allowed)
    assert (now[0].high, len(steps)) == (end, 1)
    last = EndedTrial(Trial(0, {r.field: limit}), 1.0)
    assert at_edges(now, last, allowed) == [], "all that the setting takes was searched"


@given(
    scale=st.sampled_from(["int", "uniform", "log"]),
    low=st.integers(1, 50),
    width=st.integers(1, 5000),
    beyond=st.floats(0, 3),
    side=st.sampled_from([-1, 1]),
)
def test_a_moved_end_is_always_one_that_is_taken_and_soon_stays(
    scale: str, low: int, width: int, beyond: float, side: int
) -> None:
    r = Range("x", scale, low, low + width)  # type: ignore[arg-type]
    limit = r.high * (1 + beyond) if side > 0 else r.low / (1 + beyond)

    def allowed(asked: Range) -> bool:
        return asked.high <= limit if side > 0 else asked.low >= limit

    for _ in range(40):
        now = moved(r, side, allowed)
        if now is None:
            break
        assert allowed(now)
        assert (now.high > r.high) if side > 0 else (now.low < r.low)
        r = now
    assert now is None
    assert scale != "int" or abs((r.high if side > 0 else r.low) - limit) < 1, "the very last that is taken"


def test_ranges_follow_from_whole_batches_alone() -> None:
    trials = [told(n, 0.99, 0.3) for n in range(4 * BATCH)]
    for some in range(len(trials)):
        assert widened([LR], trials[:some], 20, anything) == widened([LR], trials[: some - some % BATCH], 20, anything)
