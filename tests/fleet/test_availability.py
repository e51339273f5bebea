"""Availability and charge over virtual days."""

import numpy as np
import pytest

from edgefr.fleet.availability import AvailabilityProcess
from edgefr.fleet.spec import Availability

HOUR = 3600.0
DAY = 24 * HOUR
FLAT = Availability(mean_on_h=3.0, mean_off_h=1.0, sigma_ln=0.8, by_hour=[1.0] * 24)
EVERYONE = np.arange(4000)


def test_the_share_online_is_that_of_the_mean_spells():
    availability = AvailabilityProcess(FLAT, len(EVERYONE), seed=0)
    shares = [(availability.online_until(EVERYONE, h * HOUR) > h * HOUR).mean() for h in range(0, 60, 3)]
    assert np.mean(shares) == pytest.approx(0.75, abs=0.02)
    assert min(shares) > 0.68


def test_spells_have_the_mean_length_asked_for():
    availability = AvailabilityProcess(FLAT, len(EVERYONE), seed=0)
    availability.online_until(EVERYONE, 100 * HOUR)
    before = availability.state_dict()["spell"]
    availability.online_until(EVERYONE, 300 * HOUR)
    spells = availability.state_dict()["spell"] - before
    assert spells.mean() == pytest.approx(2 * 200 / (3.0 + 1.0), rel=0.02)


def test_spells_at_night_follow_the_hour_they_start_in():
    by_hour = [4.0] * 6 + [0.25] * 18
    availability = AvailabilityProcess(FLAT.model_copy(update={"by_hour": by_hour}), len(EVERYONE), seed=0)
    online = [(availability.online_until(EVERYONE, h * HOUR) > h * HOUR).mean() for h in range(24, 72)]
    night, day = np.mean(online[2:6] + online[26:30]), np.mean(online[14:22] + online[38:46])
    assert night > day + 0.2
