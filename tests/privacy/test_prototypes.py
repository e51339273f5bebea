"""Prototypes as a release of their own: bounded, noised by each device for itself, composed with the updates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from privacy.accounting import gaussian_epsilon
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.plan import PrivacyPlan, plan
from privacy.prototypes import RECIPIENTS, Prototypes
from privacy.report import ledger_report, report
from privacy.report_rows import render
from privacy.settings import PrivacySettings
from tests.noises import KEY

DELTA = 1e-5
ANY = st.floats(allow_nan=True, allow_infinity=True, width=32)
GAUSSIAN: dict[str, Any] = {"mechanism": "gaussian", "trust": "local", "clip": 1.0, "sigma": 4.0, "sampler": "float"}
BASE = KEY.base(0, "test")


def planned(sent: Prototypes, rounds: int = 10, **settings: Any) -> tuple[PrivacySettings, PrivacyPlan]:
    asked = PrivacySettings.model_validate(settings)
    return asked, plan(asked, rounds, 20, 20, values=1000, prototypes=sent)


def reported(sent: Prototypes, rounds: int = 10, **settings: Any) -> dict[str, Any]:
    return report(*planned(sent, rounds, **settings), rounds, float(rounds), 20)


def under(values: int, **settings: Any) -> Prototypes:
    """Prototypes beside updates with these settings, as a plan has them."""
    found = planned(Prototypes(values, 10), **settings)[1].prototypes
    assert found is not None
    return found


@given(arrays(np.float32, (3, 6), elements=ANY), st.sampled_from(["l1", "l2"]), st.floats(1e-3, 1e3))
def test_nothing_leaves_beyond_the_clip(vectors, norm, clip):
    sent = under(6, clip=1e-6, norm=norm, trust="local", prototype_clip=clip)
    left = sent.leaving(vectors, BASE, [0, 1, 2])
    assert np.isfinite(left).all()
    assert (np.linalg.norm(left, 1 if norm == "l1" else 2, axis=1) <= clip).all()
    assert not left[~np.isfinite(vectors).all(axis=1)].any()
    own = np.linalg.norm(vectors.astype(np.float64), 1 if norm == "l1" else 2, axis=1) <= clip * 0.999
    assert (left[own] == vectors[own]).all(), "what is within the clip leaves as it is"


def test_a_clip_of_updates_is_the_prototypes_too_unless_they_have_one():
    assert [under(6, clip=0.5, trust="local", prototype_clip=c).clip for c in (None, 2.0)] == [0.5, 2.0]
    far = np.full((1, 4), 3.0)
    assert under(4, clip=0.5, trust="local").leaving(far, BASE, [0]) == pytest.approx(np.full((1, 4), 0.25), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "std", "law"),
    [
        ({**GAUSSIAN, "prototype_clip": 0.25}, 1.0, stats.norm(scale=1.0)),
        (
            {**GAUSSIAN, "mechanism": "laplace", "norm": "l1", "prototype_clip": 2.0},
            8.0,
            stats.laplace(scale=8.0 / 2**0.5),
        ),
    ],
)
def test_noise_is_that_of_the_update_in_proportion_to_the_clips(settings, std, law):
    sent = under(50, **settings)
    assert sent.noise is not None
    assert sent.noise.std == pytest.approx(std)
    drawn = sent.leaving(np.zeros((200, 50)), BASE, np.arange(200))
    assert stats.kstest(drawn.ravel(), law.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(drawn[::2].ravel(), drawn[1::2].ravel())[0, 1]) < 0.05


def test_a_clients_noise_is_its_own_and_new_in_every_round():
    sent, rounds = under(8, **GAUSSIAN), [KEY.base(3, "test", number) for number in (1, 2)]
    many, few = sent.leaving(np.zeros((5, 8)), rounds[0], np.arange(5)), sent.leaving(np.zeros((1, 8)), rounds[0], [3])
    assert (many[3] == few[0]).all()
    assert len(np.unique(np.concatenate([many, sent.leaving(np.zeros((5, 8)), rounds[1], np.arange(5))]))) == 80


def test_on_a_grid_prototypes_are_whole_steps_and_rounding_them_costs_nothing():
    sent = under(16, **{**GAUSSIAN, "sampler": "grid"}, grid_exponent=-6, prototype_clip=0.5)
    left = sent.leaving(np.random.default_rng(0).normal(size=(5, 16)), BASE, np.arange(5)) * 64
    assert (left == np.rint(left)).all()
    assert len(np.unique(left)) > 20
    assert sent.event == Event(
        "discrete-gaussian", multiplier=2.0, steps=64, recipient=RECIPIENTS
    )  # std 4 / 2, 2 C = 1


def test_update_and_prototype_are_two_releases_of_one_kind():
    _, made = planned(Prototypes(50, 4), **GAUSSIAN, prototype_clip=0.3)
    assert made.event == Event("gaussian", multiplier=2.0)
    sent = under(50, **GAUSSIAN, prototype_clip=0.3).event
    assert (sent.mechanism, sent.multiplier, sent.recipient) == ("gaussian", pytest.approx(2.0), RECIPIENTS)
    assert made.promised.epsilon == pytest.approx(gaussian_epsilon(2.0, 14, DELTA), rel=1e-9)
    alone = planned(Prototypes(50, 0), **GAUSSIAN)[1].promised.epsilon
    assert alone == pytest.approx(gaussian_epsilon(2.0, 10, DELTA), rel=1e-9)


@pytest.mark.parametrize(
    "law",
    [
        {"mechanism": "gaussian", "sampler": "float"},
        {"mechanism": "laplace", "norm": "l1", "sampler": "float"},
        {"mechanism": "laplace"},
        {"mechanism": "gaussian"},
        {"mechanism": "gaussian", "sampler": "grid", "grid_exponent": -10},
    ],
)
def test_noise_is_calibrated_for_both(law):
    asked: dict[str, Any] = {**law, "trust": "local", "clip": 1.0, "prototype_clip": 0.2, "epsilon": 8.0}
    _, both = planned(Prototypes(50, 10), **asked)
    _, alone = planned(Prototypes(50, 0), **asked)
    assert 7.9 < both.promised.epsilon <= 8.0
    assert both.noise is not None
    assert alone.noise is not None
    assert both.noise.scale > 1.3 * alone.noise.scale


def test_a_budget_below_one_update_and_one_prototype_lets_nobody_take_part():
    both = gaussian_epsilon(2.0, 2, DELTA)
    with pytest.raises(InputError, match="nobody could take part"):
        planned(Prototypes(50, 10), **GAUSSIAN, budget=0.999 * both)
    assert planned(Prototypes(50, 10), **GAUSSIAN, budget=1.001 * both)[1].prototypes is not None


def test_a_ledger_asks_for_both_at_once_and_refuses_once():
    sent = under(50, **GAUSSIAN)
    both, three = gaussian_epsilon(2.0, 2, DELTA), gaussian_epsilon(2.0, 3, DELTA)
    ledger = Ledger(2, delta=DELTA, adjacency="replace-one", budget=(both + three) / 2)
    pair = Event("gaussian", multiplier=2.0), sent.event
    assert ledger.try_spend([0, 1], *pair).tolist() == [True, True]
    assert ledger.try_spend([0], *pair).tolist() == [False]
    assert (ledger.releases().tolist(), ledger.refused().tolist()) == ([2, 2], [1, 0])
    assert ledger.epsilon().tolist() == pytest.approx([both, both])
    assert [row["recipient"] for row in ledger_report(ledger)["composed"]] == ["server", RECIPIENTS]


def test_the_report_names_prototypes_and_who_learns_from_them():
    plain = reported(Prototypes(50, 10, asked=True), mechanism="none")
    assert plain["recipients"] == "other clients (through fused answers), server"
    row = dict(render(plain))["Release / recipients"]
    assert "a prototype of 50 values as it is, one more for every recommendation" in row
    assert "other clients (through fused answers), server" in row
    guarded = reported(Prototypes(50, 4), **GAUSSIAN, prototype_clip=0.25)
    assert "a prototype of 50 values clipped and noised, and taking part" in guarded["release"]
    assert [(row["recipient"], row["releases"]) for row in guarded["composed"]] == [("server", 10), (RECIPIENTS, 4)]
    assert guarded["eps_guaranteed"] == pytest.approx(gaussian_epsilon(2.0, 14, DELTA), rel=1e-9)
    assert dict(render(guarded))["Prototypes"] == "50 values in 4 rounds; L2 C=0.25; gaussian std 1 on each, its own"
    bare = report(PrivacySettings(), plan(PrivacySettings(), 1, 1, 1), 1, 1.0, 1)
    assert (bare["prototypes"], bare["recipients"]) == (None, "server")
    assert "Prototypes" not in dict(render(bare))


@pytest.mark.parametrize(("std", "epsilon"), [(0.1, 48.45), (0.2, 24.22), (0.3, 16.15), (0.4, 12.11), (0.6, 8.07)])
def test_the_papers_noise_prints_the_papers_epsilon_and_guarantees_nothing(std, epsilon):
    scale = std / math.sqrt(2)  # b of a Laplace of this standard deviation
    found = reported(Prototypes(50, 10), mechanism="paper-laplace", trust="local", scale=scale)
    assert found["eps_nominal"] == pytest.approx(epsilon, abs=5e-3)
    assert (found["eps_guaranteed"], found["eps_hypothetical"]) == ("inf", "inf")
    assert "prototypes: the noise is on updates alone" in found["not_covered"]


def test_noise_on_what_is_received_protects_nothing_that_was_sent():
    found = reported(Prototypes(50, 10, received_noise=0.1), mechanism="none")
    assert [found[name] for name in ("eps_nominal", "eps_guaranteed", "eps_hypothetical")] == ["inf"] * 3
    words = "sent prototypes: noise on received prototypes does not protect them"
    assert words in found["not_covered"]
    assert "std 0.1 on received ones protects nothing" in dict(render(found))["Prototypes"]


def test_a_grid_is_chosen_for_the_prototypes_own_clip():
    sent = under(16, **{**GAUSSIAN, "sampler": None}, prototype_clip=0.3)
    assert sent.noise is not None
    assert (sent.noise.step, sent.noise.steps) == (2.0**-17, math.ceil(4.0 * 0.3 * 2**17))
    assert 2.0 <= sent.event.multiplier < 2.0 + 1e-4


def test_hypothetical_counts_the_prototypes_too():
    settings, made = planned(Prototypes(50, 4), **GAUSSIAN)
    found = report(settings, made, 10, 10.0, 20, p90_norm=1.0)["eps_hypothetical"]
    assert found == pytest.approx(gaussian_epsilon(2.0, 14, DELTA), rel=1e-9)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_clip_is_refused(clip):
    with pytest.raises(ValueError, match="prototype_clip"):
        PrivacySettings(clip=1.0, prototype_clip=clip)
    with pytest.raises(ValueError, match="set clip"):
        PrivacySettings(prototype_clip=1.0)
