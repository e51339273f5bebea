"""The fleet against itself in plain Python, one client at a time (`tests.fleet.oracle`), across midnight.

All times are multiples of a quarter of an hour, so that clients leave together, spells end when stages do, and charge
is exactly what is asked for: on such a grid an order, a sign of equality or an off-by-one day shows.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import numpy as np
import pytest

from edgefr.fleet import Fleet, FleetFile
from edgefr.fleet.devices import REFUSALS, Failure
from edgefr.fleet.histogram import QUANTITIES
from edgefr.fleet.plan import PlannedRound
from edgefr.fleet.spec import Availability, Battery
from privacy import keyed
from tests.fleet import oracle
from tests.fleet.fleets import CALM, shipped, work
from tests.fleet.oracle import DAY, Client, Job, Left

QUARTER = 900.0
BASE = shipped({**CALM, "share": {"speaker_512": 0.5, "watch_w5": 0.5}})
Generator = np.random.Generator


def job(draw: Generator) -> Job:
    """A round of a client; a stage of no time has nothing to do."""
    download, compute, upload = (QUARTER * float(draw.choice([0, 1, 1, 2, 4])) for _ in range(3))
    if draw.random() < 0.3:
        download = upload = 0.0  # what is left of a charge is then a fraction of it that floats can say
    size = [1e6 * float(draw.choice([1, 2, 8])) if stage else 0.0 for stage in (download, upload)]
    prices = draw.choice([1.0, 2.0, 8.0], size=4).tolist()
    walks = QUARTER * float(draw.integers(1, 10)) if draw.random() < 0.2 else inf
    return Job(download, compute, upload, compute / 2, *size, *prices, bool(draw.random() < 0.9), walks)


def plan_of(jobs: list[Job]) -> tuple[PlannedRound, np.ndarray]:
    """The same as columns."""
    column = {name: np.array([getattr(one, name) for one in jobs]) for name in Job._fields}
    stages = np.stack([column[name] for name in ("download", "compute", "upload")], axis=1)
    shared = ("work_s", "fits", "bytes_down", "bytes_up", "j_per_mb_down", "j_per_mb_up", "tail_j")
    named = {name: column[name] for name in shared}
    memory = np.ones(len(jobs))
    return PlannedRound(np.cumsum(stages, axis=1), memory_mb=memory, active_w=column["watts"], **named), column["walks"]


def people(draw: Generator, count: int, kind: str) -> tuple[list[Client], FleetFile]:
    """Clients whose spells and hours of charging lie on the grid, and the file of their fleet."""
    online = battery = None
    if kind != "calm":
        hours = draw.choice([0.5, 1.0, 2.0], size=24).tolist()
        online = Availability(
            mean_on_h=float(draw.choice([0.5, 1.0, 2.0])), mean_off_h=0.5, sigma_ln=0.0, by_hour=hours, work=kind
        )
        battery = Battery(
            min_soc=0.25,
            own_use_per_hour=float(draw.choice([0, 1 / 64])),
            charging_h=float(draw.choice([0, 1, 6])),
            only_charging=bool(draw.random() < 0.2),
        )
    clients = [
        Client(
            online,
            battery,
            on=bool(draw.random() < 0.8),
            until=QUARTER * float(draw.integers(1, 9)),
            full_at=QUARTER * float(draw.integers(0, 96)),
            capacity=inf if draw.random() < 0.1 else QUARTER * float(draw.choice([4, 16, 64])),
        )
        for _ in range(count)
    ]
    section = BASE.fleet.model_copy(update={"availability": online, "battery": battery})
    return clients, BASE.model_copy(update={"fleet": section})


class Known(Fleet):
    """A fleet whose draws are given: `jobs` of the present round, by client."""

    def __init__(self, spec: FleetFile, clients: list[Client]) -> None:
        super().__init__(spec, np.ones(len(clients)), seed=0)
        self.jobs: dict[int, Job] = {}
        devices = self._devices
        devices.plan = lambda number, ids, work: plan_of([self.jobs[i] for i in ids.tolist()])  # type: ignore[method-assign]
        if spec.fleet.availability is not None:
            spells = np.array([one.on for one in clients], dtype=np.int32)
            devices.availability.load_state_dict({"spell": spells, "until": np.array([one.until for one in clients])})
        devices.charge._full_at = np.array([one.full_at for one in clients])
        devices.charge._capacity = np.array([one.capacity for one in clients])

    def counted(self) -> dict[str, float]:
        """What rounds have taken so far, over all classes."""
        return dict(zip(QUANTITIES, self._devices.histogram.totals.sum(0).tolist(), strict=True))

    def levels(self) -> list[float]:
        """The charge of all clients now."""
        return self._devices.charge.level(np.arange(len(self.device_of)), self.now).tolist()


def same_outcomes(out: Any, left: list[Left]) -> None:
    """Every invitation of a round ended as it should."""
    assert [Failure(code).name for code in out.failure.tolist()] == [one.failure.name for one in left]
    assert out.seconds.tolist() == [one.seconds for one in left]
    assert out.energy_j == pytest.approx([one.used[0] for one in left], rel=1e-12)
    assert out.fetched.tolist() == [one.fetched for one in left]


def same_step(out: Any, left: list[Left]) -> None:
    """The same of a round that waits for no one; refusals stand last."""
    asked = [one for one in left if one.failure in REFUSALS]
    left = [*(one for one in left if one.failure not in REFUSALS), *asked]
    assert out.left.tolist() == [one.client for one in left]
    same_outcomes(out, left)


def add_up(totals: Counter[str], left: list[Left]) -> None:
    """Add what invitations took to the totals of a run."""
    for one in left:
        totals["seconds"] += one.seconds  # type: ignore[assignment]
        for name, value in zip(("energy_j", "bytes_down", "bytes_up"), one.used, strict=True):
            totals[name] += value  # type: ignore[assignment]


def same_state(fleet: Known, clients: list[Client], totals: Counter[str], now: float) -> None:
    """The clock, what was counted, and everyone's charge are as they should be."""
    assert fleet.now == now
    counted = fleet.counted()
    for name in ("seconds", "energy_j", "bytes_down", "bytes_up"):
        assert counted[name] == pytest.approx(totals[name], rel=1e-12), name
    assert fleet.levels() == pytest.approx([one.level(now) for one in clients], abs=1e-12)


