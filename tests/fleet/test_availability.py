"""Availability and charge over virtual days."""

import numpy as np
import pytest

from edgefr.fleet.availability import AvailabilityProcess, Charge
from edgefr.fleet.spec import Availability, Battery

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


def test_looking_often_or_rarely_makes_no_difference():
    often, rarely = (AvailabilityProcess(FLAT, 500, seed=4) for _ in range(2))
    some = np.arange(0, 500, 3)
    for hour in np.arange(0, 40, 0.5):
        often.online_until(some, hour * HOUR)
    now = 40 * HOUR
    assert np.array_equal(often.online_until(some, now), rarely.online_until(some, now))


def test_a_spell_holds_until_its_end():
    availability = AvailabilityProcess(FLAT, 200, seed=1)
    until = availability.online_until(np.arange(200), 0.0)
    client = int(np.argmax(until > 0))
    same = availability.online_until(np.array([client]), until[client] - 1.0)
    assert same[0] == until[client]
    after = availability.online_until(np.array([client]), until[client])
    assert after[0] == until[client]  # off, so "online until now"


def test_without_a_rule_everybody_is_always_there():
    availability = AvailabilityProcess(None, 3, seed=0)
    assert np.isinf(availability.online_until(np.arange(3), 1e9)).all()
    assert availability.state_dict() == {}


def charge(capacity=1000.0, use=0.0, clients=3):
    return Charge(Battery(min_soc=0.2, own_use_per_hour=use), np.full(clients, capacity), seed=0)


def test_charge_drops_by_what_is_spent_and_refuses_below_the_least():
    battery, one = charge(), np.array([1])
    assert battery.level(one, 0.0) == pytest.approx([1.0])
    battery.spend(one, 0.0, np.array([500.0]))
    battery.spend(one, 1.0, np.array([200.0]))
    assert battery.level(one, 2.0) == pytest.approx([0.3])
    assert battery.level(np.array([0]), 2.0) == pytest.approx([1.0])
    assert battery.allows(one, 2.0, np.array([99.0]), np.ones(1)).all()
    assert not battery.allows(one, 2.0, np.array([101.0]), np.ones(1)).any()


def test_charge_is_full_once_a_day_and_its_owner_drains_it():
    battery, clients = charge(use=0.03, clients=200), np.arange(200)
    levels = np.stack([battery.level(clients, m * 600.0) for m in range(24 * 6)])
    assert levels.max(axis=0) == pytest.approx(np.ones(200), abs=0.006)
    assert levels.min(axis=0) == pytest.approx(np.full(200, 1 - 24 * 0.03), abs=0.006)
    battery.spend(clients, 0.0, np.full(200, 100.0))
    assert battery.level(clients, 24.5 * HOUR) == pytest.approx(battery.level(clients, 48.5 * HOUR))


def test_mains_power_never_runs_out():
    battery = charge(capacity=np.inf)
    battery.spend(np.arange(3), 0.0, np.full(3, 1e12))
    assert battery.level(np.arange(3), 1.0).tolist() == [1.0, 1.0, 1.0]
    assert battery.allows(np.arange(3), 1.0, np.full(3, 1e12), np.ones(3)).all()


def test_on_its_charger_a_device_works_whatever_its_charge():
    """Charged for two hours up to the hour at which it is full; the whole of the work has to lie within."""
    for only in (False, True):
        rule = Battery(min_soc=0.2, own_use_per_hour=0.04, charging_h=2.0, only_charging=only)
        battery, one = Charge(rule, np.full(1, 1000.0), seed=3), np.array([0])
        full = float(battery._full_at[0])
        hungry, at_night = np.array([900.0]), DAY + full - 1.5 * HOUR
        assert battery.allows(one, at_night, hungry, np.array([1.4 * HOUR])).all()
        assert not battery.allows(one, at_night, hungry, np.array([1.6 * HOUR])).any()
        assert not battery.allows(one, DAY + full - 2.1 * HOUR, hungry, np.array([HOUR])).any()
        small = battery.allows(one, DAY + full + HOUR, np.array([1.0]), np.array([1.0]))
        assert small.all() == (not only)
    mains = Charge(rule, np.full(1, np.inf), seed=3)
    assert mains.allows(one, DAY + full + HOUR, hungry, np.array([HOUR])).all()


def spells(availability: AvailabilityProcess, client: int, now: float, number: int) -> list[tuple[float, float]]:
    """The next spells on of a client that is on, as (start, end), looked up one after the other."""
    out, one = [], np.array([client])
    end = float(availability.online_until(one, now)[0])
    start = now
    while len(out) < number:
        out.append((start, end))
        availability.online_until(one, end)  # steps into the spell off
        start = float(availability._until[client])
        end = float(availability.online_until(one, start)[0])
    return out


@pytest.mark.parametrize("seed", range(2))
def test_work_that_pauses_goes_on_in_the_next_spells(seed):
    """Against a walk along each client's spells, one by one."""
    rule = FLAT.model_copy(update={"work": "pauses"})
    people, now = np.arange(120), 5 * HOUR
    availability = AvailabilityProcess(rule, 120, seed)
    online = availability.online_until(people, now) > now
    need = np.random.default_rng(seed).uniform([0.0, 0.0, 0.0], [HOUR, 8 * HOUR, HOUR], (120, 3))
    pauses, lost = availability.interruptions(people, now, np.cumsum(need, axis=1), limit=1e9)
    seen = {"download": 0, "upload": 0, "paused": 0, "straight": 0}
    for client in people[online].tolist():
        on = spells(AvailabilityProcess(rule, 120, seed), client, now, 25)
        download, compute, upload = need[client]
        if now + download > on[0][1]:
            assert now + lost[client] == pytest.approx(on[0][1])
            seen["download"] += 1
            continue
        left, paused, at = compute, 0.0, now + download
        for number, (_, end) in enumerate(on):
            if left <= end - at:
                break
            left -= end - at
            at = on[number + 1][0]
            paused += at - end
        at += left
        assert pauses[client] == pytest.approx(paused)
        if at + upload > end:
            assert now + lost[client] == pytest.approx(end)
            seen["upload"] += 1
        else:
            assert lost[client] == np.inf
            seen["paused" if paused else "straight"] += 1
    assert min(seen.values()) > 1


def test_work_that_fails_does_not_pause():
    pauses, lost = AvailabilityProcess(FLAT, 50, 0).interruptions(np.arange(50), 0.0, np.full((50, 3), 1e6), limit=1e9)
    assert pauses.tolist() == [0.0] * 50
    assert np.array_equal(lost, AvailabilityProcess(FLAT, 50, 0).online_until(np.arange(50), 0.0))
    free = AvailabilityProcess(None, 2, 0).interruptions(np.arange(2), 0.0, np.full((2, 3), 1e6), limit=1e9)
    assert (free[0].tolist(), free[1].tolist()) == ([0.0, 0.0], [np.inf, np.inf])
