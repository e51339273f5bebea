"""One secure sum on the server, without HTTP: which step it is, who is in it, and when there is no total."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from edge.bundle import open_bundle
from edge.learning import Learning
from edge.secure_sum import Participant
from edge.sum_messages import Agreed, Agreeing, Asked, KeysMessage, Neighbours, Opening, Seat, Shares, opened
from edgefr.serving.admission import RequestRefused
from edgefr.serving.origin import Origin
from edgefr.serving.secure_sums import SealedRound, SumTerms
from privacy.errors import InputError
from privacy.masks import Keys
from tests.contract import bundles

BUNDLE, ROUND, USERS = "0" * 64, 5, ["ada", "bob", "eve", "kim"]
TERMS = SumTerms(size=3, grid=0.5, largest=100, length=100.0, order=2)
VECTORS = {"ada": [1, -2, 3], "bob": [10, 20, 30], "eve": [-60, 0, 80], "kim": [7, 7, 7]}


class World:
    """Devices that send bytes to a round."""

    def __init__(self, fewest: int = 3):
        self.round = SealedRound(BUNDLE, ROUND, TERMS, USERS, fewest)
        self.parts = {
            user: Participant(self.round.seat(user).session(BUNDLE, ROUND), self.round.seat(user).number)
            for user in USERS
        }

    def keys(self, user: str) -> bytes:
        return KeysMessage.of(self.parts[user].keys).model_dump_json().encode()

    def told(self, user: str, step: str) -> bytes:
        while (found := self.round.answer(user, step)) is None:  # type: ignore[arg-type]
            pass
        return found

    def whole(self, user: str, vector: list[int]) -> None:
        """All that one device does in a sum."""
        part, sealed = self.parts[user], self.round
        sealed.take(user, "keys", self.keys(user))
        near = opened(Neighbours, self.told(user, "keys"))
        sent = part.share(near.near, near.signers, near.threshold)
        sealed.take(user, "shares", Shares.of(sent).model_dump_json().encode())
        inbox = opened(Shares, self.told(user, "shares")).contents
        sealed.take(user, "vector", part.masked(np.array(vector, np.int32), inbox).astype("<u4").tobytes())
        asked = opened(Asked, self.told(user, "vector"))
        signature = part.agree(set(asked.sent), set(asked.arrived))
        sealed.take(user, "agree", Agreeing(signature=signature.hex()).model_dump_json().encode())
        shown = part.reveal(opened(Agreed, self.told(user, "agree")).contents)
        sealed.take(user, "opening", Opening.of(shown).model_dump_json().encode())

    def collected(self, vectors: dict[str, list[int]], timeout_s: float = 10.0):  # type: ignore[no-untyped-def]
        with ThreadPoolExecutor(8) as pool:
            total = pool.submit(self.round.collect, timeout_s)
            for done in [pool.submit(self.whole, user, vector) for user, vector in vectors.items()]:
                done.result(30)
            return total.result(30)


def test_the_total_is_the_plain_sum_to_the_integer_and_no_vector_is_kept() -> None:
    world = World()
    total = world.collected(VECTORS)
    assert total is not None
    assert (total.steps.tolist(), total.clients, world.round.given_up) == ([-42, 25, 120], 4, None)
    kept = [value for value in vars(world.round.sum).values() if isinstance(value, np.ndarray)]
    assert len(kept) == 1, "the server has one sum and nobody's vector"


@pytest.mark.parametrize("vector", [[401, 0, 0], [300, 300, 300]])
def test_a_total_that_no_honest_devices_have_is_not_taken(vector: list[int]) -> None:
    """One has a value that is too large, and one is too long as a whole."""
    world = World()
    assert world.collected(VECTORS | {"eve": vector}) is None
    assert world.round.given_up == "the sum is longer than these uploads can make it: a device sent what it may not"


def test_too_few_keys_give_the_sum_up_before_anybody_is_paired() -> None:
    world = World()
    for user in USERS[:2]:
        assert world.round.take(user, "keys", world.keys(user))
    assert world.round.collect(0.05) is None
    assert world.round.given_up == "2 devices were left after step keys, and 3 must be"
    with pytest.raises(RequestRefused, match="goes on without this device"):
        world.round.answer("ada", "keys")


def test_two_are_never_enough_whatever_is_asked_for() -> None:
    world = World(fewest=1)
    for user in USERS[:2]:
        world.round.take(user, "keys", world.keys(user))
    assert world.round.collect(0.05) is None
    assert world.round.given_up == "2 devices were left after step keys, and 3 must be"


def test_a_server_that_stops_lets_nobody_wait() -> None:
    world = World()
    world.round.take("ada", "keys", world.keys("ada"))
    assert world.round.answer("ada", "keys") is None
    with ThreadPoolExecutor(1) as pool:
        total = pool.submit(world.round.collect, 60.0)
        world.round.close()
        assert total.result(10) is None
    assert world.round.given_up == "the server stopped"


def test_what_comes_out_of_order_twice_or_malformed_is_refused() -> None:
    world = World()
    assert world.round.take("ada", "keys", world.keys("ada"))
    assert not world.round.take("ada", "keys", world.keys("ada")), "its answer was lost"
    other = KeysMessage.of(Participant(b"", 1).keys).model_dump_json().encode()
    empty = KeysMessage.of(Keys(bytes(32), bytes(32), bytes(32))).model_dump_json().encode()
    bad = [
        ("ada", "keys", other, "step keys of round 5's sum is over for this device"),
        ("bob", "keys", world.keys("ada"), "another device has announced this key"),
        ("bob", "keys", empty, "these keys are none"),
        ("bob", "keys", b'{"mask": "00", "share": "00"}', "not a message of a secure sum"),
        ("ada", "shares", b'{"sealed": {}}', "step shares of round 5's sum is over for this device"),
        ("ada", "vector", bytes(12), "step vector of round 5's sum is over for this device"),
        ("ada", "vector", bytes(11), "a masked vector has 12 bytes, not 11"),
        ("ada", "agree", b'{"signature": "00"}', "not a message of a secure sum"),
        ("ada", "opening", b'{"own": {}, "pairs": {}}', "step opening of round 5's sum is over"),
        ("zoe", "keys", world.keys("ada"), "goes on without this device"),
    ]
    for user, step, content, words in bad:
        with pytest.raises(RequestRefused, match=words):
            world.round.take(user, step, content)  # type: ignore[arg-type]


def test_numbers_are_of_no_order_and_sessions_differ_in_bundle_round_and_sum() -> None:
    users = [str(n) for n in range(60)]
    first, second = (SealedRound(BUNDLE, ROUND, TERMS, users, 3) for _ in range(2))
    assert sorted(first.numbers.values()) == list(range(1, 61))
    assert first.numbers != second.numbers
    seats = [
        first.seat("0").session(BUNDLE, 5),
        second.seat("0").session(BUNDLE, 5),
        first.seat("0").session(BUNDLE, 6),
    ]
    assert len({*seats, first.seat("0").session("1" * 64, 5), first.seat("1").session(BUNDLE, 5)}) == 4


def test_a_seat_that_is_none_is_refused_and_never_read_as_none() -> None:
    assert Seat.of("7 " + "00" * 16) == Seat(7, bytes(16))
    for header in ("", "0 " + "00" * 16, "7", "7 00", "7 " + "zz" * 16, "x " + "00" * 16):
        with pytest.raises(InputError, match="no place in it; nothing was sent"):
            Seat.of(header)


def learning(**release: object) -> Learning:
    return Origin.of(open_bundle(bundles.bundle("fedmf", **release)), bundles.USERS).learning


def test_terms_bound_every_value_and_the_sum_of_all_of_them() -> None:
    clipped = learning(clip=1.0)
    assert SumTerms.of(clipped, 6) == SumTerms(clipped.uploaded, 2.0**-15, (1 << 15) + 1, (1 << 15) + 1.0, 2)
    assert SumTerms.of(learning(clip=1.0, norm="l1"), 6).order == 1
    noised = {"clip": 1.0, "noise": "discrete-gaussian", "scale": 2.0, "step": 2.0**-15, "noised": "here"}
    found = SumTerms.of(learning(**noised), 6).largest
    assert 7 * 2 * 2**15 < found < 13 * 2 * 2**15, "a clip and some deviations of its noise"
    with pytest.raises(InputError, match=r"a sum of 5,000 uploads with values up to .* does not fit 32 bits"):
        SumTerms.of(learning(**noised), 5000)


def test_nobody_waits_for_neighbours_to_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many devices that takes seconds: questions are answered meanwhile, and who comes late is refused."""
    world, drawing, go_on = World(), Event(), Event()
    pair = world.round._pair

    def slow() -> None:
        drawing.set()
        assert go_on.wait(30)
        pair()

    monkeypatch.setattr(world.round, "_pair", slow)
    for user in USERS:
        world.round.take(user, "keys", world.keys(user))
    with ThreadPoolExecutor(2) as pool:
        total = pool.submit(world.round.collect, 60.0)
        assert drawing.wait(30)
        assert pool.submit(world.round.ended, "ada", "keys").result(10) is False
        with pytest.raises(RequestRefused, match="step shares of round 5's sum is over for this device"):
            world.round.take("ada", "shares", b'{"sealed": {}}')
        go_on.set()
        while not world.round.ended("ada", "keys"):
            pass
        world.round.close()
        assert total.result(30) is None
