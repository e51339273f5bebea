"""A run's key is a secret: new every time, its owner's alone, and all simulated noise follows from it."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privacy import keyed
from privacy.errors import InputError
from privacy.noise_key import BYTES, NoiseKey

KEY, OTHER = NoiseKey(bytes(range(BYTES))), NoiseKey(bytes(range(1, BYTES + 1)))


def drawn(key: NoiseKey, seed: int = 3, purpose: str = "noise item", *path: int) -> list[float]:
    """First numbers of a stream."""
    return key.stream(seed, purpose, *path).generator.standard_normal(4).tolist()


def test_keys_are_new_and_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({NoiseKey.new() for _ in range(100)}) == 100
    monkeypatch.setattr(secrets, "token_bytes", lambda count: bytes([count]) * count)
    assert NoiseKey.new().secret == bytes([BYTES]) * BYTES


def test_a_key_is_a_file_of_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "noise.key"
    KEY.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert NoiseKey.read(path) == KEY
    for content in ("", "00" * (BYTES - 1), "00" * (BYTES + 1), "zz" * BYTES):
        path.write_text(content)
        with pytest.raises(InputError, match="is not a noise key"):
            NoiseKey.read(path)


def test_a_key_makes_the_noise_of_one_thing(tmp_path: Path) -> None:
    """With the noise of two experiments alike, the difference of their results has none."""
    one, other = "ab" * 32, "cd" * 32
    bound = KEY.bound(one)
    assert bound == KEY == bound.bound(one)
    with pytest.raises(InputError, match="has made the noise of another experiment"):
        bound.bound(other)
    bound.write(tmp_path / "noise.key")
    assert NoiseKey.read(tmp_path / "noise.key").of == one
    assert bound.child("a").of == ""
    for content in (f"{'00' * BYTES}\nof {one[1:]}", f"{'00' * BYTES}\n{one}", f"{'00' * BYTES}\nof {one}\nof {one}"):
        (tmp_path / "noise.key").write_text(content)
        with pytest.raises(InputError, match="is not a noise key"):
            NoiseKey.read(tmp_path / "noise.key")


def test_every_part_of_a_stream_matters_and_the_secret_most() -> None:
    first = drawn(KEY, 3, "noise item", 5)
    assert first == drawn(KEY, 3, "noise item", 5)
    others = [
        drawn(OTHER, 3, "noise item", 5),
        drawn(KEY, 4, "noise item", 5),
        drawn(KEY, 3, "noise bias", 5),
        drawn(KEY, 3, "noise item", 6),
        drawn(KEY, 3, "noise item", 4),
        drawn(KEY, 3, "noise item", 5, 0),
        drawn(KEY.child("one"), 3, "noise item", 5),
        drawn(KEY.child("other"), 3, "noise item", 5),
    ]
    assert len({tuple(one) for one in [first, *others]}) == 1 + len(others)


def test_every_part_of_a_clients_key_matters_and_the_secret_most() -> None:
    keys = [
        KEY.base(3, "noise", 5, 1),
        OTHER.base(3, "noise", 5, 1),
        KEY.base(4, "noise", 5, 1),
        KEY.base(3, "noise", 6, 1),
        KEY.base(3, "noise", 5, 2),
        KEY.base(3, "prototypes", 5, 1),
    ]
    assert len({base.key for base in keys}) == len(keys) == len({base.words([1], 1).tobytes() for base in keys})
    assert all(len(base.key) == BYTES for base in keys)


@pytest.mark.parametrize("client", [0, 7, 2**40 + 3, 2**63 - 1])
def test_a_clients_words_are_aes_in_counter_mode(client: int) -> None:
    """The counter begins with the client's number and 64 zeros; the round's key is the digest of what it is for."""
    round_key = hashlib.blake2b(b"4:base/1:3/5:noise/1:5", key=KEY.secret, digest_size=16).digest()
    cipher = Cipher(algorithms.AES(round_key), modes.CTR(client.to_bytes(8, "big") + bytes(8)))
    stream = cipher.encryptor().update(bytes(5 * 16))
    literal = [[int.from_bytes(stream[at + of : at + of + 8], "little") for of in (0, 8)] for at in range(0, 80, 16)]
    words = KEY.base(3, "noise", 5).words([4, client], 5)
    assert words.dtype == np.uint64
    assert words[1].tolist() == literal


def test_pinned_words() -> None:
    """Noise is drawn again across versions with its key: a change must be noticed."""
    assert KEY.base(3, "noise", 5).words([7], 1).tolist() == [[[15066868269582737423, 9127592881884517073]]]
    assert KEY.base(3, "noise", 5).words([], 4).shape == (0, 4, 2)
    assert KEY.base(3, "noise", 5).words([1, 2], 0).shape == (2, 0, 2)


def test_a_clients_words_depend_on_nobody_else_and_on_no_size() -> None:
    base = KEY.base(3, "noise", 5)
    together = base.words([3, 11, 8], 6)
    np.testing.assert_array_equal(base.words([8], 4)[0], together[2, :4])
    assert len({tuple(pair) for pair in together.reshape(-1, 2).tolist()}) == 18


def unmixed(word: int) -> int:
    """What SplitMix64 makes a word of: its finaliser, backwards."""
    mask = 2**64 - 1
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        word ^= word >> shift ^ word >> 2 * shift
        word = word * pow(factor, -1, 2**64) & mask
    return word


def round_key_by(word: int, client: int, index: int) -> int:
    """The key of a round that gives a client this word, if words are SplitMix64's of SplitMix64's."""
    weyl, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    own = (unmixed(word) - (index + 1) * weyl) & mask
    return (unmixed(own) - (client + 1) * weyl) & mask


def test_a_word_that_is_known_gives_no_key() -> None:
    """Of draws by a generator that can be run backwards one word is enough: here each tells of another key, and none
    gives anybody's words."""
    secret = 0x0123456789ABCDEF
    public = keyed.bits(keyed.fold(secret, [7, 9])[:, None], np.arange(4))
    assert {round_key_by(int(word), 7, index) for index, word in enumerate(public[0])} == {secret}, "it would work"
    words = KEY.base(3, "noise", 5).words([7, 9], 4)
    found = {round_key_by(int(word), 7, index) for index in range(4) for word in words[0, index]}
    assert len(found) == 8
    for key in found:
        assert not np.isin(keyed.bits(keyed.fold(key, [9])[:, None], np.arange(8)), words[1]).any()


def test_a_key_is_not_shown() -> None:
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(bytes(KEY.secret)) not in repr(KEY)
