"""A secure sum is exact whoever goes away when, and neither a device nor the server can be brought to open a vector."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud.secure_sum import CORRECTNESS, SECURITY, SecureSum, Trust, neighbourhood
from edge.secure_sum import FEWEST, NONCE, SEALED, Participant
from privacy.errors import InputError
from privacy.masks import Keys, agreed, public_of
from privacy.neighbours import MOST, MOST_NEIGHBOURS, threshold

SESSION = b"lineage 7, round 3"
LARGEST = 1 << 20
NOBODY: Set[int] = frozenset()
Vectors = dict[int, npt.NDArray[np.int32]]


def vectors(devices: int, size: int = 5, seed: int = 0) -> Vectors:
    draws = np.random.default_rng(seed)
    return {n: draws.integers(-LARGEST, LARGEST, size, dtype=np.int32) for n in range(1, devices + 1)}


def rostered(device: Participant, neighbours: Mapping[int, Keys]) -> dict[int, bytes]:
    """The keys that a device and its neighbours sign with."""
    return {device.number: device.keys.sign, **{n: keys.sign for n, keys in neighbours.items()}}


class World:
    """Devices and a server that run the steps, with devices that go away after any of them."""

    def __init__(self, own: Vectors, trust: Trust | None = None):
        self.own = own
        helpers = Trust().helpers if trust is None else trust.helpers
        self.devices = {number: Participant(SESSION, number, helpers) for number in own}
        self.server = SecureSum(SESSION, len(next(iter(own.values()))), LARGEST, trust)
        self.sent: dict[int, npt.NDArray[np.uint32]] = {}

    def after(self, last: str) -> World:
        """Run the steps up to this one, in which nobody goes away."""
        for step in ("paired", "shared", "masked", "agreed", "revealed"):
            getattr(self, step)()
            if step == last:
                break
        return self

    def paired(self, gone: Set[int] = NOBODY) -> dict[int, list[int]]:
        keys = {n: device.keys for n, device in self.devices.items() if n not in gone}
        near = self.server.pair(keys)
        self.keys, self.near = keys, near
        return near

    def shared(self, gone: Set[int] = NOBODY) -> None:
        for number in self.near.keys() - gone:
            neighbours = {n: self.keys[n] for n in self.near[number]}
            shares = self.devices[number].share(neighbours, self.server.roster, self.server.threshold)
            self.server.take_shares(number, shares)

    def masked(self, gone: Set[int] = NOBODY) -> None:
        for number in self.near.keys() - gone:
            if inbox := self.server.inbox(number):
                self.sent[number] = self.devices[number].masked(self.own[number], inbox)
                self.server.take_masked(number, self.sent[number])

    def agreed(self, gone: Set[int] = NOBODY) -> None:
        for number in self.sent.keys() - gone:
            self.server.take_signature(number, self.devices[number].agree(*self.server.sets))

    def revealed(self, gone: Set[int] = NOBODY) -> None:
        for number in self.server.signatures.keys() - gone:
            self.server.take_revealed(number, self.devices[number].reveal(self.server.signatures))


def test_the_sum_is_exact_and_says_whose_it_is() -> None:
    world = World(vectors(5)).after("revealed")
    total, whose = world.server.opened()
    assert whose == [1, 2, 3, 4, 5]
    assert total.tolist() == sum(v.astype(np.int64) for v in world.own.values()).tolist()


@settings(deadline=None, max_examples=40)
@given(st.integers(7, 12), st.integers(0, 4), st.integers(0, 1000))
def test_whoever_goes_away_when_the_sum_is_of_those_that_sent_a_vector(devices: int, when: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    gone = {int(n) for n in draws.choice(devices, size=int(draws.integers(0, 2)) + 1, replace=False) + 1}
    world = World(vectors(devices, seed=seed))
    away = [gone if step >= when else NOBODY for step in range(5)]
    world.paired(away[0])
    world.shared(away[1])
    world.masked(away[2])
    world.agreed(away[3])
    world.revealed(away[4])
    total, whose = world.server.opened()
    expected = sorted(world.own) if when >= 3 else sorted(world.own.keys() - gone)
    assert whose == expected
    assert total.tolist() == sum(world.own[n].astype(np.int64) for n in expected).tolist()


def test_beyond_a_hundred_devices_each_has_a_few_neighbours() -> None:
    world = World(vectors(150, size=3), Trust(helpers=0.05, gone=0.1))
    near = world.paired()
    count, threshold = neighbourhood(150, Trust(0.05, 0.1))
    assert {len(some) for some in near.values()} == {count}
    assert threshold <= count < 149
    assert all(number in near[other] for number, some in near.items() for other in some), "neighbours are mutual"
    world.shared({5})
    world.masked({5, 7, 90, 91})
    world.agreed({11})
    world.revealed({11, 12})
    total, whose = world.server.opened()
    assert set(range(1, 151)) - set(whose) == {5, 7, 90, 91}
    assert total.tolist() == sum(world.own[n].astype(np.int64) for n in whose).tolist()


def test_what_the_server_gets_of_a_device_says_nothing_without_its_own_mask() -> None:
    """Of all 4,096 values under a mask, high and low ones, as many are above the middle as of random numbers."""
    own = {n: np.full(4096, LARGEST - 1, np.int32) for n in range(1, 5)}
    world = World(own).after("masked")
    for sent in world.sent.values():
        above = np.count_nonzero(sent >= 1 << 31)
        assert abs(above - 2048) < 5 * 32  # five standard deviations of a fair coin
    again = World(own).after("masked")
    assert all((again.sent[n] != world.sent[n]).mean() > 0.99 for n in own)


def test_a_server_that_tells_devices_different_things_gets_no_share_at_all() -> None:
    """It says to some that device 1 sent its vector, and to the others that it went away."""
    world = World(vectors(9)).after("masked")
    sent, arrived = world.server.sets
    said = {n: arrived if n % 2 else arrived - {1} for n in world.sent if n != 1}
    signatures = {n: world.devices[n].agree(sent, told) for n, told in said.items()}
    for number in said:
        with pytest.raises(InputError, match="4 of 9 devices were told that the same vectors arrived, and 6 must be"):
            world.devices[number].reveal(signatures)


def test_a_device_agrees_once_and_reveals_once() -> None:
    world = World(vectors(5)).after("agreed")
    device = world.devices[1]
    with pytest.raises(InputError, match="its next step is reveal"):
        device.agree(*world.server.sets)
    device.reveal(world.server.signatures)
    with pytest.raises(InputError, match="its next step is nothing"):
        device.reveal(world.server.signatures)


@pytest.mark.parametrize("told", ["without it", "somebody left out", "a stranger", "who sent nothing", "too few"])
def test_a_device_agrees_only_to_what_opens_a_sum_of_many(told: str) -> None:
    world = World(vectors(5)).after("masked")
    sent, arrived = world.server.sets
    asked = {
        "without it": (sent, arrived - {1}),
        "somebody left out": (sent - {2}, arrived - {2}),
        "a stranger": (sent | {77}, arrived),
        "who sent nothing": (sent, arrived | {77}),
        "too few": (sent, frozenset({1, 2})),
    }[told]
    with pytest.raises(InputError, match="a secure sum is refused"):
        world.devices[1].agree(*asked)


@pytest.mark.parametrize("forged", ["another's", "of another sum", "noise", "of those whose vectors did not arrive"])
def test_signatures_of_others_or_under_something_else_do_not_count(forged: str) -> None:
    worlds = [World(vectors(5)) for _ in range(2)]
    for world in worlds:
        world.paired()
        world.shared()
        world.masked({5})
        world.agreed()
    world, other = worlds
    right = world.server.signatures
    wrong = {
        "another's": {n: right[2] for n in right},
        "of another sum": other.server.signatures,
        "noise": {n: bytes(64) for n in right},
        "of those whose vectors did not arrive": {5: world.devices[5]._signing.sign(b""), 2: right[2]},
    }[forged]
    counted = 2 if forged in ("another's", "of those whose vectors did not arrive") else 1
    with pytest.raises(InputError, match=f"{counted} of 5 devices were told that the same vectors arrived, and 4"):
        world.devices[1].reveal(wrong)


@pytest.mark.parametrize(
    "change", ["another's key", "its own key", "a neighbour left out", "one key twice", "strangers"]
)
def test_a_roster_that_is_not_of_the_sums_keys_is_refused(change: str) -> None:
    """With a hundred devices or fewer all are neighbours: nobody is on the roster whom a device does not see."""
    devices = {n: Participant(SESSION, n) for n in range(1, 6)}
    roster = {n: device.keys.sign for n, device in devices.items()}
    stranger = Participant(SESSION, 9).keys.sign
    wrong = {
        "another's key": roster | {3: stranger},
        "its own key": roster | {1: stranger},
        "a neighbour left out": {n: key for n, key in roster.items() if n != 3},
        "one key twice": roster | {6: roster[2]},
        "strangers": roster | {9: stranger},
    }[change]
    with pytest.raises(InputError, match=r"a secure sum is refused: (its list|of 6 devices 4 are neighbours)"):
        devices[1].share({n: devices[n].keys for n in range(2, 6)}, wrong, 3)


def test_devices_that_were_shown_different_rosters_cannot_read_each_others_shares() -> None:
    devices = {n: Participant(SESSION, n) for n in range(1, 6)}
    keys = {n: device.keys for n, device in devices.items()}
    other = keys | {5: Participant(SESSION, 5).keys}
    sent = {}
    for number, device in devices.items():
        seen = other if number == 1 else keys
        near = {n: seen[n] for n in seen if n != number}
        sent[number] = device.share(near, {n: (keys if n == number else seen)[n].sign for n in seen}, 3)
    with pytest.raises(InputError, match="did not send these shares"):
        devices[2].masked(np.zeros(2, np.int32), {n: sent[n][2] for n in (1, 3, 4, 5)})


def test_a_sum_of_two_is_refused() -> None:
    """Of two vectors each device would know the other's from the total."""
    with pytest.raises(InputError, match="cannot hold"):
        World(vectors(2)).paired()
    assert FEWEST == 3
    for told in (1, 2):
        one, two = Participant(SESSION, 1), Participant(SESSION, 2)
        with pytest.raises(InputError, match=f"a threshold of {told} is refused: 2 must be needed"):
            one.share({2: two.keys}, rostered(one, {2: two.keys}), told)


