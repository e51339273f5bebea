"""Shares open a secret from the threshold on, and below it they fit every secret."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.secret_sharing import PRIME, cut, joined


def passes_miller_rabin(number: int, rounds: int = 40) -> bool:
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    draws = random.Random(0)
    for _ in range(rounds):
        x = pow(draws.randrange(2, number - 1), odd, number)
        if x in (1, number - 1):
            continue
        if not any((x := x * x % number) == number - 1 for _ in range(twos - 1)):
            return False
    return True


def test_numbers_are_taken_modulo_the_smallest_prime_above_every_secret() -> None:
    assert passes_miller_rabin(PRIME)
    assert not any(passes_miller_rabin(number) for number in range((1 << 256) + 1, PRIME, 2))


@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_so_many_shares_give_the_secret_back(secret: bytes, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=12, unique=True))
    threshold = data.draw(st.integers(1, len(places)))
    shares = cut(secret, threshold, places)
    some = data.draw(st.permutations(places)).copy()[: data.draw(st.integers(threshold, len(places)))]
    assert joined({place: shares[place] for place in some}) == secret


def test_fewer_shares_fit_every_secret() -> None:
    """With two of three needed shares, each secret is that of exactly one third share: nothing tells which it is."""
    shares = cut(bytes(32), 3, [1, 2, 5])
    for other in (bytes(32), bytes(31) + b"\x01", b"\xff" * 32):
        value = int.from_bytes(other)
        one, two = int.from_bytes(shares[1]), int.from_bytes(shares[2])
        # the parabola through (0, value), (1, one), (2, two), at 5: by divided differences
        slope = (one - value) % PRIME
        bend = (two - 2 * one + value) * pow(2, -1, PRIME) % PRIME
        third = (value + 5 * slope + 5 * 4 * bend) % PRIME
        assert joined({1: shares[1], 2: shares[2], 5: third.to_bytes(33)}) == other


def test_a_line_through_known_points() -> None:
    """By hand: 7 + 3 x is 10 at 1 and 16 at 3, and 7 at 0."""
    assert joined({1: (10).to_bytes(33), 3: (16).to_bytes(33)}) == (7).to_bytes(32)


def test_two_secrets_never_have_the_same_shares_by_chance() -> None:
    assert cut(bytes(32), 2, [1, 2]) != cut(bytes(32), 2, [1, 2]), "the polynomial is drawn anew"


@pytest.mark.parametrize(
    ("secret", "threshold", "places"),
    [(bytes(31), 1, [1]), (bytes(32), 0, [1]), (bytes(32), 3, [1, 2]), (bytes(32), 1, [0]), (bytes(32), 1, [1, 1])],
)
def test_what_cannot_be_cut_is_refused(secret: bytes, threshold: int, places: list[int]) -> None:
    with pytest.raises(ValueError, match=r"cannot be cut|distinct"):
        cut(secret, threshold, places)


@pytest.mark.parametrize("shares", [{}, {1: bytes(32)}, {1: b"\xff" * 33}, {1: (1 << 256).to_bytes(33)}])
def test_what_is_no_share_is_refused(shares: dict[int, bytes]) -> None:
    with pytest.raises(ValueError, match="not shares of"):
        joined(shares)


def test_what_hides_a_secret_is_as_long_as_the_secret() -> None:
    """Of (secret + a x) the difference of two shares is a, which is 256 bits and cannot be tried."""
    slopes = []
    for _ in range(8):
        shares = cut(bytes(32), 2, [1, 2])
        slopes.append((int.from_bytes(shares[2]) - int.from_bytes(shares[1])) % PRIME)
    assert min(slopes) < max(slopes)
    assert max(slopes) > 1 << 250, "by chance once in 10^14"