def test_what_a_part_of_a_round_has_taken():
    """`PlannedRound.spent` at every edge of a stage, and between."""
    draw = keyed.generator(0, "jobs of the oracle")
    for _ in range(20):
        jobs = [job(draw) for _ in range(8)]
        plan, _ = plan_of(jobs)
        for quarters in np.arange(0, 14, 0.5).tolist():
            joules, down, up = plan.spent(np.full(8, quarters * QUARTER))
            pairs = zip(plan.ends.tolist(), jobs, strict=True)
            expected = [oracle.used_after(quarters * QUARTER, tuple(ends), one) for ends, one in pairs]
            assert joules.tolist() == pytest.approx([used[0] for used in expected], rel=1e-12)
            assert list(zip(down.tolist(), up.tolist(), strict=True)) == [used[1:] for used in expected]


@pytest.mark.parametrize("kind", ["fails", "pauses"])
def test_who_refuses_and_who_is_lost(kind: str):
    """`Devices.asked` through three days, while rounds take from the charge. All three refusals happen together."""
    seen: Counter[str] = Counter()
    for seed in range(6):
        draw = keyed.generator(seed, f"asked of the oracle, {kind}")
        clients, spec = people(draw, 12, kind)
        fleet, limit = Known(spec, clients), spec.rounds.deadline_s
        devices, ids = fleet._devices, np.arange(len(clients))
        limit = QUARTER * float(draw.choice([4, 12, 40]))
        devices._deadline = limit
        for now in (QUARTER * np.cumsum(draw.integers(0, 12, size=50))).tolist():
            jobs = [job(draw) for _ in clients]
            failure, lost, plan = devices.asked(ids, *plan_of(jobs), now)
            columns = (failure.tolist(), lost.tolist(), plan.ends.tolist())
            for one, client, code, stop, ends in zip(jobs, clients, *columns, strict=True):
                why, stages, stopped = client.asked(now, one, limit)
                assert Failure(code).name == why.name
                seen[why.name] += 1
                there, left = client.there(now), client.interrupted(now, one, limit)[0]
                allowed = client.allows(now, oracle.used_after(left[2], left, one)[0], left[2])
                seen["more than one reason"] += (not one.fits) + (not there) + (there and not allowed) > 1
                if why == Failure.OK:
                    assert (tuple(ends), stop) == (stages, stopped)
                    seen["paused"] += stages[2] > one.download + one.compute + one.upload
                    seen["lost"] += stopped < stages[2]
                    seen["at the edge"] += stopped in stages
            some = np.flatnonzero(failure == Failure.OK)
            joules = np.array([oracle.used_after(inf, (1, 2, 3), jobs[i])[0] for i in some.tolist()])
            devices.charge.spend(some, now, joules)
            for i, taken in zip(some.tolist(), joules.tolist(), strict=True):
                clients[i].taken.append((now, taken))
    kinds = {"OK", "MEMORY", "UNAVAILABLE", "BATTERY", "more than one reason", "lost", "at the edge"}
    assert min(seen[name] for name in kinds | ({"paused"} if kind == "pauses" else set())) > 20, seen


