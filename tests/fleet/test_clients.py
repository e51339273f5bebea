"""Which device, speed and network clients have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from edgefr.fleet.clients import apportion, devices_by_activity, draw
from tests.fleet.fleets import shipped

ACTIVITY = np.arange(4000.0) % 371


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=12).filter(any), st.integers(1, 5000))
def test_shares_are_kept_to_the_nearest_client(weights, clients):
    shares = np.array(weights) / sum(weights)
    counts = apportion(shares.tolist(), clients)
    assert counts.sum() == clients
    assert (np.abs(counts - shares * clients) < 1).all()


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.4, 0.9, 1.0])
def test_speed_follows_activity_as_much_as_asked(correlation):
    clients = 4000
    counts = np.full(200, clients // 200)  # many classes, so that ties cost next to nothing
    rates = np.arange(200.0)[::-1]
    activity = np.random.default_rng(0).permutation(clients).astype(float)
    device = devices_by_activity(counts, rates, activity, correlation, seed=3)
    assert np.bincount(device).tolist() == counts.tolist()
    assert spearmanr(rates[device], activity).statistic == pytest.approx(correlation, abs=0.04)


@pytest.mark.parametrize("correlation", [-0.5, 0.6])
def test_the_correlation_is_spearmans_and_not_that_of_the_normals_behind_it(correlation):
    clients = 60_000  # a class each: no ties, and few enough for 16 bits
    rates, activity = np.arange(float(clients)), np.random.default_rng(0).permutation(clients).astype(float)
    device = devices_by_activity(np.ones(clients, dtype=np.int64), rates, activity, correlation, seed=3)
    assert spearmanr(rates[device], activity).statistic == pytest.approx(correlation, abs=0.01)


def test_correlation_changes_who_has_a_device_but_not_how_many():
    alone, tied = (
        draw(spec, list(spec.fleet.share), ACTIVITY, seed=1)
        for spec in (shipped(), shipped({"activity_correlation": 0.8}))
    )
    assert np.bincount(alone.device).tolist() == np.bincount(tied.device).tolist()
    rate = np.array([shipped().devices[name].compute.fp32_gflops.v for name in shipped().fleet.share])
    assert abs(spearmanr(rate[alone.device], ACTIVITY).statistic) < 0.05
    assert 0.7 < spearmanr(rate[tied.device], ACTIVITY).statistic < 0.82


def test_rates_stay_within_their_class_and_are_centred_on_its_figure():
    spec = shipped({"share": {"phone_sd8g2": 1.0}})
    rates = draw(spec, ["phone_sd8g2"], ACTIVITY, seed=2).gflops
    assert rates.min() >= 54
    assert rates.max() <= 217
    assert np.median(rates) == pytest.approx(136, rel=0.02)
    assert np.quantile(rates, 0.25) == pytest.approx(np.sqrt(54 * 136), rel=0.03)  # log-uniform on either side


def test_networks_follow_the_mix_and_their_spread():
    spec = shipped({"share": {"rpi_zero_2w": 1.0}})
    clients = draw(spec, ["rpi_zero_2w"], ACTIVITY, seed=0)
    names = list(spec.networks)
    assert set(np.unique(clients.network)) == {names.index("wifi_home"), names.index("wifi_poor")}
    home = clients.network == names.index("wifi_home")
    assert home.mean() == pytest.approx(0.7, abs=0.03)
    assert np.log(clients.rate_factor[home]).std() == pytest.approx(0.6, rel=0.05)
    one = draw(shipped({"networks": {"lte": 1.0}}), list(spec.fleet.share), ACTIVITY, seed=0)
    assert set(one.network.tolist()) == {names.index("lte")}


def test_draws_depend_on_the_seed_alone():
    spec = shipped()
    first, again, other = (draw(spec, list(spec.fleet.share), ACTIVITY, seed=s) for s in (0, 0, 1))
    for name in ("device", "network", "gflops", "rate_factor"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))