def test_of_three_the_vector_of_one_is_not_opened_alone() -> None:
    """A device wants the vectors of two others beside its own."""
    devices = {n: Participant(SESSION, n) for n in (1, 2, 3)}
    keys = {n: device.keys for n, device in devices.items()}
    roster = {n: found.sign for n, found in keys.items()}
    sent = {n: devices[n].share({o: keys[o] for o in keys if o != n}, roster, 2) for n in keys}
    devices[1].masked(np.zeros(2, np.int32), {n: sent[n][1] for n in (2, 3)})
    with pytest.raises(InputError, match="2 are needed"):
        devices[1].agree({1, 2, 3}, {1, 2})


def test_shares_that_were_changed_or_were_for_somebody_else_are_refused() -> None:
    for change in ("a bit", "the sender", "its own, handed back", "the session"):
        world = World(vectors(4)).after("shared")
        inbox = world.server.inbox(1)
        assert all(len(sealed) == SEALED for sealed in inbox.values())
        device = world.devices[1]
        if change == "a bit":
            inbox = {**inbox, 2: inbox[2][:-1] + bytes([inbox[2][-1] ^ 1])}
        elif change == "the sender":
            inbox = {**inbox, 2: inbox[3], 3: inbox[2]}
        elif change == "its own, handed back":
            inbox = {**inbox, 2: world.server.inbox(2)[1]}
        else:
            device.session = b"lineage 7, round 4"
        with pytest.raises(InputError, match="did not send these shares"):
            device.masked(world.own[1], inbox)


