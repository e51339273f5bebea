"""Rounds with a buffer in virtual time: a schedule by hand, conservation, every way an upload comes to nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.fleet import Failure, Fleet, FleetFile, StepOutcome, Work, load_fleet
from edgefr.fleet.crowd import PLANNED_AHEAD
from edgefr.simulation.runs import checkpoint
from privacy import keyed
from privacy.errors import InputError
from tests.fleet.fleets import CALM, DEVICES, calm, read, shipped, work

ASYNC = {"policy": "async"}
EVEN = {"minipc_n100": {"compute": {"fp32_gflops": 80.0}}}  # all clients have the same rate


def only_steps(steps: dict[int, int] | Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], Work]:
    """Work that is compute alone: so many optimiser steps per client."""
    count = steps if callable(steps) else lambda ids: np.array([steps[i] for i in ids.tolist()])
    return lambda ids: work(steps=count(ids), bytes_down=0, bytes_up=0)


def unit(device: str) -> float:
    """Seconds of 1000 steps on a device class."""
    return float(
        Fleet(calm(device, devices=EVEN), np.ones(1), 0).round(0, [0], only_steps({0: 1000})(np.array([0]))).seconds[0]
    )


def by_hand(max_staleness: int) -> tuple[Fleet, Callable[[np.ndarray], Work], float]:
    """Clients 0, 1 and 2 take 1, 2 and 5.5 units; two are at work at any time; one upload makes an aggregate."""
    rounds = {**ASYNC, "buffer": 1, "concurrency": 2, "max_staleness": max_staleness}
    return (
        Fleet(calm("minipc_n100", rounds, devices=EVEN), np.ones(3), seed=0),
        only_steps({0: 1000, 1: 2000, 2: 5500}),
        unit("minipc_n100"),
    )


def test_three_clients_by_hand():
    """Client 2 starts at 1 and is at work until 6.5, while 0 and 1 make the aggregates of 2, 3, 5 and 6."""
    fleet, ask, d = by_hand(max_staleness=10)
    orders = [[0, 1, 2], [2, 0, 1], [0, 1, 2], [1, 0, 2], [0, 1, 2], [1, 0, 2]]
    outs = [fleet.step(number, order, ask, wanted=99) for number, order in enumerate(orders, 1)]
    assert [out.ended / d for out in outs] == pytest.approx([1, 2, 3, 5, 6, 6.5])
    assert [out.clients.tolist() for out in outs] == [[0], [1], [0], [1], [0], [2]]
    assert [out.staleness.tolist() for out in outs] == [[0], [1], [0], [0], [0], [4]]
    assert [out.versions.tolist() for out in outs] == [[0], [0], [2], [3], [4], [1]]
    assert [out.rounds.tolist() for out in outs] == [[1], [1], [3], [4], [5], [2]]
    assert [float(out.seconds[0]) / d for out in outs] == pytest.approx([1, 2, 1, 2, 1, 5.5])
    invited = [(e["time"] / d, e["client"]) for e in read(outs[5].events) if e["kind"] == "invited"]
    assert invited == [(pytest.approx(6), 1)]
    assert fleet.versions == {5}  # client 1 is at work since 6, from the model of five aggregates
    assert fleet.summary()["staleness"] == {"mean": 5 / 6, "p50": 0, "p90": 4, "max": 4}
    stopped = fleet.adjourn(6)
    assert (stopped.left.tolist(), stopped.failure.tolist()) == ([1], [Failure.NOT_NEEDED])
    assert stopped.seconds[0] / d == pytest.approx(0.5)
    assert stopped.energy_j[0] / stopped.seconds[0] == pytest.approx(outs[0].energy_j[0] / outs[0].seconds[0])
    assert fleet.versions == set()


def test_an_upload_that_is_too_old_is_thrown_away():
    fleet, ask, d = by_hand(max_staleness=3)
    for number, order in enumerate([[0, 1, 2], [2, 0, 1], [0, 1, 2], [1, 0, 2], [0, 1, 2]], 1):
        fleet.step(number, order, ask, wanted=1)
    out = fleet.step(6, [1, 0, 2], ask, wanted=1)
    # Client 2 is too old at 6.5, so 0 takes its place at once, and its upload at 7.5 makes the aggregate.
    assert out.ended / d == pytest.approx(7.5)
    assert (out.clients.tolist(), out.staleness.tolist()) == ([0], [0])
    assert dict(zip(out.left.tolist(), out.failure.tolist(), strict=True)) == {2: Failure.STALE, 0: Failure.OK}
    assert fleet.summary()["failures"] == {"stale": 1}
    assert fleet.summary()["staleness"]["max"] == 1


def test_the_buffer_waits_for_as_many_as_it_holds():
    fleet = Fleet(calm("minipc_n100", {**ASYNC, "buffer": 2, "concurrency": 3}, devices=EVEN), np.ones(4), seed=0)
    ask, d = only_steps({0: 1000, 1: 3000, 2: 4500, 3: 2500}), unit("minipc_n100")
    out = fleet.step(1, [0, 1, 2, 3], ask, wanted=1)  # 0 leaves at 1, 3 replaces it and leaves at 3.5; 1 leaves at 3
    assert out.ended / d == pytest.approx(3)
    assert out.clients.tolist() == [0, 1]
    out = fleet.step(2, [2, 3, 0, 1], ask, wanted=1)  # 0 replaces 1 at 3; 3 leaves at 3.5, and 0 at 4
    assert out.ended / d == pytest.approx(4)
    assert (out.clients.tolist(), out.staleness.tolist()) == ([3, 0], [1, 0])


def test_a_client_whose_upload_waits_is_not_asked_again():
    """Both have uploaded or are at work: nobody replaces client 0, and one aggregate holds each of them once."""
    fleet = Fleet(calm("minipc_n100", {**ASYNC, "over_select": 1.0}, devices=EVEN), np.ones(2), seed=0)
    ask, d = only_steps({0: 1000, 1: 7000}), unit("minipc_n100")
    for number in (1, 2, 3):
        out = fleet.step(number, [0, 1], ask, wanted=2)
        assert (sorted(out.clients.tolist()), out.staleness.tolist()) == ([0, 1], [0, 0])
        assert out.ended / d == pytest.approx(7 * number)


def test_clients_of_one_speed_are_the_rounds_of_a_server_that_waits():
    """With as many at work as the buffer holds and nobody slower, each round is its cohort, and nobody is stale."""
    fleet = Fleet(calm("minipc_n100", {**ASYNC, "over_select": 1.0}, devices=EVEN), np.ones(50), seed=0)
    waits = Fleet(calm("minipc_n100", {"over_select": 1.0}, devices=EVEN), np.ones(50), seed=0)
    for number in range(1, 6):
        key = keyed.key(3, "cohort", number)
        order = np.argsort(keyed.fold(key, np.arange(50)), kind="stable")
        cohort = keyed.choose(key, np.arange(50), 12)
        out, same = fleet.step(number, order, lambda ids: work(), 12), waits.round(number, cohort, work())
        assert sorted(out.clients.tolist()) == cohort.tolist()
        assert out.staleness.tolist() == [0] * 12
        assert out.ended == pytest.approx(same.ended)


def test_work_beyond_the_deadline_is_given_up():
    fleet = Fleet(
        calm("minipc_n100", {**ASYNC, "deadline_s": 1.5, "buffer": 1, "concurrency": 2}, devices=EVEN), np.ones(2), 0
    )
    d = unit("minipc_n100")
    ask = only_steps({0: round(1600 / d), 1: round(1400 / d)})
    first = fleet.step(1, [0, 1], ask, 1)
    assert first.clients.tolist() == [1]
    late = fleet.step(2, [0, 1], ask, 1)
    assert dict(zip(late.left.tolist(), late.failure.tolist(), strict=True)) == {0: Failure.DEADLINE, 1: Failure.OK}
    assert late.seconds[late.left == 0] == pytest.approx([1.5])


def test_nobody_there_makes_a_void_round_that_takes_its_time():
    rule = {"mean_on_h": 0.05, "mean_off_h": 1000.0, "sigma_ln": 0.0, "by_hour": [1.0] * 24}
    fleet = Fleet(shipped({**CALM, "availability": rule}, {**ASYNC, "deadline_s": 50}), np.ones(30), seed=0)
    outs = [fleet.step(number, np.arange(30), lambda ids: work(), 5) for number in (1, 2)]
    assert [out.ended for out in outs] == [50, 100]
    assert all(len(out.clients) == 0 and (out.failure == Failure.UNAVAILABLE).all() for out in outs)
    assert fleet.summary()["void_rounds"] == 2
    assert fleet.summary()["failures"] == {"unavailable": 60}
    assert fleet.summary()["staleness"] == {"mean": None, "p50": None, "p90": None, "max": None}
    assert fleet.version == 0


@pytest.mark.parametrize(("fraction", "void"), [(0.5, False), (0.6, True)])
def test_too_few_uploads_wait_for_the_next_round(fraction: float, void: bool):
    """Two of four do not fit, so a buffer of four never fills: half of it is enough, or not."""
    spec = shipped({**CALM, "share": {"speaker_512": 0.5, "laptop_x86": 0.5}}, {**ASYNC, "min_fraction": fraction})
    fleet = Fleet(spec, np.ones(4), seed=0)
    heavy = work(resident_parameters=8_000_000)
    out = fleet.step(1, np.arange(4), lambda ids: heavy, 4)
    assert len(out.clients) == (0 if void else 2)
    assert Counter(out.failure.tolist()) == Counter({Failure.MEMORY: 2} | ({} if void else {Failure.OK: 2}))
    assert out.ended == 600 if void else out.ended < 60
    again = fleet.step(2, np.arange(4), lambda ids: heavy, 4)
    assert again.ended == (1200 if void else again.ended)
    rest = fleet.adjourn(2)
    assert rest.failure.tolist() == ([Failure.VOID] * 2 if void else [])
    assert fleet.summary()["invited"] == (6 if void else 8)


ANYTHING = {"mean_on_h": 0.3, "mean_off_h": 0.2, "sigma_ln": 0.7, "by_hour": [1.0] * 24}


def life(
    seed: int, clients: int, hands: int, buffer: int, age: int, rounds: int = 8
) -> tuple[Fleet, list[StepOutcome]]:
    """A fleet in which everything goes wrong now and then, from its first round to its end."""
    spec = shipped(
        {"availability": ANYTHING, "dropout": 0.2, "share": {"speaker_512": 0.3, "phone_sd680": 0.4, "watch_w5": 0.3}},
        {**ASYNC, "buffer": buffer, "concurrency": hands, "max_staleness": age, "deadline_s": 900, "min_fraction": 0.3},
    )
    fleet = Fleet(spec, np.arange(clients) % 7, seed)
    steps = 3000 * (1 + np.arange(clients) % 40)
    ask = lambda ids: work(steps=steps[ids], flops_per_example=1e6, bytes_down=1e8, bytes_up=1e8)  # noqa: E731
    outs = []
    for number in range(1, rounds + 1):
        order = np.argsort(keyed.fold(keyed.key(seed, "order", number), np.arange(clients)))
        outs.append(fleet.step(number, order, ask, 10))
    return fleet, [*outs, fleet.adjourn(rounds)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.integers(1, 60), st.integers(1, 40), st.integers(1, 25), st.integers(0, 3))
def test_every_invitation_ends_once_and_all_adds_up(seed: int, clients: int, hands: int, buffer: int, age: int):
    fleet, outs = life(seed, clients, hands, buffer, age)
    events = [event for out in outs for event in read(out.events)]
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert (np.diff([e["time"] for e in events]) >= 0).all()
    json.dumps(events, allow_nan=False)
    kinds = Counter(e["kind"] for e in events)
    left = np.concatenate([out.left for out in outs])
    failure = np.concatenate([out.failure for out in outs])
    assert len(left) == kinds["invited"] + kinds["refused"]
    assert kinds["invited"] == kinds["uploaded"] + kinds["lost"] + kinds["late"] + kinds["dismissed"]
    at_work: set[int] = set()
    for event in events:  # who is at work is asked nothing, and never more than may be
        if event["kind"] == "invited":
            assert event["client"] not in at_work
            at_work.add(event["client"])
            assert len(at_work) <= min(hands, clients)
        elif event["kind"] in ("uploaded", "lost", "late", "dismissed"):
            at_work.remove(event["client"])
    assert not at_work
    summary = fleet.summary()
    named = Counter(Failure(code).name.lower() for code in failure.tolist())
    assert summary["contributed"] == named.pop("ok", 0) == sum(len(out.clients) for out in outs)
    assert summary["failures"] == named
    assert summary["total_energy_j"] == pytest.approx(sum(out.energy_j.sum() for out in outs))
    assert summary["total_seconds"] == pytest.approx(sum(out.seconds.sum() for out in outs))
    uploads = Counter((e["round"], e["client"]) for e in events if e["kind"] == "uploaded")
    assert max(uploads.values(), default=0) <= 1  # what the accountant counts on: a client, a round, one release
    for out in outs[:-1]:
        assert len(out.clients) in (0, *range(max(1, int(np.ceil(min(buffer, clients) * 0.3 - 1e-9))), buffer + 1))
        assert out.staleness.max(initial=0) <= age
        assert len(set(out.clients.tolist())) == len(out.clients)


def test_all_kinds_of_failure_happen_in_that_life():
    lives = [life(seed, *how) for seed in range(4) for how in ((60, 30, 4, 0, 12), (12, 12, 12, 3, 12))]
    failures = [out.failure for _, outs in lives for out in outs]
    kinds = {Failure(code).name for code in np.unique(np.concatenate(failures))}
    lost = {"DOWNLOAD", "CLIENT", "UPLOAD", "DEADLINE", "STALE", "NOT_NEEDED"}
    assert kinds >= {"OK", "UNAVAILABLE", *lost}


def test_it_repeats_to_the_bit_and_goes_on_from_any_round(tmp_path: Path):
    def ask(ids: np.ndarray) -> Work:
        return work(steps=2000 + 100 * ids, flops_per_example=1e6)

    def go(fleet: Fleet, numbers: range) -> list[Any]:
        outs = []
        for number in numbers:
            order = np.argsort(keyed.fold(keyed.key(1, "order", number), np.arange(80)))
            out = fleet.step(number, order, ask, 8)
            outs.append((out.events, out.clients.tolist(), out.versions.tolist(), out.energy_j.tolist()))
        return [*outs, fleet.adjourn(9).events]

    spec = shipped({"availability": ANYTHING, "dropout": 0.2}, {**ASYNC, "concurrency": 20})
    straight = go(Fleet(spec, np.arange(80), 5), range(1, 10))
    assert straight == go(Fleet(spec, np.arange(80), 5), range(1, 10))
    assert straight[0] != go(Fleet(spec, np.arange(80), 6), range(1, 2))[0]
    first = Fleet(spec, np.arange(80), 5)
    for done in range(1, 9):
        order = np.argsort(keyed.fold(keyed.key(1, "order", done), np.arange(80)))
        first.step(done, order, ask, 8)
        checkpoint.write(tmp_path, done, first.state_dict(), "mine")
        found = checkpoint.newest(tmp_path, "mine", pytest.fail)
        assert found is not None
        second = Fleet(spec, np.arange(80), 5)
        second.load_state_dict(found.state)
        assert go(second, range(done + 1, 10)) == straight[done:]


def test_planning_ahead_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    usual = [out.events for out in life(3, 50, 20, 5, 3)[1]]
    assert PLANNED_AHEAD > 1
    monkeypatch.setattr("edgefr.fleet.crowd.PLANNED_AHEAD", 1)
    assert [out.events for out in life(3, 50, 20, 5, 3)[1]] == usual


def test_a_battery_is_charged_for_what_was_done_and_no_more():
    rule = {"min_soc": 0.2, "own_use_per_hour": 0.0}
    spec = shipped({**CALM, "battery": rule, "share": {"watch_w5": 1.0}}, {**ASYNC, "deadline_s": 86400, "buffer": 3})
    fleet = Fleet(spec, np.ones(6), seed=0)
    spent = np.zeros(6)
    for number in range(1, 4):
        out = fleet.step(number, np.arange(6), lambda ids: work(steps=100 * (1 + ids), flops_per_example=5e6), 3)
        np.add.at(spent, out.left, out.energy_j)
    out = fleet.adjourn(3)
    np.add.at(spent, out.left, out.energy_j)
    capacity = spec.devices["watch_w5"].power.battery_wh.v * 3600
    assert spent.min() > 0
    assert fleet.now < 60 * 60  # nobody was charged in between
    assert fleet._devices.charge.level(np.arange(6), fleet.now) == pytest.approx(1 - spent / capacity)


def test_fast_devices_take_part_more_often_when_nobody_waits_for_the_slow():
    """What a deadline does too: heterogeneity takes from the slow (Yang et al. 2021, FLASH). Equal speeds do not."""
    heavy = work(steps=500, flops_per_example=4e6, bytes_down=1000, bytes_up=1000)

    def shares(device: str, rounds: dict[str, Any], **rest: Any) -> dict[str, float]:
        mix = {"share": {"speaker_512": 0.5, device: 0.5}, "networks": {"wifi_home": 1.0}}
        spec = shipped({**CALM, **mix}, rounds, **rest)
        fleet = Fleet(spec, np.ones(200), seed=2)
        for number in range(1, 31):
            order = np.argsort(keyed.fold(keyed.key(0, "order", number), np.arange(200)))
            if rounds["policy"] == "async":
                fleet.step(number, order, lambda ids: heavy, 20)
            else:
                fleet.round(number, order[:30], heavy)
        found = fleet.summary()["classes"]
        return {name: row["contributed"] / row["clients"] for name, row in found.items()}

    hurry = {"policy": "deadline", "deadline_s": 4.0, "min_fraction": 0.0, "over_select": 1.5}
    for rounds in ({**ASYNC, "concurrency": 100}, hurry):
        mixed = shares("laptop_x86", rounds)
        assert mixed["laptop_x86"] > 1.5 * mixed["speaker_512"]
    twins = {"compute": {"fp32_gflops": 6.0}, "memory": {"copy_gbs": 0.8}, "throttle": None}
    alike = shares("watch_w5", {**ASYNC, "concurrency": 100}, devices={"watch_w5": twins, "speaker_512": twins})
    assert alike["watch_w5"] == pytest.approx(alike["speaker_512"], rel=0.25)


def test_a_large_buffer_is_quick_and_leaves_few_events():
    fleet = Fleet(shipped(), np.arange(20_000) % 97, seed=0)
    out = fleet.step(1, np.arange(20_000), lambda ids: work(), 3000)
    assert len(out.clients) == 3000
    assert [e["kind"] for e in read(out.events)] == ["started", "closed"]


@pytest.mark.parametrize("name", ["buffer", "concurrency"])
def test_what_only_async_knows_is_refused_elsewhere(name: str):
    with pytest.raises(InputError, match=f"rounds.{name}: belongs to policy async, and policy is deadline: drop it"):
        shipped({}, {name: 5})
    assert getattr(shipped({}, {name: 5, **ASYNC}).rounds, name) == 5


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        ({"buffer": 0}, "greater than 0"),
        ({"buffer": 1.5}, "integer"),
        ({"concurrency": -1}, "greater than 0"),
        ({"staleness_power": -0.5}, "greater than or equal to 0"),
        ({"staleness_power": float("nan")}, "finite"),
        ({"max_staleness": -1}, "greater than or equal to 0"),
        ({"max_staleness": 10**9}, "less than or equal to 1000"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(rounds: dict[str, Any], says: str):
    with pytest.raises(InputError, match=says) as caught:
        shipped({}, {**ASYNC, **rounds})
    assert "\n" not in str(caught.value)


def test_a_file_with_resolved_settings_is_read_back(tmp_path: Path):
    """The run folder keeps the fleet with all defaults written out."""
    for rounds in ({}, {**ASYNC, "buffer": 7}):
        spec = load_fleet(DEVICES, {"rounds": rounds})
        (tmp_path / "devices.yaml").write_text(json.dumps(spec.model_dump(mode="json", by_alias=True)))
        assert load_fleet(tmp_path / "devices.yaml") == spec
        assert isinstance(spec, FleetFile)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2]])
def test_a_client_is_not_asked_in_a_round_in_which_it_was_at_work(order: list[int]) -> None:
    """Client 1 is at work from 0 to 2.5: it is asked neither before that in round 2 nor when it leaves in it."""
    fleet = Fleet(calm("minipc_n100", {**ASYNC, "buffer": 2, "concurrency": 2}, devices=EVEN), np.ones(3), seed=0)
    ask, d = only_steps({0: 1000, 1: 2500, 2: 1000}), unit("minipc_n100")
    first = fleet.step(1, [0, 1, 2], ask, wanted=1)
    assert (first.clients.tolist(), first.ended / d) == ([0, 2], pytest.approx(2))
    second = fleet.step(2, order, ask, wanted=1)
    assert [event["client"] for event in read(second.events) if event["kind"] == "invited"] == [0, 2]
    assert (second.clients.tolist(), second.ended / d) == ([1, 0], pytest.approx(3))
