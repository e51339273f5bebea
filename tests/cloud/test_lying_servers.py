"""No server opens a sum of few, whatever it tells whom: a search over servers that give each device what they like.

A server is what it gives each device: whose shares, which lists, whose signatures. What it then knows is worked out of
what devices reveal: a mask in a pair by either key, an own mask by its shares, and the sums of vectors in which every
other mask cancels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from cloud.secure_sum import SecureSum, Trust, neighbourhood
from edge.secure_sum import Participant, SumRefused
from privacy.agreement import quorum, statement
from privacy.masks import agreed, stream
from privacy.neighbours import part_of
from privacy.secret_sharing import joined
from tests.mostly_slow import mostly_slow

SESSION = b"a sum"
Told = tuple[frozenset[int], frozenset[int]]
Lie = tuple[dict[int, set[int]], dict[int, Told]]
"""Whose shares each device is given, and which lists it is told."""


@dataclass
class Lying:
    """A server of devices of which the first few help it: what it gives whom is chosen by the test."""

    size: int
    helping: int
    near: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices = {n: Participant(SESSION, n) for n in range(1, self.size + 1)}
        server = SecureSum(SESSION, 1, 1)
        keys = {n: device.keys for n, device in self.devices.items()}
        self.near = {n: set(some) for n, some in server.pair(keys).items()}
        self.threshold = server.threshold
        self.sealed = {
            n: device.share({o: keys[o] for o in self.near[n]}, server.roster, self.threshold)
            for n, device in self.devices.items()
        }
        self.helpers = set(range(1, self.helping + 1))
        self.honest = set(self.devices) - self.helpers
        self.inboxes: dict[int, set[int]] = {}
        self.own: Counter[int] = Counter()
        self.pairs: Counter[int] = Counter()

    def give(self, inboxes: dict[int, set[int]]) -> None:
        """Hand each device the shares of these neighbours, and take its vector."""
        for number in self.honest:
            inbox = {other: self.sealed[other][number] for other in inboxes[number]}
            self.devices[number].masked(np.zeros(1, np.int32), inbox)
            self.inboxes[number] = set(inbox)

    def tell(self, said: dict[int, Told]) -> None:
        """Tell each device its lists, hand out all signatures, and keep what is revealed; helpers sign anything."""
        signatures = {}
        for number, told in said.items():
            try:
                signatures[number] = self.devices[number].agree(*told)
            except SumRefused:
                continue
        for number in signatures:
            device = self.devices[number]
            signed = dict(signatures)
            for helper in self.helpers:
                signed[helper] = self.devices[helper]._signing.sign(statement(device._named, *said[number]))
            try:
                shown = device.reveal(signed)
            except SumRefused:
                continue
            self.own.update(shown.own.keys())
            self.pairs.update(shown.pairs.keys())

    def opened(self) -> list[set[int]]:
        """The smallest sets of honest devices whose sum the server knows."""
        own, pairs = (
            {n for n in self.honest if found[n] + len(self.helpers & self.near[n]) >= self.threshold}
            for found in (self.own, self.pairs)
        )
        assert not own & pairs, "both secrets of one"
        masks = {
            n: {o for o in self.inboxes[n] & self.honest if n not in pairs and o not in pairs} for n in self.honest
        }
        found: list[set[int]] = []
        for start in own - {n for n in own if not masks[n] <= own}:
            if any(start in known for known in found):
                continue
            together, todo = set[int](), {start}
            while todo and together <= own:
                together |= todo
                todo = set[int]().union(*(masks[n] for n in todo)) - together
            if together <= own and all(n in masks[other] for n in together for other in masks[n]):
                found.append(together)
        return found


def against(rng: np.random.Generator, world: Lying, victim: int) -> list[Lie]:
    """Servers that open the victim's own mask by some, and by the others the keys of whom it has masks with."""
    everybody, threshold = set(world.devices), world.threshold
    near = sorted(world.near[victim] - {victim})
    lies: list[Lie] = []
    for masks in (threshold, min(len(near), threshold + 2)):
        few = {int(n) for n in rng.choice(near, masks, replace=False)}
        inboxes = {n: set(world.near[n]) for n in world.devices} | {victim: few}
        gone: Counter[int] = Counter()
        said: dict[int, Told] = {}
        for number in (int(n) for n in rng.permutation(sorted(world.honest - {victim}))):
            want = sorted(few - {number}, key=lambda n: (gone[n], n))
            away = set(want[: max(0, len(world.near[number]) - threshold)])
            gone.update(away)
            said[number] = (frozenset(everybody), frozenset(everybody - away))
        lies.append((inboxes, said))
    few = {int(n) for n in rng.choice(near, threshold, replace=False)}
    inboxes = {n: set(world.near[n]) for n in world.devices} | {victim: few}
    spare = world.size - max(quorum(world.size), threshold + 1)
    away = set(sorted(few)[: max(0, spare)])
    one = (frozenset(everybody), frozenset(everybody - away))
    return [*lies, (inboxes, dict.fromkeys(world.honest - {victim} - away, one))]


def at_random(rng: np.random.Generator, world: Lying, victim: int) -> list[Lie]:
    """A server that tells a few stories, each to some devices, and leaves out shares as it likes."""
    everybody = sorted(world.devices)

    def some(of: Set[int], least: int) -> set[int]:
        count = int(rng.integers(min(least, len(of)), len(of) + 1))
        return {int(n) for n in rng.choice(sorted(of), count, replace=False)}

    stories = [some(set(everybody), quorum(world.size)) for _ in range(int(rng.integers(1, 4)))]
    senders = [some(set(everybody), quorum(world.size)) for _ in stories]
    told = {n: int(rng.choice(len(stories))) for n in world.honest}
    if rng.random() < 0.5:
        told = {n: 0 if rng.random() < 0.85 else which for n, which in told.items()}
    inboxes, said = {}, {}
    for number, which in told.items():
        inbox = world.near[number] & (senders[which] | stories[which])
        inboxes[number] = inbox if len(inbox) >= world.threshold else set(world.near[number])
        arrived = stories[which] | {number}
        said[number] = (frozenset(senders[which] | arrived), frozenset(arrived))
    return [(inboxes, said)]


