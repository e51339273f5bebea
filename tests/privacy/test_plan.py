import math

import pytest
from pydantic import ValidationError

from privacy.errors import InputError
from privacy.plan import plan
from privacy.settings import PrivacySettings


def test_sigma_is_the_deviation_over_the_clip_for_either_law():
    for mechanism in ("gaussian", "laplace"):
        settings = PrivacySettings(mechanism=mechanism, clip=2.0, sigma=0.7, sampler="float")
        noise = plan(settings, 1, 1, 1).noise
        assert noise.std == pytest.approx(1.4)
        steps = plan(settings.model_copy(update={"sampler": None}), 1, 1, 1).noise
        assert 0 <= steps.scale - noise.scale < steps.step == 2.0**-14
    assert noise.scale == pytest.approx(1.4 / math.sqrt(2))


def test_local_and_central_calibrated_for_all_rounds():
    local, central = (
        plan(PrivacySettings(mechanism="gaussian", trust=trust, clip=0.5, epsilon=8.0, sampler="float"), 40, 94, 943)
        for trust in ("local", "central")
    )
    assert (local.where, local.adjacency, local.sensitivity) == ("each upload", "replace-one", 1.0)
    assert (central.where, central.adjacency, central.sensitivity) == ("the sum", "zero-out", 0.5)
    assert local.noise.scale / 0.5 == pytest.approx(7.59, abs=5e-3)
    assert central.noise.scale / 0.5 == pytest.approx(3.8057, abs=1e-3)
    assert local.promised.epsilon == pytest.approx(8.0, rel=1e-4)
    assert local.promised.method == "GDP closed form"
    # on the mean the local model pays 2 sqrt(n) times more
    assert local.std_on_mean / central.std_on_mean == pytest.approx(2 * math.sqrt(94) / math.sqrt(1 + 2 / 20**2))


def test_noise_on_a_grid_is_calibrated_for_all_rounds_by_what_is_drawn():
    local, central = (
        plan(PrivacySettings(mechanism="gaussian", trust=trust, clip=0.5, epsilon=8.0), 40, 94, 943)
        for trust in ("local", "central")
    )
    assert local.noise.scale / 0.5 == pytest.approx(7.592, abs=1e-3)
    assert central.noise.scale / 0.5 == pytest.approx(3.8057, abs=1e-3)
    for found in (local, central):
        assert 8.0 * (1 - 1e-4) <= found.promised.epsilon <= 8.0
        assert (found.promised.method, found.noise.kind, found.noise.step) == (
            "GDP closed form",
            "discrete-gaussian",
            2.0**-16,
        )


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 5, 20), "rounds must be at least 1, got 0"),
        ((10, 0, 20), "cohort must be at least 1, got 0"),
        ((10, 21, 20), "a cohort of 21 clients is more than the 20 there are"),
    ],
)
def test_refuses_impossible_counts(counts, message):
    with pytest.raises(InputError, match=message):
        plan(PrivacySettings(), *counts)


def test_refuses_a_guarantee_with_size_weights():
    private = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=1.0)
    with pytest.raises(InputError, match="set the weights to uniform"):
        plan(private, 10, 5, 20, weights="size")
    assert not plan(PrivacySettings(), 10, 5, 20, weights="size").guarantees


def test_a_budget_below_one_release_is_refused_and_one_release_is_enough():
    for sampler, costs, below in (("float", "0.9289", 0.928), ("grid", "0.9289", 0.928)):
        settings = {"mechanism": "gaussian", "clip": 1.0, "sigma": 4.0, "sampler": sampler}
        with pytest.raises(InputError, match=rf"one release costs an epsilon of {costs}, so nobody could take part"):
            plan(PrivacySettings(**settings, budget=below), 10, 5, 20)
        assert plan(PrivacySettings(**settings, budget=below + 0.001), 10, 5, 20).promised.epsilon > below + 0.001


def test_a_grid_too_fine_for_exact_sums_is_refused():
    grid = {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0, "sampler": "grid"}
    assert plan(PrivacySettings(**grid, grid_exponent=-24), 5, 943, 943).noise.steps == 2**24
    with pytest.raises(InputError, match=r"is 33,554,432 steps of 2 \*\* -25, and an upload of 32-bit numbers takes"):
        plan(PrivacySettings(**grid, grid_exponent=-25), 5, 943, 943)
    many = 10**8
    with pytest.raises(InputError, match=rf"a sum of {many} updates has too many steps of 2 \*\* -24 to be exact"):
        plan(PrivacySettings(**grid, grid_exponent=-24), 5, many, many)
    assert plan(PrivacySettings(**grid, grid_exponent=-15), 5, many, many).noise.step == 2.0**-15


def test_a_seal_needs_a_sum_and_a_cohort():
    with pytest.raises(ValidationError, match="under local trust the server sees each upload: drop it"):
        PrivacySettings(trust="local", at_least=2)
    sealed = PrivacySettings(at_least=5)
    with pytest.raises(InputError, match="at_least 5 is more than the 4 clients of a round"):
        plan(sealed, 5, 4, 943)
    assert plan(sealed, 5, 5, 943).at_least == 5


def test_no_noise():
    resolved = plan(PrivacySettings(), 10, 5, 20)
    assert (resolved.noise, resolved.where, resolved.guarantees) == (None, "nowhere", False)
    assert resolved.promised == (math.inf, "no noise")
    assert resolved.std_on_mean == 0.0


def test_published_noise_guarantees_nothing_until_it_is_clipped():
    bare = plan(PrivacySettings(mechanism="laplace", trust="local", scale=0.5), 100, 5, 20)
    assert (bare.noise.scale, bare.guarantees, bare.promised.method) == (0.5, False, "no clip")
    clipped = plan(PrivacySettings(mechanism="laplace", trust="local", scale=0.5, clip=1.0), 100, 5, 20)
    assert (clipped.noise.kind, clipped.noise.scale) == ("discrete-laplace", 0.5)
    on_floats = PrivacySettings(mechanism="laplace", trust="local", scale=0.5, clip=1.0, sampler="float")
    assert plan(on_floats, 100, 5, 20).noise == bare.noise
    assert plan(on_floats, 100, 5, 20).promised == clipped.promised
    assert clipped.promised == pytest.approx((988.8, "zCDP->RDP"), abs=0.1)


def test_infinite_epsilon_clips_without_noise():
    resolved = plan(PrivacySettings(mechanism="gaussian", clip=1.0, epsilon=math.inf), 10, 5, 20)
    assert (resolved.noise, resolved.clip, resolved.guarantees) == (None, 1.0, False)
