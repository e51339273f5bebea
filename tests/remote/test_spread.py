"""Devices with exact noise learn as well as simulated ones do, within what their noise alone changes."""

from pathlib import Path

import pytest

from tests.remote.spread import measure


@pytest.mark.parametrize("trust", ["local", "central"])
def test_devices_with_exact_noise_are_within_the_spread_of_simulated_ones(trust: str, tmp_path: Path) -> None:
    """A prediction interval of a run among ten others: at 8 sd a false alarm comes less than once in 10,000."""
    found = measure(trust, tmp_path, simulated=10, repeats=1, users=16, sealed=trust == "central")
    assert len(set(found.simulated)) > 5, "the noise changes nothing, so nothing is tested"
    assert len(found.apart) == 1 + (trust == "central"), "and once more where uploads are summed under masks"
    assert max(map(abs, found.apart)) < 8