@pytest.mark.parametrize("policy", ["deadline", "first_k"])
@pytest.mark.parametrize("kind", ["calm", "fails", "pauses"])
def test_rounds_that_wait(kind: str, policy: str):
    """`Fleet.round`, with everything that a round draws given: who contributes, when it ends, what it took."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        draw = keyed.generator(seed, f"rounds of the oracle, {kind}, {policy}")
        clients, spec = people(draw, int(draw.integers(1, 13)), kind)
        rounds = {
            "policy": policy,
            "deadline_s": QUARTER * float(draw.choice([3, 6, 12])),
            "over_select": float(draw.choice([1.0, 1.0, 1.5, 3.0])),
            "min_fraction": float(draw.choice([0.0, 0.5, 1.0])),
        }
        spec = spec.model_copy(update={"rounds": spec.rounds.model_copy(update=rounds)})
        fleet, totals, voids = Known(spec, clients), Counter[str](), 0
        fleet.now = now = 10 * 3600.0
        for number in range(1, 31):
            fleet.jobs = {i: job(draw) for i in range(len(clients))}
            cohort = draw.permutation(len(clients))[: int(draw.integers(1, len(clients) + 1))].tolist()
            out = fleet.round(number, cohort, work())
            left, now, void = oracle.waited(clients, cohort, fleet.jobs, spec.rounds, now)
            same_outcomes(out, left)
            add_up(totals, left)
            same_state(fleet, clients, totals, now)
            voids += void
            seen.update(one.failure.name for one in left)
            times = Counter(one.seconds for one in left if one.seconds)
            seen["together"] += sum(number > 1 for number in times.values())
        assert fleet.summary()["void_rounds"] == voids
        seen["midnight"] += now > DAY
    kinds = {"OK", "VOID", "MEMORY", "DOWNLOAD", "CLIENT", "UPLOAD", "together", "midnight"}
    kinds |= {"NOT_NEEDED"} if policy == "first_k" else {"DEADLINE"}
    kinds |= {"UNAVAILABLE", "BATTERY"} if kind != "calm" else set()
    assert min(seen[name] for name in kinds) > 2, seen


@pytest.mark.parametrize("kind", ["calm", "fails", "pauses"])
def test_rounds_that_wait_for_no_one(kind: str):
    """`Fleet.step` and `Fleet.adjourn`: whose updates make which aggregate in which order, and all that it took."""
    seen: Counter[str] = Counter()
    for seed in range(14):
        draw = keyed.generator(seed, f"async rounds of the oracle, {kind}")
        clients, spec = people(draw, int(draw.integers(2, 13)), kind)
        rounds = {
            "policy": "async",
            "deadline_s": QUARTER * float(draw.choice([3, 6, 12])),
            "min_fraction": float(draw.choice([0.0, 0.5, 0.8])),
            "concurrency": int(draw.integers(1, len(clients) + 1)),
            "max_staleness": int(draw.integers(0, 4)),
        }
        spec = spec.model_copy(update={"rounds": spec.rounds.model_copy(update=rounds)})
        fleet, totals, ages = Known(spec, clients), Counter[str](), Counter[int]()
        fleet.now = now = 10 * 3600.0
        server = oracle.Server(clients, spec.rounds)
        for number in range(1, 31):
            fleet.jobs = {i: job(draw) for i in range(len(clients))}
            order = draw.permutation(len(clients)).tolist()
            assert set(fleet.busy.tolist()) == {one.client for one in (*server.at_work, *server.waiting)}
            buffer = max(int(draw.integers(1, len(clients))), len(server.waiting))  # no run wants fewer than wait
            out = fleet.step(number, order, lambda ids: work(), buffer)
            left, aggregate, now = server.step(number, order, fleet.jobs, now, buffer, spec.rounds.concurrency)
            columns = (out.clients, out.rounds, out.versions, out.staleness)
            assert list(zip(*(column.tolist() for column in columns), strict=True)) == aggregate
            ages.update(age for *_, age in aggregate)
            same_step(out, left)
            if number % 5 == 0:
                sent_away = server.adjourn(now)
                same_step(fleet.adjourn(number), sent_away)
                left = left + sent_away
            add_up(totals, left)
            same_state(fleet, clients, totals, now)
            seen.update(one.failure.name for one in left)
            times = Counter(one.seconds for one in left if one.seconds)
            seen["together"] += sum(number > 1 for number in times.values())
        seen["midnight"] += now > DAY
        assert fleet._buffered.staleness.tolist() == [ages[age] for age in range(spec.rounds.max_staleness + 1)]
    kinds = {"OK", "VOID", "MEMORY", "DOWNLOAD", "CLIENT", "UPLOAD", "together", "DEADLINE", "NOT_NEEDED", "STALE"}
    kinds |= {"midnight"}
    kinds |= {"UNAVAILABLE", "BATTERY"} if kind != "calm" else set()
    assert min(seen[name] for name in kinds) > 2, seen
