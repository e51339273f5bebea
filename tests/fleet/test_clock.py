"""Rounds in virtual time: closed forms, order statistics, conservation, and every way to fail."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.fleet import Failure, Fleet
from edgefr.fleet.clock import STAGES, log, play
from privacy.errors import InputError
from tests.fleet.fleets import CALM, calm, read, shipped, work

BASE = shipped()


def test_one_client_by_hand():
    """Every term of one client's round, written out with numbers from the file."""
    spec = calm("rpi_4_4gb", devices={"rpi_4_4gb": {"compute": {"fp32_gflops": 20.0}, "networks": {"lte": 1.0}}})
    out = Fleet(spec, np.ones(1), seed=0).round(0, np.array([0]), work(optimiser="adam"))
    download = 3 * 0.021 + 8 * 0.4 / 85.7
    arithmetic = 8 * 1e5 * 3 / (0.12 * 20e9)
    traffic = (4 * 3 * min(200_000, 1e5 / 2) + 2 * 1e5) / (2 * 2.4e9)
    update = 28 * 50_000 / (2 * 2.4e9)
    overhead = 0.13e-3 * 162 / 20
    compute = 50 * (max(arithmetic, traffic) + update + overhead)
    upload = 3 * 0.021 + 8 * 0.2 / 45.7
    assert out.seconds[0] == pytest.approx(download + compute + upload, rel=1e-9)
    assert out.ended == pytest.approx(out.seconds[0])
    energy = 5.0 * compute + (0.4 * 1.1 + 0.03) + (0.2 * 2.3 + 0.03)
    assert out.energy_j[0] == pytest.approx(energy, rel=1e-9)
    assert out.contributed.tolist() == [True]
    assert [e["kind"] for e in read(out.events)] == ["started", "downloaded", "trained", "uploaded", "closed"]
    assert [e["time"] for e in read(out.events)][1:4] == pytest.approx(
        [download, download + compute, download + compute + upload]
    )


def test_a_hot_device_takes_longer_but_not_more_energy():
    cool = {"devices": {"phone_sd680": {"throttle": None}}}
    long = work(steps=20_000, flops_per_example=1e7)
    rounds = {"deadline_s": 1e5}
    hot = Fleet(calm("phone_sd680", rounds), np.ones(1), 0).round(0, np.array([0]), long)
    even = Fleet(calm("phone_sd680", rounds, **cool), np.ones(1), 0).round(0, np.array([0]), long)
    network = even.seconds[0] - (even.energy_j[0] - 0.44 - 0.46 - 0.06) / 3.0
    full_speed = even.seconds[0] - network
    assert full_speed > 100
    assert hot.seconds[0] - network == pytest.approx(60 + (full_speed - 60) / 0.6)
    assert hot.energy_j[0] == pytest.approx(even.energy_j[0])


def test_who_does_not_fit_is_refused_and_costs_nothing():
    spec = shipped({**CALM, "share": {"speaker_512": 0.5, "laptop_x86": 0.5}}, {"min_fraction": 0.0})
    fleet = Fleet(spec, np.ones(40), seed=0)
    out = fleet.round(0, np.arange(40), work(resident_parameters=8_000_000))  # 46 + 32 + 20 MB and more
    small = fleet.device_of == fleet.classes.index("speaker_512")
    assert (out.failure == np.where(small, Failure.MEMORY, Failure.OK)).all()
    assert out.energy_j[small].tolist() == out.seconds[small].tolist() == [0.0] * 20
    summary = fleet.summary()
    assert summary["failures"] == summary["classes"]["speaker_512"]["failures"] == {"memory": 20}
    assert summary["classes"]["laptop_x86"]["failures"] == {}
    assert summary["classes"]["speaker_512"]["memory_mb"]["p50"] == pytest.approx(98.3, abs=0.05)


def test_a_torch_stack_keeps_small_devices_out():
    fleet = Fleet(shipped({**CALM, "stack": "python_torch"}), np.ones(1000), seed=0)
    out = fleet.round(0, np.arange(1000), work())
    lost = {fleet.classes[i] for i in np.unique(fleet.device_of[out.failure == Failure.MEMORY])}
    assert lost == {"speaker_512", "watch_w5", "android_go_a22", "tv_stick_s905y4"}