@pytest.mark.parametrize("key", [bytes(32), (1).to_bytes(32, "little"), bytes(31)])
def test_a_key_with_which_everybody_agrees_on_the_same_is_refused(key: bytes) -> None:
    """Points of small order (RFC 7748, section 7) and keys of another length."""
    devices = [Participant(SESSION, n) for n in (1, 2, 3)]
    keys = {n: devices[n - 1].keys for n in (2, 3)}
    keys[2] = Keys(keys[2].mask, key, keys[2].sign)
    with pytest.raises(InputError, match="the key of device 2 is none"):
        devices[0].share(keys, rostered(devices[0], keys), 2)


def test_neighbours_that_could_open_both_secrets_or_share_a_key_are_refused() -> None:
    one, two = Participant(SESSION, 1), Participant(SESSION, 2)
    keys = {n: Participant(SESSION, n).keys for n in (2, 3, 4, 5)}
    with pytest.raises(InputError, match="more than half"):
        one.share(keys, rostered(one, keys), 2)
    again, same = Participant(SESSION, 1), Keys(keys[4].mask, keys[3].share, keys[4].sign)
    with pytest.raises(InputError, match="more than half"):
        again.share(keys, rostered(again, keys), 5)
    with pytest.raises(InputError, match="two devices in it have one key"):
        two.share({3: keys[3], 4: same, 5: keys[5]}, rostered(two, {3: keys[3], 4: same, 5: keys[5]}), 3)