LIES = [(against, 0), (against, 1), (against, 2), (at_random, 0), (at_random, 0)]
SMALL = [*range(6, 31), 36, 50, 75, 100]


@pytest.mark.parametrize("size", mostly_slow(SMALL, (6, 12, 17, 24, 50)))
def test_no_lying_server_opens_a_sum_of_fewer_honest_devices_than_the_bound_says(size: int) -> None:
    """Of so many devices, all neighbours: whatever it opens has all honest devices whose vectors arrived."""
    rng = np.random.default_rng(size)
    helping = part_of(Trust().helpers, size)
    for helpers in {0, helping}:
        for make, which in LIES * (2 if size <= 30 else 1):
            world = Lying(size, helpers)
            inboxes, said = make(rng, world, int(rng.integers(helpers + 1, size + 1)))[which]
            world.give(inboxes)
            world.tell(said)
            for found in world.opened():
                assert len(found) >= quorum(size) - helpers, (helpers, make, which, found)
    honest = Lying(size, 0)
    honest.give(honest.near)
    everybody = frozenset(honest.devices)
    honest.tell(dict.fromkeys(everybody, (everybody, everybody)))
    assert honest.opened() == [set(everybody)], "an honest server opens the sum of all"


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 600])
def test_of_many_devices_with_a_few_neighbours_each_no_server_opens_a_sum_of_few(size: int) -> None:
    rng = np.random.default_rng(size)
    count, threshold = neighbourhood(size, Trust())
    assert count < size - 1
    world = Lying(size, 0)
    victim = int(rng.integers(1, size + 1))
    inboxes, said = against(rng, world, victim)[0]
    world.give(inboxes)
    world.tell(said)
    assert all(len(found) >= threshold - (2 * threshold - count - 1) for found in world.opened())


def test_the_lies_open_vectors_where_nobody_has_to_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is awake: with a quorum of one it finds what a server opened before devices had to agree."""
    monkeypatch.setattr("edge.secure_sum.quorum", lambda devices, helpers: 1)
    rng, alone = np.random.default_rng(5), 0
    for size in (16, 18, 20, 24, 30):
        for _ in range(3):
            world = Lying(size, 0)
            inboxes, said = against(rng, world, size)[0]
            world.give(inboxes)
            world.tell(said)
            alone += {size} in world.opened()
    assert alone >= 9


@pytest.mark.parametrize("written", ["as it is", "otherwise"])
@pytest.mark.parametrize(("size", "helping"), [(11, 2), (20, 2), (30, 3)])
def test_helpers_that_announce_others_keys_open_no_vector(size: int, helping: int, written: str) -> None:
    """Two masks of the victim would cancel: with a device before it, and with a helper behind it that has its key."""
    devices = {n: Participant(SESSION, n) for n in range(1, size + 1)}
    victim, helpers = size - helping, range(size - helping + 1, size + 1)
    keys = {n: device.keys for n, device in devices.items()}
    server = SecureSum(SESSION, 4, 1)
    near, needed = server.pair(keys), server.threshold
    loyal = list(range(1, max(needed, quorum(size)) - helping + 1))
    told_gone = [n for n in range(1, victim) if n not in loyal]
    copied = loyal[: needed - len(told_gone) - helping]
    for helper, n in zip(helpers, copied, strict=False):
        key = keys[n].mask if written == "as it is" else keys[n].mask[:31] + bytes([keys[n].mask[31] ^ 0x80])
        keys[helper] = replace(keys[helper], mask=key)
    roster = server.roster
    sealed = {n: devices[n].share({o: keys[o] for o in near[n]}, roster, needed) for n in devices}
    secret = np.array([7, -3, 11, 1 << 20], np.int32)
    partners = [*told_gone, *helpers, *copied]
    seen = devices[victim].masked(secret, {o: sealed[o][victim] for o in partners})
    for n in [*loyal, *told_gone]:
        devices[n].masked(np.zeros(4, np.int32), {o: sealed[o][n] for o in devices if o != n})
    sent, arrived = set(devices), {*loyal, *helpers, victim}
    signatures = {n: devices[n].agree(sent, arrived) for n in loyal}
    said = statement(devices[1]._named, sent, arrived)
    signatures |= {n: devices[n]._signing.sign(said) for n in helpers}
    shown = {n: devices[n].reveal(signatures) for n in loyal}
    opens = {n: found.own[victim] for n, found in shown.items()}
    opens |= {n: devices[n]._opened(victim, sealed[victim][n])[0] for n in helpers}
    left = seen - stream(joined(dict(list(opens.items())[:needed])), 4)
    for gone in told_gone:
        parts = {n: found.pairs[gone] for n, found in shown.items()}
        parts |= {n: devices[n]._opened(gone, sealed[gone][n])[1] for n in helpers}
        key = joined(dict(list(parts.items())[:needed]))
        mask = stream(agreed(key, keys[victim].mask, SESSION, "mask", (gone, victim)), 4)
        left = left - mask if victim < gone else left + mask
    for helper in [*helpers][len(copied) :]:
        left = left - stream(agreed(devices[helper]._mask, keys[victim].mask, SESSION, "mask", (victim, helper)), 4)
    assert (left.view(np.int32) != secret).all()