def test_the_deadline_cuts_slow_clients_off():
    spec = shipped({**CALM, "share": {"speaker_512": 0.5, "laptop_x86": 0.5}}, {"deadline_s": 30, "min_fraction": 0.1})
    fleet = Fleet(spec, np.ones(60), seed=0)
    out = fleet.round(0, np.arange(60), work(flops_per_example=5e6, steps=400))
    late = out.failure == Failure.DEADLINE
    assert out.ended == 30.0
    assert (out.seconds[late] == 30.0).all()
    assert (out.seconds[~late] < 30.0).all()
    assert set(fleet.device_of[late]) == {fleet.classes.index("speaker_512")}
    assert late.sum() > 20
    assert (out.energy_j[late] <= 30 * 2.5 + 3).all()


def test_first_k_stops_when_enough_have_uploaded():
    spec = shipped({**CALM}, {"policy": "first_k"})
    fleet = Fleet(spec, np.ones(500), seed=0)
    out = fleet.round(0, np.arange(fleet.over_selected(100)), work())
    assert out.contributed.sum() == 100
    assert (out.failure == Failure.NOT_NEEDED).sum() == 30
    assert out.ended == out.seconds[out.contributed].max()
    everyone = Fleet(shipped({**CALM}), np.ones(500), seed=0).round(0, np.arange(130), work())
    assert np.array_equal(np.sort(everyone.seconds)[:100], np.sort(out.seconds[out.contributed]))


@given(st.integers(1, 10_000), st.floats(1.0, 3.0))
@settings(max_examples=50, deadline=None)
def test_inviting_for_k_and_closing_at_k_agree(wanted, factor):
    rounds = BASE.rounds.model_copy(update={"over_select": factor})
    fleet = Fleet(BASE.model_copy(update={"rounds": rounds}), np.ones(13), seed=0)
    invited = fleet.over_selected(wanted)
    assert wanted <= invited <= wanted * factor + 1
    assert int(invited / factor + 1e-9) == wanted


def test_kth_of_n_order_statistic():
    """The close of a first-k round with lognormal downloads, against draws made apart from the clock."""
    networks = {"wifi_home": {"bandwidth": {"rtt_ms": 0, "sigma_ln": 0.6}}}
    spec = shipped({**CALM, "share": {"laptop_x86": 1.0}}, {"policy": "first_k", "deadline_s": 1e5}, networks=networks)
    light = work(steps=0, bytes_down=100_000_000, bytes_up=0)
    closes = [Fleet(spec, np.ones(26), s).round(0, np.arange(26), light).ended for s in range(300)]
    draws = np.random.default_rng(1).normal(0, 0.6 * np.sqrt(2), (20_000, 26))  # a client's median, and its round
    kth = np.sort(800 / 85.7 * np.exp(draws), axis=1)[:, 19]
    spread = np.log(kth).std() / np.sqrt(len(closes))
    assert np.log(closes).mean() == pytest.approx(np.log(kth).mean(), abs=4 * spread)
    assert np.log(closes).std() == pytest.approx(np.log(kth).std(), rel=0.2)


def test_slow_clients_stay_slow():
    fleet = Fleet(shipped({**CALM}), np.ones(300), seed=0)
    heavy = work(flops_per_example=2e6)
    seconds = np.stack([fleet.round(r, np.arange(300), heavy).seconds for r in range(6)])
    ranks = seconds.argsort(axis=1).argsort(axis=1)
    assert np.corrcoef(ranks)[np.triu_indices(6, 1)].min() > 0.7


