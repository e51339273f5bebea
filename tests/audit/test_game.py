"""The audit audited: right mechanisms are not accused, and two faults that people make are found."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefr.studies.audits import games
from edgefr.studies.audits.canaries import through
from edgefr.studies.audits.finding import Effort, Finding
from privacy.plan import PrivacyPlan, plan
from privacy.settings import PrivacySettings


def quiet(stage: str, done: int, total: int, note: str) -> None:
    pass


def planned(rounds: int = 1, **settings: Any) -> PrivacyPlan:
    return plan(PrivacySettings(clip=1.0, **settings), rounds, 50, 50)


def weaker(plan: PrivacyPlan, times: float) -> PrivacyPlan:
    """The same plan with noise of so many times less scale, in whole steps, and the claim that it had."""
    return replace(plan, noise=replace(plan.noise, scale=round(plan.noise.steps / times) * plan.noise.step))


def played(plan: PrivacyPlan, trials: int, rounds: int = 1, attack: Any = games.game) -> Finding:
    """What an attack on a run under this plan finds."""
    settings = SimpleNamespace(privacy=SimpleNamespace(delta=1e-5))
    return attack(SimpleNamespace(plan=plan, rounds=rounds, p90=None, experiment=settings), Effort(0, trials), quiet)


LAPLACE = {"mechanism": "laplace", "norm": "l1", "epsilon": 2.0}


def test_what_passes_is_clipped_and_noised_as_the_plan_says() -> None:
    """Two clients far beyond the clip, one within it; central: the sum carries the noise once."""
    calm = replace(planned(mechanism="gaussian", sigma=1.0), noise=None, where="nowhere")
    updates = np.array([[10.0, 0.0], [0.0, -10.0], [0.25, 0.0]])
    np.testing.assert_allclose(through(calm, updates, 1, [3])[0], [1.25, -1.0], atol=1e-5)
    noised = through(planned(mechanism="gaussian", sigma=2.0), np.zeros((50, 400)), 1, range(20))
    assert noised.std() == pytest.approx(2.0, rel=0.03)
    each = through(planned(mechanism="gaussian", sigma=2.0, trust="local"), np.zeros((50, 400)), 1, range(20))
    assert each.std() == pytest.approx(2.0 * 50**0.5, rel=0.03)
    assert not np.array_equal(noised[0], noised[1]), "every round has noise of its own"


@pytest.mark.parametrize(
    ("settings", "rounds", "trials"),
    [
        ({**LAPLACE, "trust": "central"}, 1, 20_000),
        ({**LAPLACE, "trust": "local"}, 1, 2000),
        ({"mechanism": "gaussian", "trust": "central", "epsilon": 4.0}, 3, 20_000),
        ({"mechanism": "laplace", "norm": "l2", "trust": "central", "epsilon": 4.0}, 2, 20_000),
    ],
)
def test_right_mechanisms_are_not_accused(settings: dict[str, Any], rounds: int, trials: int) -> None:
    resolved = planned(rounds, **settings)
    found = played(resolved, trials, rounds)
    assert found.releases == rounds
    assert found.claimed == pytest.approx(settings["epsilon"], rel=1e-3)
    assert not found.exceeds
    assert found.eps_lb95 > 0.15 * settings["epsilon"], "an audit that finds nothing would accuse nobody"
    assert found.auc > 0.6


def test_a_forgotten_factor_two_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise made for a sensitivity of C where a replaced client moves the upload by 2 C: claims 2, gives 4."""
    right = PrivacySettings.sensitivity.fget
    monkeypatch.setattr(PrivacySettings, "sensitivity", property(lambda self: right(self) / 2.0))
    resolved = planned(**LAPLACE, trust="local")
    found = played(resolved, 3000)
    assert found.claimed == pytest.approx(2.0, rel=1e-3)
    assert 2.0 < found.eps_lb95 <= 4.0
    assert found.exceeds
    assert found.row()["exceeds"] is True


def test_a_std_used_as_scale_is_found() -> None:
    """Laplace noise of the standard deviation that should have been its b: claims 2, gives 2 sqrt(2)."""
    resolved = planned(**LAPLACE, trust="central")
    assert resolved.noise is not None
    wrong = weaker(resolved, 2**0.5)
    found = played(wrong, 20_000)
    assert 2.0 < found.eps_lb95 <= 2.0 * 2**0.5
    assert found.exceeds


@pytest.mark.parametrize("trust", ["central", "local"])
def test_canaries_of_one_run(trust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find something of a right mechanism, and more than is claimed where hardly any noise is left."""
    monkeypatch.setattr(games, "CANARIES", 600)
    resolved = planned(**LAPLACE, trust=trust)
    found = played(resolved, 600, attack=games.canaries)
    assert 0.3 < found.eps_lb95 <= 2.0
    assert not found.exceeds
    assert found.counts["guesses"] == 150
    assert resolved.noise is not None
    bare = weaker(resolved, 50.0)
    assert played(bare, 600, attack=games.canaries).exceeds


def test_without_noise_everything_is_told_apart_and_nothing_is_claimed() -> None:
    resolved = plan(PrivacySettings(clip=1.0), 4, 50, 50)
    found = played(resolved, 2000, 4)
    assert (found.auc, found.tpr, found.row()["claimed"], found.exceeds) == (1.0, 1.0, "inf", False)
    assert found.eps_lb95 > 4.0


def test_the_same_audit_gives_the_same_bits() -> None:
    resolved = planned(mechanism="gaussian", sigma=1.0)
    assert played(resolved, 1000) == played(resolved, 1000)