@pytest.mark.parametrize("devices", [3, 5, 10, 50, 100, 101, 150, 400])
def test_a_device_and_its_server_work_out_the_same_threshold_and_no_other_is_taken(devices: int) -> None:
    """With a lower one a tenth of helpers would have both secrets of a device, and a higher one is no honest server's.

    Ten devices with one helper: told 5 instead of 6, four who hear that device 1 sent its vector, four who hear that it
    went away, and the helper, would give five shares of either secret.
    """
    count, right = neighbourhood(devices, Trust())
    keys = {n: Participant(SESSION, n).keys for n in range(2, count + 2)}
    for told in {1, count // 2 + 1, right - 1, right + 1, count} - {right}:
        device = Participant(SESSION, 1)
        with pytest.raises(InputError, match=f"a threshold of {told} is refused: {right} must be needed"):
            device.share(keys, rostered(device, keys), told)
        with pytest.raises(InputError, match="its next step is mask"):
            device.share(keys, rostered(device, keys), right)
    device = Participant(SESSION, 1)
    assert len(device.share(keys, rostered(device, keys), right)) == count


def test_a_device_has_no_more_neighbours_than_it_can_work_for() -> None:
    """Shares of a secret for tens of thousands would take it minutes, and no honest server asks for them."""
    for count, refused in ((MOST_NEIGHBOURS, False), (MOST_NEIGHBOURS + 1, True)):
        device, told = Participant(SESSION, 1), threshold(count)
        keys = {
            n: Keys(public_of(n.to_bytes(32)), public_of((n << 16).to_bytes(32)), n.to_bytes(32))
            for n in range(2, count + 2)
        }
        if refused:
            with pytest.raises(InputError, match="513 neighbours"):
                device.share(keys, rostered(device, keys), told)
        else:
            assert len(device.share(keys, rostered(device, keys), told)) == count
    assert max(neighbourhood(devices, Trust())[0] for devices in (300, 5000, MOST)) < MOST_NEIGHBOURS


def test_the_server_refuses_what_comes_twice_or_too_early() -> None:
    world = World(vectors(4))
    with pytest.raises(InputError, match="does not send its neighbours shares"):
        world.server.take_shares(1, {})
    world.paired()
    with pytest.raises(InputError, match="drawn once"):
        world.paired()
    with pytest.raises(InputError, match="does not send its vector"):
        world.server.take_masked(1, np.zeros(5, np.uint32))
    world.shared()
    with pytest.raises(InputError, match=r"uint32 \[5\]"):
        world.server.take_masked(1, np.zeros(4, np.uint32))
    world.masked()
    with pytest.raises(InputError, match="does not send its vector"):
        world.server.take_masked(1, world.sent[1])
    world.agreed()
    shares = world.devices[1].reveal(world.server.signatures)
    with pytest.raises(InputError, match="reveals other shares"):
        world.server.take_revealed(2, shares)


def test_shares_of_another_secret_open_nothing() -> None:
    world = World(vectors(5)).after("shared")
    world.masked({5})
    world.agreed()
    for number in (1, 2, 3, 4):
        found = world.devices[number].reveal(world.server.signatures)
        world.server.take_revealed(number, type(found)(found.own, {5: found.own[1 if number != 1 else 2]}))
    with pytest.raises(InputError, match="cannot be opened"):
        world.server.opened()


@pytest.mark.parametrize("devices", [101, 200, 1000])
@pytest.mark.parametrize("trust", [Trust(), Trust(0.05, 0.1)])
def test_as_many_neighbours_as_the_chances_ask_for(devices: int, trust: Trust) -> None:
    """The chances again by scipy's hypergeometric law."""
    from scipy.stats import hypergeom

    count, threshold = neighbourhood(devices, trust)
    helpers, gone = np.ceil(trust.helpers * devices), np.ceil(trust.gone * devices)
    worst = 2 * threshold - count - 1  # helpers among the neighbours that the threshold allows for
    assert devices * hypergeom.sf(worst, devices - 1, helpers, count) <= 2.0**-SECURITY * 1.001
    assert devices * hypergeom.sf(count - threshold, devices - 1, gone, count) <= 2.0**-CORRECTNESS * 1.001
    assert devices * (trust.helpers + trust.gone) ** (count / 2) <= 2.0**-SECURITY


def test_trust_that_is_too_low_is_refused() -> None:
    with pytest.raises(InputError, match="cannot hold"):
        neighbourhood(120, Trust(helpers=0.5, gone=0.4))
    with pytest.raises(InputError, match="from 0 to below 1"):
        Trust(helpers=1.0)


def test_what_two_devices_seal_for_each_other_has_nonces_of_its_own() -> None:
    """Both directions use one key: with one nonce, two messages in a row would give away their difference."""
    world = World(vectors(4))
    near = world.paired()
    nonces = [
        sealed[:NONCE]
        for n in near
        for sealed in world.devices[n]
        .share({o: world.keys[o] for o in near[n]}, world.server.roster, world.server.threshold)
        .values()
    ]
    assert len(set(nonces)) == len(nonces) == 12


def test_the_key_of_masks_opens_no_sealed_shares() -> None:
    """A device that went away has its mask key opened by the server, which relayed all that was sealed for it."""
    world = World(vectors(3))
    near = world.paired()
    shares = world.devices[1].share({o: world.keys[o] for o in near[1]}, world.server.roster, world.server.threshold)
    opened = world.devices[2]._mask  # what the server has once device 2 went away
    for public in (world.keys[1].mask, world.keys[1].share):
        for use in ("mask", "share"):
            key = ChaCha20Poly1305(agreed(opened, public, SESSION, use, (1, 2)))
            with pytest.raises(InvalidTag):
                key.decrypt(shares[2][:NONCE], shares[2][NONCE:], world.devices[1]._between(1, 2))


def test_too_few_that_are_left_open_nothing() -> None:
    world = World(vectors(6))
    world.paired()
    world.shared()
    world.masked()
    world.agreed()
    world.revealed({1, 2, 3})
    with pytest.raises(InputError, match="cannot be opened"):
        world.server.opened()


def test_a_total_that_would_wrap_around_is_refused() -> None:
    world = World(vectors(4))
    world.server.largest = 1 << 29
    with pytest.raises(InputError, match="does not fit 32 bits"):
        world.paired()