def test_dropout_takes_its_share_at_any_stage():
    fleet = Fleet(shipped({**CALM, "dropout": 0.3}), np.ones(5000), seed=0)
    out = fleet.round(0, np.arange(5000), work(steps=500))
    lost = np.isin(out.failure, [Failure.DOWNLOAD, Failure.CLIENT, Failure.UPLOAD])
    assert lost.mean() == pytest.approx(0.3, abs=0.03)
    assert all((out.failure == kind).any() for kind in (Failure.DOWNLOAD, Failure.CLIENT, Failure.UPLOAD))
    again = fleet.round(1, np.arange(5000), work(steps=500))
    assert not np.array_equal(again.failure, out.failure)


def test_availability_must_cover_the_whole_round():
    rule = {"mean_on_h": 0.5, "mean_off_h": 0.5, "sigma_ln": 0.5, "by_hour": [1.0] * 24}
    spec = shipped({**CALM, "availability": rule}, {"deadline_s": 86400, "min_fraction": 0.0})
    fleet = Fleet(spec, np.ones(2000), seed=0)
    online = fleet.online(np.arange(2000))
    out = fleet.round(0, np.arange(2000), work(steps=100_000))
    assert ((out.failure == Failure.UNAVAILABLE) == ~online).all()
    assert out.seconds[out.contributed].max() < 3 * 3600
    assert (out.failure == Failure.CLIENT).sum() > 100  # there at the start, gone before the end
    lost = out.failure == Failure.CLIENT
    assert np.median(out.seconds[lost]) < 0.6 * 3600


def test_clients_leave_when_their_spell_on_ends_in_later_rounds_too():
    rule = {"mean_on_h": 0.5, "mean_off_h": 0.5, "sigma_ln": 0.5, "by_hour": [1.0] * 24}
    spec = shipped({**CALM, "availability": rule}, {"deadline_s": 86400, "min_fraction": 0.0})
    fleet, everyone = Fleet(spec, np.ones(500), seed=0), np.arange(500)
    fleet.round(0, np.array([], dtype=int), work(steps=np.array([], dtype=int)))
    until = fleet._devices.availability.online_until(everyone, fleet.now)
    out = fleet.round(1, everyone, work(steps=400_000))
    lost = np.isin(out.failure, [Failure.DOWNLOAD, Failure.CLIENT, Failure.UPLOAD])
    assert lost.sum() > 50
    assert out.started == 86400
    assert out.started + out.seconds[lost] == pytest.approx(until[lost])
    assert (out.started + out.seconds[out.contributed] <= until[out.contributed]).all()


def test_work_that_pauses_takes_longer_but_is_not_lost():
    rule = {"mean_on_h": 0.5, "mean_off_h": 0.5, "sigma_ln": 0.5, "by_hour": [1.0] * 24}
    outs = {}
    for work_ in ("fails", "pauses"):
        spec = shipped({**CALM, "availability": {**rule, "work": work_}}, {"deadline_s": 86400, "min_fraction": 0.0})
        outs[work_] = Fleet(spec, np.ones(500), seed=0).round(0, np.arange(500), work(steps=100_000))
    fails, pauses = outs["fails"], outs["pauses"]
    lost = fails.failure == Failure.CLIENT
    assert lost.sum() > 20
    assert not (pauses.failure == Failure.CLIENT).any()
    goes_on = lost & pauses.contributed
    assert goes_on.sum() > 0.9 * lost.sum()
    assert (pauses.seconds[goes_on] > fails.seconds[goes_on]).all()
    straight = fails.contributed
    assert np.array_equal(pauses.seconds[straight], fails.seconds[straight])
    assert np.array_equal(pauses.energy_j[straight], fails.energy_j[straight])


def test_a_flat_battery_refuses():
    rule = {"min_soc": 0.2, "own_use_per_hour": 0.0}
    spec = shipped({**CALM, "battery": rule, "share": {"watch_w5": 1.0}}, {"deadline_s": 86400})
    fleet = Fleet(spec, np.ones(20), seed=0)
    drain = work(steps=5000, flops_per_example=5e6)
    failures = [fleet.round(r, np.arange(20), drain).failure for r in range(12)]
    assert (failures[0] == Failure.OK).all()
    refused = np.array([(f == Failure.BATTERY).sum() for f in failures])
    assert refused[-1] > 0
    assert (np.diff(refused[: int(np.argmax(refused)) + 1]) >= 0).all()
    assert fleet._devices.charge.level(np.arange(20), fleet.now).min() >= 0.2 - 1e-9


