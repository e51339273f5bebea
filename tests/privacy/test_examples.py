"""Example-level DP-SGD: settings, calibration, and what is printed about single interactions."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.errors import InputError
from privacy.example_plan import plan_examples, render_examples, report_examples
from privacy.settings import ExampleSettings

DELTA = 1e-5


def epsilon(sigma: float, rounds: int, uses: int) -> float:
    return plan_examples(ExampleSettings(clip=3.0, sigma=sigma), DELTA, rounds, uses).promised.epsilon


@pytest.mark.parametrize(
    ("sigma", "releases", "expected"),
    [(1, 1, 4.3772), (1, 10, 17.8566), (1, 40, 46.2112), (4, 1, 0.9263), (4, 40, 7.5113), (4, 100, 13.2067)],
)
def test_an_example_costs_a_gaussian_per_use_and_nothing_is_amplified(
    sigma: float, releases: int, expected: float
) -> None:
    """Known values of Gaussian noise over sensitivity: zero-out moves a step's sum by the clip, not twice it."""
    assert epsilon(sigma, releases, 1) == pytest.approx(expected, abs=1e-4)
    if releases > 1:
        assert epsilon(sigma, releases // 10, 10) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(target=st.floats(0.1, 50), rounds=st.integers(1, 300), uses=st.integers(1, 30))
def test_a_calibrated_epsilon_is_kept(target: float, rounds: int, uses: int) -> None:
    found = plan_examples(ExampleSettings(clip=1.0, epsilon=target), DELTA, rounds, uses)
    assert 0.999 * target < found.promised.epsilon <= target
    assert found.after(max(rounds - 1, 1)).epsilon <= found.promised.epsilon
    assert found.after(2 * rounds).epsilon > found.promised.epsilon


def test_the_report_is_of_the_client_in_most_rounds_and_speaks_of_interactions() -> None:
    plan = plan_examples(ExampleSettings(clip=0.5, sigma=4.0), DELTA, rounds=50, uses=2)
    out = json.loads(json.dumps(report_examples(plan, 20, 7.5, negatives=4), allow_nan=False))
    assert out["eps_guaranteed"] == pytest.approx(7.5113, abs=1e-4)
    assert out["eps_planned"] == pytest.approx(13.2067, abs=1e-4)
    assert out["eps_nominal"] == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 4)
    assert (out["eps_hypothetical"], out["eps_lb95"]) == (None, None)
    assert (out["unit"], out["adjacency"], out["amplification"]) == ("interaction", "zero-out", "none")
    assert (out["std"], out["composed"][0]["releases"]) == (2.0, 40)
    rows = dict(render_examples(out))
    assert rows["  eps GUARANTEED, an interaction (delta=1e-05)"].startswith("7.511 (")
    assert "NOT A GUARANTEE" in rows["  eps NOMINAL"]
    assert "max 40, median 15 (2 per round); amplification none" in rows["  releases per interaction"]


def test_a_clip_without_noise_guarantees_nothing() -> None:
    plan = plan_examples(ExampleSettings(clip=1.0, epsilon=math.inf), DELTA, rounds=3, uses=1)
    out = report_examples(plan, 3, 3.0, negatives=4)
    assert (plan.sigma, out["eps_guaranteed"], out["eps_nominal"]) == (0.0, "inf", "inf")
    assert "everything: no noise was added" in out["not_covered"]


@pytest.mark.parametrize(
    "values",
    [
        {"clip": 1.0},
        {"sigma": 1.0},
        {"clip": 1.0, "sigma": 1.0, "epsilon": 1.0},
        {"clip": 0.0, "sigma": 1.0},
        {"clip": 1.0, "sigma": 0.0},
        {"clip": 1.0, "epsilon": -1.0},
        {"clip": 1.0, "sigma": 1.0, "unit": "client"},
    ],
)
def test_settings_that_mean_nothing_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ExampleSettings(**values)


@pytest.mark.parametrize(("rounds", "uses"), [(0, 1), (1, 0)])
def test_impossible_counts_are_refused(rounds: int, uses: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        plan_examples(ExampleSettings(clip=1.0, sigma=1.0), DELTA, rounds, uses)
