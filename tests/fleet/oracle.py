"""The fleet for one client at a time, in plain Python without arrays: what `edgefr.fleet` is held to (`test_oracle`).

Written from what the fleet's documents say. Numbers that are drawn (spells, hours of charging, work) are given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from edgefr.fleet.devices import Failure
from edgefr.fleet.spec import Availability, Battery, Rounds

HOUR = 3600.0
DAY = 24 * HOUR


class Job(NamedTuple):
    """One client's round: seconds of its three stages without a pause, what each takes, and when the client walks
    away, s from its start (inf: never)."""

    download: float
    compute: float
    upload: float
    work_s: float
    bytes_down: float
    bytes_up: float
    watts: float
    j_per_mb_down: float
    j_per_mb_up: float
    tail_j: float
    fits: bool
    walks: float


Ends = tuple[float, float, float]
Used = tuple[float, float, float]
"""Joules, bytes down and bytes up."""


def used_after(elapsed: float, ends: Ends, job: Job) -> Used:
    """What a client has used when it has been at work for so long; every stage is used up evenly."""
    shares, start = [], 0.0
    for end in ends:
        if elapsed >= end:
            shares.append(1.0)
        elif elapsed <= start:
            shares.append(0.0)
        else:
            shares.append((elapsed - start) / (end - start))
        start = end
    down, up = job.bytes_down * shares[0], job.bytes_up * shares[2]
    joules = down / 1e6 * job.j_per_mb_down + job.tail_j if down > 0 else 0.0
    joules += job.work_s * shares[1] * job.watts
    joules += up / 1e6 * job.j_per_mb_up + job.tail_j if up > 0 else 0.0
    return joules, down, up


@dataclass
class Client:
    """What is known of one client: its spells on and off the network (the first of which ends at `until`), and its
    charge: at which second of the day it is full, how much it holds, and what rounds took from it and when."""

    online: Availability | None
    battery: Battery | None
    on: bool
    until: float
    full_at: float
    capacity: float
    taken: list[tuple[float, float]] = field(default_factory=list)

    def spells(self, now: float) -> Iterator[tuple[float, bool]]:
        """When the present spell and those after it end, and whether the client is on in them."""
        rule, on, end = self.online, self.on, self.until
        if rule is None:
            yield inf, True
            return
        while True:
            if end > now:
                yield end, on
            on = not on
            hour = int(end // HOUR) % 24
            end += (rule.mean_on_h * rule.by_hour[hour] if on else rule.mean_off_h) * HOUR

    def there(self, now: float) -> bool:
        """Whether it can be reached."""
        return next(self.spells(now))[1]

    def interrupted(self, now: float, job: Job, limit: float) -> tuple[Ends, float]:
        """When its stages would end with the pauses it makes, and when it is lost, s from `now`. It can be reached."""
        spells = self.spells(now)
        edge = next(spells)[0] - now
        straight = (job.download, job.download + job.compute, job.download + job.compute + job.upload)
        if self.online is None or self.online.work == "fails":
            return straight, edge
        if edge < job.download:
            return straight, edge
        at, left = job.download, job.compute
        while left > edge - at and edge < limit:
            left -= edge - at
            at = next(spells)[0] - now
            edge = next(spells)[0] - now
        computed = at + left
        ends = (job.download, computed, computed + job.upload)
        return ends, edge if edge < ends[2] else inf

    def last_full(self, now: float) -> float:
        """The last moment at which it was full, up to now."""
        return self.full_at + DAY * math.floor((now - self.full_at) / DAY)

    def level(self, now: float) -> float:
        """Its charge, 0..1: since it was last full, its owner and rounds have taken from it."""
        if self.battery is None or self.capacity == inf:
            return 1.0
        full = self.last_full(now)
        taken = 0.0
        for when, joules in self.taken:
            if when >= full:
                taken += joules / self.capacity
        return max(1.0 - self.battery.own_use_per_hour * (now - full) / HOUR - taken, 0.0)

    def allows(self, now: float, joules: float, seconds: float) -> bool:
        """Whether its battery lets it take part."""
        if self.battery is None or self.capacity == inf:
            return True
        full = self.last_full(now)
        full = full if full == now else full + DAY
        if now >= full - self.battery.charging_h * HOUR and now + seconds <= full:
            return True
        return not self.battery.only_charging and self.level(now) - joules / self.capacity >= self.battery.min_soc

    def asked(self, now: float, job: Job, limit: float) -> tuple[Failure, Ends, float]:
        """Why it refuses (OK: it starts), when its stages would end, and when it is lost, s from `now`.

        What does not fit is not tried; who is not there is not asked; whoever is asked looks at its charge.
        """
        if not job.fits:
            return Failure.MEMORY, (0, 0, 0), inf
        if not self.there(now):
            return Failure.UNAVAILABLE, (0, 0, 0), inf
        ends, lost = self.interrupted(now, job, limit)
        if not self.allows(now, used_after(ends[2], ends, job)[0], ends[2]):
            return Failure.BATTERY, ends, lost
        return Failure.OK, ends, min(lost, job.walks)


def stage_lost(ends: Ends, stop: float) -> Failure:
    """In which stage a client is that is lost before its upload has ended."""
    for end, failure in zip(ends, (Failure.DOWNLOAD, Failure.CLIENT), strict=False):
        if stop < end:
            return failure
    return Failure.UPLOAD


@dataclass
class Left:
    """How one invitation ended: `used` joules, bytes down and bytes up after `seconds`."""

    client: int
    failure: Failure
    seconds: float = 0.0
    used: Used = (0.0, 0.0, 0.0)
    fetched: bool = False


def waited(clients: list[Client], cohort: list[int], jobs: dict[int, Job], rules: Rounds, now: float) -> tuple:
    """A round that waits (deadline or first_k): how each of the cohort left it, when it ended, and if it is void."""
    wanted = math.floor(len(cohort) / rules.over_select + 1e-9)
    at_least = math.ceil(wanted * rules.min_fraction - 1e-9)
    asked = [clients[client].asked(now, jobs[client], rules.deadline_s) for client in cohort]
    working = [place for place, answer in enumerate(asked) if answer[0] == Failure.OK]
    codes = [answer[0] for answer in asked]
    uploads, closed, full = [], 0.0, False
    still = sorted(working, key=lambda place: (min(asked[place][1][2], asked[place][2]), place))
    while still and not full:
        _, ends, lost = asked[still[0]]
        if min(ends[2], lost) > rules.deadline_s:
            break
        place, closed = still.pop(0), min(ends[2], lost)
        if lost < ends[2]:
            codes[place] = stage_lost(ends, lost)
            continue
        uploads.append(place)
        full = rules.policy == "first_k" and len(uploads) == max(wanted, 1)
    for place in still:
        codes[place] = Failure.NOT_NEEDED if full else Failure.DEADLINE
    void = len(uploads) < at_least
    if not full and (still or void or not working):
        closed = rules.deadline_s
    out = []
    for place, client in enumerate(cohort):
        if place not in working:
            out.append(Left(client, codes[place]))
            continue
        _, ends, lost = asked[place]
        seconds = min(ends[2], lost, closed)
        used = used_after(seconds, ends, jobs[client])
        clients[client].taken.append((now, used[0]))
        code = Failure.VOID if void and place in uploads else codes[place]
        out.append(Left(client, code, seconds, used, seconds >= ends[0]))
    return out, now + closed, void


@dataclass
class Working:
    """A client at work in a run whose rounds wait for no one."""

    client: int
    round: int
    version: int
    place: int
    started: float
    seconds: float
    failure: Failure
    ends: Ends
    job: Job

    @property
    def leaves(self) -> float:
        return self.started + self.seconds

    def left(self, failure: Failure | None = None, seconds: float | None = None) -> Left:
        seconds = self.seconds if seconds is None else seconds
        used = used_after(seconds, self.ends, self.job)
        return Left(self.client, self.failure if failure is None else failure, seconds, used, seconds >= self.ends[0])


@dataclass
class Server:
    """The server that waits for no one (FedBuff): who is at work, whose uploads wait, and the aggregates so far."""

    clients: list[Client]
    rules: Rounds
    at_work: list[Working] = field(default_factory=list)
    waiting: list[Working] = field(default_factory=list)
    version: int = 0
    invited: int = 0

    def step(self, number: int, order: list[int], jobs: dict[int, Job], now: float, buffer: int, hands: int) -> tuple:
        """One round: what is decided in it, whose uploads make its aggregate (with their ages), and when it ends."""
        began, decided = now, []
        busy = {one.client for one in (*self.at_work, *self.waiting)}
        to_ask = [client for client in order if client not in busy]
        while len(self.waiting) < buffer:
            while to_ask and len(self.at_work) < hands:
                decided += self.invite(to_ask[0], number, jobs[to_ask[0]], now)
                to_ask = to_ask[1:]
            if not self.at_work:
                break
            now = min(one.leaves for one in self.at_work)
            together = sorted((one for one in self.at_work if one.leaves == now), key=lambda one: one.place)
            for one in together:
                if len(self.waiting) < buffer:
                    decided += self.leave(one)
        if len(self.waiting) < max(math.ceil(buffer * self.rules.min_fraction - 1e-9), 1):
            return decided, [], max(now, began + self.rules.deadline_s)
        taken, self.waiting = self.waiting[:buffer], self.waiting[buffer:]
        ages = [self.version - one.version for one in taken]
        self.version += 1
        aggregate = [(one.client, one.round, one.version, age) for one, age in zip(taken, ages, strict=True)]
        return decided + [one.left() for one in taken], aggregate, now

    def invite(self, client: int, number: int, job: Job, now: float) -> list[Left]:
        """Ask one client, which starts or refuses."""
        limit = self.rules.deadline_s
        failure, ends, lost = self.clients[client].asked(now, job, limit)
        if failure != Failure.OK:
            return [Left(client, failure)]
        if ends[2] <= lost and ends[2] <= limit:
            seconds = ends[2]
        elif lost <= limit:
            seconds, failure = lost, stage_lost(ends, lost)
        else:
            seconds, failure = limit, Failure.DEADLINE
        self.invited += 1
        self.at_work.append(Working(client, number, self.version, self.invited, now, seconds, failure, ends, job))
        return []

    def leave(self, one: Working) -> list[Left]:
        """One client leaves: with an upload that waits, with one that is too old, or without any."""
        self.at_work.remove(one)
        self.clients[one.client].taken.append((one.started, one.left().used[0]))
        if one.failure != Failure.OK:
            return [one.left()]
        if self.version - one.version > self.rules.max_staleness:
            return [one.left(Failure.STALE)]
        self.waiting.append(one)
        return []

    def adjourn(self, now: float) -> list[Left]:
        """Everybody stops; uploads that wait are thrown away."""
        stopped = [one.left(Failure.NOT_NEEDED, now - one.started) for one in self.at_work]
        for one, left in zip(self.at_work, stopped, strict=True):
            self.clients[one.client].taken.append((one.started, left.used[0]))
        void = [one.left(Failure.VOID) for one in self.waiting]
        self.at_work, self.waiting = [], []
        return stopped + void