def test_who_has_fetched_everything_is_known_whatever_came_after():
    rule = {"mean_on_h": 0.5, "mean_off_h": 0.5, "sigma_ln": 0.5, "by_hour": [1.0] * 24}
    spec = shipped({**CALM, "availability": rule, "dropout": 0.3}, {"deadline_s": 86400, "min_fraction": 0.0})
    out = Fleet(spec, np.ones(2000), seed=0).round(0, np.arange(2000), work(steps=50_000))
    for kind, fetched in ((Failure.UNAVAILABLE, False), (Failure.DOWNLOAD, False), (Failure.CLIENT, True)):
        assert (out.failure == kind).any()
        assert (out.fetched[out.failure == kind] == fetched).all()
    assert out.fetched[out.contributed].all()


def test_a_round_with_too_few_uploads_is_void():
    spec = shipped({**CALM, "dropout": 1.0}, {"deadline_s": 50})
    fleet = Fleet(spec, np.ones(30), seed=0)
    out = fleet.round(0, np.arange(30), work())
    assert not out.contributed.any()
    assert out.ended == 50
    half = Fleet(shipped({**CALM, "dropout": 0.5}, {"over_select": 1.0}), np.ones(200), seed=0)
    out = half.round(0, np.arange(200), work())
    assert 60 < (out.failure == Failure.VOID).sum() < 140
    assert not out.contributed.any()
    assert half.summary()["void_rounds"] == 1


def test_nobody_there_still_takes_time():
    fleet = Fleet(shipped({**CALM}), np.ones(5), seed=0)
    out = fleet.round(0, np.array([], dtype=int), work(steps=np.array([], dtype=int)))
    assert out.ended == 600
    assert out.contributed.shape == (0,)


def test_time_energy_and_bytes_add_up():
    fleet = Fleet(shipped(), np.arange(800), seed=5)
    outs, ends = [], [0.0]
    for number in range(6):
        cohort = (np.arange(120) * 7 + number) % 800
        out = fleet.round(number, cohort, work(steps=np.arange(120)))
        assert out.started == ends[-1]
        assert (out.seconds <= out.ended - out.started + 1e-9).all()
        assert ((out.failure == Failure.OK) == out.contributed).all()
        outs.append(out)
        ends.append(out.ended)
    summary = fleet.summary()
    assert summary["virtual_hours"] == pytest.approx(ends[-1] / 3600)
    assert summary["total_energy_j"] == pytest.approx(sum(o.energy_j.sum() for o in outs))
    assert summary["total_seconds"] == pytest.approx(sum(o.seconds.sum() for o in outs))
    assert summary["invited"] == 720 == summary["contributed"] + sum(summary["failures"].values())
    for key in ("clients", "invited", "contributed", "total_bytes_up"):
        assert sum(part[key] for part in summary["classes"].values()) == pytest.approx(summary[key])
    contributed = sum(o.contributed.sum() for o in outs)
    assert summary["contributed"] == contributed
    assert summary["total_bytes_up"] >= 200_000 * contributed
    json.dumps(summary, allow_nan=False)


def test_events_are_in_order_and_can_be_written():
    fleet = Fleet(shipped(), np.ones(300), seed=0)
    events = [e for r in range(3) for e in read(fleet.round(r, np.arange(200), work()).events)]
    json.dumps(events, allow_nan=False)
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert (np.diff([e["time"] for e in events]) >= 0).all()
    assert {"time", "seq", "round", "client", "kind"} <= set(events[0])
    closed = [e for e in events if e["kind"] == "closed"]
    assert [sum(e["outcomes"].values()) for e in closed] == [200, 200, 200]
    uploaded = sum(e["kind"] == "uploaded" for e in events)
    assert uploaded == sum(e["outcomes"]["ok"] for e in closed)


