"""What two clients agree on is theirs, of one session and one use; a stream is ChaCha20's."""

import numpy as np
import pytest

from privacy.masks import agreed, public_of, stream

ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4bde4ebf6ff0a6f4e0f0a9f6e1a9a5")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def test_both_agree_on_the_same_and_nobody_else_does() -> None:
    both = agreed(ALICE, public_of(BOB), b"s", "mask", (1, 2))
    assert both == agreed(BOB, public_of(ALICE), b"s", "mask", (1, 2))
    assert len(both) == 32
    assert agreed(bytes(31) + b"!", public_of(BOB), b"s", "mask", (1, 2)) != both


def test_a_public_key_is_x25519s() -> None:
    """Bob's keys of RFC 7748, section 6.1."""
    assert public_of(BOB).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


def test_each_use_and_each_session_has_a_secret_of_its_own() -> None:
    made = {
        agreed(ALICE, public_of(BOB), session, use, (1, 2)) for session in (b"1", b"2") for use in ("mask", "share")
    }
    assert len(made) == 4


def test_a_mask_is_of_the_pairs_numbers() -> None:
    """A third device that announces Bob's key, or the same point written otherwise, has no mask that Bob has."""
    again = public_of(BOB)[:31] + bytes([public_of(BOB)[31] ^ 0x80])
    made = {
        agreed(ALICE, key, b"s", "mask", pair) for key in (public_of(BOB), again) for pair in ((1, 2), (1, 3), (2, 3))
    }
    assert len(made) == 3


def test_a_public_key_of_small_order_is_refused() -> None:
    with pytest.raises(ValueError, match="rror"):
        agreed(ALICE, bytes(32), b"s", "mask", (1, 2))


def test_a_stream_is_chacha20s() -> None:
    """The first words of RFC 8439's test vector for the block function with a zero key and nonce (A.1, vector 1)."""
    found = stream(bytes(32), 4)
    assert found.tolist() == [0xADE0B876, 0x903DF1A0, 0xE56A5D40, 0x28BD8653]
    assert found.dtype == np.uint32
