"""Checks come before attacks: an update that is known goes through the run's own code, and what comes out is measured.

A right mechanism fails any of them with probability `FALSE_ALARM` at most, per audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefr.studies.audits.canaries import (
    Canary,
    CanaryRounds,
    Channel,
    Floats,
    MeasuredChance,
    SumChannel,
    flat,
    planted,
)
from edgefr.studies.audits.channels import MessageChannel, StepChannel, UploadChannel
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.ledger import Ledger
from privacy.noise_key import NoiseKey
from privacy.noise_tests import Law, least_chance, likeness_chance, shape_chance, size_chance
from privacy.table import Table

FALSE_ALARM = 1e-6
"""Chance that an audit accuses a right mechanism of anything, over all its checks."""
COHORT = 4
OLD = 2.0**-0.5
"""What an update counts for that is a round old, by default."""
HUGE = 5e5
"""Joint norm of an update far beyond any clip, which is not yet one that has diverged."""
DELTA = 1e-5


@dataclass(frozen=True)
class Outcome:
    """This is what one check says of one channel: the worst that it saw, and whether that can be.

    `chance`: of anything so bad under a right mechanism, of all measurements of the check together.
    """

    check: str
    way: str
    asks: str
    ok: bool
    worst: str
    figure: float
    unit: str
    chance: float
    measured: int

    def row(self) -> dict[str, Any]:
        """Return this for JSON."""
        figure = self.figure if math.isfinite(self.figure) else str(self.figure)
        return {**vars(self), "figure": figure}


@dataclass(frozen=True)
class Check:
    """A check has a name, what it `asks` of which channels (`of`), the `unit` of its figures, and how it `looks`.

    `needs_noise`: it is asked where noise is promised. It may see nothing, and then says nothing.
    """

    name: str
    asks: str
    of: tuple[type[Channel], ...]
    unit: str
    needs_noise: bool
    look: Callable[[CanaryRounds], list[MeasuredChance]]


CHECKS: Table[Check] = Table("check", Check)
STD, ALIKE = "of the promised standard deviation", "correlation"
Look = Callable[[CanaryRounds], list[MeasuredChance]]


def asked(asks: str, of: tuple[type[Channel], ...], unit: str, needs_noise: bool = True) -> Callable[[Look], Look]:
    """Return what makes a function a check of its own name."""

    def kept(look: Look) -> Look:
        CHECKS.register(Check(look.__name__.strip("_"), asks, of, unit, needs_noise, look))
        return look

    return kept


@asked("is the noise as large as the accounting assumes?", (SumChannel,), "of the claimed")
def claim(played: CanaryRounds) -> list[MeasuredChance]:
    """Compare scales: a client moves what leaves by one clip (its update or zeros), or by two (anybody else's)."""
    assert isinstance(played.channel, SumChannel)
    plan = played.channel.plan
    if plan.clip is None or not plan.event.row.guarantees:
        return []
    reach = {"zero-out": 1.0, "replace-one": 2.0}[plan.adjacency]
    share = played.law.scale / (plan.event.multiplier * reach * plan.clip)
    return [MeasuredChance("scale of the noise", share, 0.0 if share < 1.0 - 1e-6 else 1.0)]


@asked("is every value of every tensor noised as promised?", (Channel,), STD)
def noise(played: CanaryRounds) -> list[MeasuredChance]:
    """Measure the size of the noise of every part, and of every single value over rounds."""
    return [one for name, values in played.parts() for one in _sizes(name, values, played.law)]


def _sizes(what: str, values: Floats, law: Law) -> list[MeasuredChance]:
    """Measure noise [rounds, values] as a whole, and the value that has least of it over rounds."""
    least = float(np.sqrt(np.square(values).mean(axis=0)).min() / law.std)
    whole = MeasuredChance(what, *size_chance(values, law))
    return [whole, MeasuredChance(f"{what}, some value", least, least_chance(values, law))]


def _alike(what: str, one: Floats, other: Floats) -> MeasuredChance:
    return MeasuredChance(what, *likeness_chance(one.ravel(), other.ravel()))


@asked("does the noise have its named distribution?", (Channel,), "distance")
def law(played: CanaryRounds) -> list[MeasuredChance]:
    """Measure how far what was drawn is from the law's distribution."""
    return [MeasuredChance(name, *shape_chance(values.ravel(), played.law)) for name, values in played.parts()]


@asked("is the noise derived from a secret key only?", (SumChannel, StepChannel, MessageChannel), ALIKE)
def secret(played: CanaryRounds) -> list[MeasuredChance]:
    """Compare the noise of two keys, where all that is public is the same."""
    channel = played.channel
    drawn = []
    for key in (channel.key, NoiseKey(b"another one, too")):
        other = copy(channel)
        other.key = key
        drawn.append(flat(other.noise(Canary(), 1)))
    return [_alike("two keys", *drawn)]


@asked("does every round have independent noise?", (Channel,), ALIKE)
def rounds(played: CanaryRounds) -> list[MeasuredChance]:
    """Compare all pairs of rounds."""
    drawn = np.concatenate(list(played.noise.values()), axis=1)
    return [_alike(f"rounds {a + 1} and {b + 1}", drawn[a], drawn[b]) for b in range(len(drawn)) for a in range(b)]


@asked("does every client have independent noise?", (Channel,), f"{STD}, or {ALIKE}")
def clients(played: CanaryRounds) -> list[MeasuredChance]:
    """Measure a cohort's noise in its sum; of single uploads, how alike those of two clients are."""
    channel, nothing = played.channel, Canary()
    if isinstance(channel, SumChannel):
        promised = channel.law_of(COHORT)
        assert promised is not None
        found = [channel.seen([nothing] * COHORT, number) for number in played.rounds]
        drawn = {name: np.stack([one[name].ravel() for one in found]) for name in found[0]}
        return [MeasuredChance(f"sum of {COHORT}, {n}", *size_chance(all_, promised)) for n, all_ in drawn.items()]
    each = [flat(channel.seen([nothing], 1, who=who)) for who in range(COHORT)]
    return [_alike(f"clients {a} and {b}", each[a], each[b]) for b in range(COHORT) for a in range(b)]


@asked("do tensors, rows and values have independent noise?", (Channel,), ALIKE)
def tensors(played: CanaryRounds) -> list[MeasuredChance]:
    """Compare pairs of tensors, and of each its rows and its neighbouring values."""
    drawn, names = played.noise, list(played.noise)
    out = []
    for b, second in enumerate(names):
        for first in names[:b]:
            size = min(drawn[first].shape[1], drawn[second].shape[1])
            out.append(_alike(f"{first} and {second}", drawn[first][:, :size], drawn[second][:, :size]))
    for name, values in drawn.items():
        spec = played.channel.specs.get(name)
        for apart in {1, spec.shape[-1] if spec is not None else 1}:
            if apart < values.shape[1]:
                out.append(_alike(f"{name}, {apart} value(s) apart", values[:, :-apart], values[:, apart:]))
    return out


@asked("do DP-SGD steps have independent noise?", (StepChannel,), ALIKE)
def steps(played: CanaryRounds) -> list[MeasuredChance]:
    """Compare the noise of a first step with what a second one adds to it."""
    channel = played.channel
    assert isinstance(channel, StepChannel)
    short = [StepChannel(channel.plan, channel.specs, channel.seed, records) for records in (1, 2)]
    one, two = (np.concatenate([flat(each.seen([Canary()], n)) for n in played.rounds]) for each in short)
    return [_alike("first and second step", one, two - one)]


@asked("are released values on the grid, also for old updates?", (SumChannel,), "off it")
def whole(played: CanaryRounds) -> list[MeasuredChance]:
    """Count values off the grid: noise of whole steps hides whole steps alone, and says everything of what is between.

    An old update weighs less. What a device has noised itself it may be weighed by afterwards.
    """
    channel = played.channel
    assert isinstance(channel, SumChannel)
    noise = channel.plan.noise
    if noise is None or noise.step is None:
        return []
    out = []
    for what, weight in (("a new update", 1.0), ("an old update", OLD)):
        if weight == 1.0 or channel.plan.where != "each upload":
            left = flat(next(channel.over([played.small], [1], weight=weight))) / noise.step
            off = float(np.mean(left != np.rint(left)))
            out.append(MeasuredChance(what, off, float(off == 0.0)))
    return out


@asked("is the whole release clipped jointly?", (Channel,), "of the clip", False)
def clip(played: CanaryRounds) -> list[MeasuredChance]:
    """Measure the norm of what leaves without noise; with noise, how far it goes along what was sent."""
    channel = played.channel
    if channel.clip is None:
        return []
    out = []
    for what, dense, rows in (("dense alone", True, False), ("tables alone", False, True), ("both", True, True)):
        huge = planted(channel, played.seed, HUGE, dense, rows)
        if not (huge.dense or huge.rows) or (what == "both" and not (huge.dense and huge.rows)):
            continue
        tight = channel.tight()
        assert tight.clip is not None
        left = flat(tight.seen([huge], 1, noise=False))
        norm = float(np.abs(left).sum() if channel.norm == "l1" else np.linalg.norm(left))
        out.append(MeasuredChance(what, norm / tight.clip, 0.0 if norm > tight.clip * (1.0 + 1e-5) else 1.0))
        if channel.law is not None:
            out.append(_beyond(what, played, huge, channel.clip, channel.law))
    return out


def _beyond(what: str, played: CanaryRounds, huge: Canary, bound: float, law: Law) -> MeasuredChance:
    """Measure how far updates with noise go along what was sent, on average over rounds; the chance is a bound."""
    far = []
    for number in played.rounds:
        along = flat(played.channel.meant([huge], number))
        far.append(float(flat(played.channel.seen([huge], number)) @ along) / float(np.linalg.norm(along)))
    excess = max(0.0, float(np.mean(far)) - bound) * math.sqrt(len(far)) / law.std
    return MeasuredChance(f"{what}, with noise", float(np.mean(far)) / bound, math.exp(-(excess**2) / 4.0))


@asked("is a diverged update released as noise only?", (Channel,), STD, False)
def diverged(played: CanaryRounds) -> list[MeasuredChance]:
    """Measure what leaves: as much as noise where there is noise, and nothing where there is none."""
    channel, out = played.channel, []
    for what, value in (("nan", math.nan), ("inf", math.inf), ("1e30", 1e30)):
        broken = Canary(
            {name: np.full_like(values, value) for name, values in played.small.dense.items()},
            {name: (items, np.full_like(values, value)) for name, (items, values) in played.small.rows.items()},
        )
        if value == 1e30 and isinstance(channel, StepChannel):
            continue  # a finite gradient is clipped
        left = np.stack([flat(channel.seen([broken], number)) for number in played.rounds])
        if not np.isfinite(left).all():
            out.append(MeasuredChance(what, math.inf, 0.0))
        elif channel.law is not None:
            out += _sizes(what, left, channel.law)
        else:
            out.append(MeasuredChance(what, float(np.abs(left).max(initial=0.0)), 0.0 if left.any() else 1.0))
    return out


@asked("do uploads have the same length and header for all data?", (UploadChannel,), "kinds", False)
def bytes_(played: CanaryRounds) -> list[MeasuredChance]:
    """Compare uploads of clients with little and with much to learn from, clipped, and diverged."""
    channel = played.channel
    assert isinstance(channel, UploadChannel)
    if not channel.promised:
        return []
    some = [
        (Canary(), 1),
        (played.small, 7),
        (planted(channel, played.seed + 1, HUGE), 60),
        (planted(channel, played.seed, HUGE, rows=False).times(math.nan), 1000),
    ]
    contents = [channel.content(known, 1, steps=count) for known, count in some]
    heads = {content[: 8 + int.from_bytes(content[:8], "little")] for content in contents}
    lengths = {len(content) for content in contents}
    return [
        MeasuredChance("lengths", len(lengths), float(len(lengths) == 1)),
        MeasuredChance("headers", len(heads), float(len(heads) == 1)),
    ]


@asked("is every further release of a client charged?", (SumChannel,), "off, or of the least")
def counted(played: CanaryRounds) -> list[MeasuredChance]:
    """Keep a ledger in which clients release three times, once and never."""
    assert isinstance(played.channel, SumChannel)
    plan = played.channel.plan
    if not plan.event.row.guarantees:
        return []
    ledger = Ledger(3, delta=DELTA, adjacency=plan.adjacency)
    for some in ([0, 1], [0], [0]):
        ledger.try_spend(some, plan.event)
    wrong = np.abs(ledger.releases() - np.array([3, 1, 0])).max()
    once, thrice = (composed([(plan.event, n)], DELTA).epsilon for n in (1, 3))
    least = min(float(ledger.epsilon([0])[0]), thrice)
    share = least / max(_three(plan.event.multiplier, plan.event.mechanism, once), 1e-300)
    return [
        MeasuredChance("releases not counted", float(wrong), float(wrong == 0)),
        MeasuredChance("epsilon of three", share, float(share > 0.99)),
    ]


def _three(multiplier: float, mechanism: str, once: float) -> float:
    """Return what three releases cost at least: of a Gaussian exactly (Balle & Wang 2018), else more than one."""
    if "gaussian" not in mechanism:
        return once * 1.01
    from scipy.optimize import brentq
    from scipy.stats import norm

    mu = math.sqrt(3.0) / multiplier

    def excess(epsilon: float) -> float:
        low = norm.logcdf(-epsilon / mu - mu / 2.0) + epsilon
        return float(norm.cdf(-epsilon / mu + mu / 2.0) - math.exp(min(low, 700.0)) - DELTA)

    return float(brentq(excess, 0.0, mu * mu + 40.0 * mu)) if excess(0.0) > 0 else 0.0


def check(channels: Sequence[Channel], seed: int = 0) -> list[Outcome]:
    """Ask every check of every channel that it is about."""
    every = [
        (of, played)
        for played in (CanaryRounds(channel, seed) for channel in channels)
        for of in CHECKS.values()
        if isinstance(played.channel, of.of) and (played.channel.law is not None or not of.needs_noise)
    ]
    out = list[Outcome]()
    for of, played in every:
        try:
            seen = of.look(played)
        except (InputError, ValueError) as error:  # what was sent is not what may be sent
            seen = [MeasuredChance(str(error), math.inf, 0.0)]
        if seen:
            worst, way = min(seen, key=lambda one: one.chance), played.channel.name
            chance = min(1.0, worst.chance * len(seen))
            ok = chance >= FALSE_ALARM / len(every)
            out.append(Outcome(of.name, way, of.asks, ok, worst.what, worst.figure, of.unit, chance, len(seen)))
    return out