def test_the_same_seed_is_the_same_fleet_and_resuming_changes_nothing():
    def run(fleet, rounds):
        return [fleet.round(r, np.arange(r, 600, 3), work()) for r in rounds]

    spec, activity = shipped(), np.arange(600)
    whole, first = Fleet(spec, activity, 9), Fleet(spec, activity, 9)
    straight = run(whole, range(6))
    run(first, range(3))
    second = Fleet(spec, activity, 9)
    second.load_state_dict(first.state_dict())
    for ours, theirs in zip(run(second, range(3, 6)), straight[3:], strict=True):
        assert np.array_equal(ours.failure, theirs.failure)
        assert np.array_equal(ours.energy_j, theirs.energy_j)
        assert ours.events == theirs.events
    assert second.summary() == whole.summary()
    assert Fleet(spec, activity, 10).round(0, np.arange(600), work()).ended != straight[0].ended
    with pytest.raises(InputError, match="another number of clients"):
        Fleet(spec, np.ones(5), 9).load_state_dict(first.state_dict())


def test_a_client_costs_the_same_in_any_cohort():
    spec = shipped({**CALM}, {"min_fraction": 0.0})
    whole = Fleet(spec, np.ones(400), 0).round(4, np.arange(400), work())
    part = Fleet(spec, np.ones(400), 0).round(4, np.array([399, 7, 20]), work())
    assert np.array_equal(part.seconds, whole.seconds[[399, 7, 20]])


@pytest.mark.parametrize("cohort", [[0, 10], [-1], [3, 3], [[0, 1]]])
def test_a_cohort_of_clients_that_do_not_exist_is_refused(cohort):
    fleet = Fleet(shipped(), np.ones(10), seed=0)
    with pytest.raises(InputError, match="a cohort lists"):
        fleet.round(0, np.array(cohort), work())


@pytest.mark.parametrize("activity", [[], [1.0, np.nan], [[1.0]]])
def test_a_fleet_of_nobody_is_refused(activity):
    with pytest.raises(InputError, match="at least one client"):
        Fleet(shipped(), np.array(activity), seed=0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_heap_agrees_with_a_plain_scan(data):
    """`play` against sorting all the ends and walking through them."""
    count = data.draw(st.integers(1, 12))
    some = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
    stages = np.array(data.draw(st.lists(st.tuples(some, some, some), min_size=count, max_size=count)))
    ends = np.cumsum(stages, axis=1)
    stops = np.array(data.draw(st.lists(st.one_of(some, st.just(np.inf)), min_size=count, max_size=count)))
    working = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    deadline, enough = data.draw(st.sampled_from([4.0, 9.0, 99.0])), data.draw(st.sampled_from([None, 1, 3]))
    played = play(ends, stops, working, deadline, enough)
    uploaded, lost, closed = [], [], 0.0
    rows = sorted((min(ends[i, 2], stops[i]), i) for i in np.flatnonzero(working))
    for when, i in rows:
        if when > deadline or len(uploaded) == enough:
            break
        closed = when
        (uploaded if ends[i, 2] <= stops[i] else lost).append(i)
    full = len(uploaded) == enough
    if not full and (len(uploaded) + len(lost) < len(rows) or not rows):
        closed = deadline
    assert np.flatnonzero(played.uploaded).tolist() == sorted(uploaded)
    assert np.flatnonzero(played.lost).tolist() == sorted(lost)
    assert (played.closed, played.full) == (closed, full)
    seconds, places, stage = log(ends, stops, played, working)
    assert seconds.tolist() == sorted(seconds.tolist())
    assert sorted(places[stage == STAGES.index("uploaded")].tolist()) == sorted(uploaded)
    assert (seconds <= closed).all()


def test_a_large_cohort_is_quick_and_leaves_few_events():
    fleet = Fleet(shipped(), np.arange(200_000) % 97, seed=0)
    began = time.perf_counter()
    out = fleet.round(0, np.arange(100_000), work())
    assert time.perf_counter() - began < 10
    assert len(read(out.events)) == 2
    assert read(out.events)[-1]["outcomes"]["ok"] == out.contributed.sum() > 70_000
