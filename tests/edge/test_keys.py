"""A publisher's keys follow one another, as many signing as were asked for; a key left out signs nothing more."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edge.delta import Delta, read_delta, write_delta
from edge.device import Device
from edge.publisher import follow
from edge.rollback import NewestSeen
from edge.signature import KeyChain, KeyId, KeySet
from export.sign import add_set, generate, sign_bundle, sign_delta, sign_set
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import ITEMS

NAMES = ("a", "b", "c", "d", "other")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key pairs by name."""
    folder = tmp_path_factory.mktemp("keys")
    for name in NAMES:
        generate(folder / name)
    return folder


def chain(keys: Path, path: Path, *sets: tuple[str, int, str]) -> Path:
    """A file of sets: the keys of each by their letters, its threshold, and who signs it."""
    for members, threshold, signers in sets:
        add_set(path, [keys / name / "public.pem" for name in members], threshold)
        for name in signers:
            sign_set(path, keys / name / "private.pem")
    return path


def ids(keys: Path, members: Sequence[str]) -> list[KeyId]:
    """Ids by hand: the sha256 of the raw key, which is the last 32 bytes of the file."""
    found = []
    for name in members:
        lines = (keys / name / "public.pem").read_text().splitlines()
        found.append(KeyId(hashlib.sha256(base64.b64decode("".join(lines[1:-1]))[-32:]).hexdigest()))
    return found


def test_a_set_signed_by_enough_of_the_one_before_takes_its_place(keys: Path, tmp_path: Path) -> None:
    path = chain(keys, tmp_path / "keys.json", ("abc", 2, "ab"), ("bcd", 2, "bc"), ("cd", 1, "bd"))
    first, second, third = (link.set for link in KeyChain.read(path).links)
    for known in (first, second, third):
        assert KeyChain.read(path).newest(known, None) == third
    assert third.ids == ids(keys, "cd")
    assert (third.version, third.before) == (3, hashlib.sha256(second.content).hexdigest())
    assert json.loads(first.content) == {"version": 1, "threshold": 2, "keys": first.keys, "before": None}


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([("abc", 2, "ab"), ("cd", 1, "ad")], "set 2 of keys is signed by 1 of set 1, not by 2"),
        ([("abc", 2, "ab"), ("cd", 1, "d")], "set 2 of keys is signed by 0 of set 1, not by 2"),
        ([("abc", 2, "ab"), ("d", 1, "ab")], "set 2 of keys is signed by 0 of its own, not by 1"),
        ([("abc", 2, "ab"), ("ad", 2, "ab")], "set 2 of keys is signed by 1 of its own, not by 2"),
        ([("abc", 2, "ab"), ("cd", 1, "abc"), ("a", 1, "ab")], "set 3 of keys is signed by 0 of set 2, not by 1"),
        ([("abc", 2, "a")], "set 1 of keys is signed by 1 of its own, not by 2"),
    ],
)
def test_too_few_signatures_hand_nothing_over(
    sets: list[tuple[str, int, str]], words: str, keys: Path, tmp_path: Path
) -> None:
    found = KeyChain.read(chain(keys, tmp_path / "keys.json", *sets))
    with pytest.raises(InputError, match=words):
        found.newest(found.links[0].set, None)


def test_sets_in_another_order_left_out_or_changed_are_refused(keys: Path, tmp_path: Path) -> None:
    path = chain(keys, tmp_path / "keys.json", ("a", 1, "a"), ("b", 1, "ab"), ("c", 1, "bc"))
    first = KeyChain.read(path).links[0].set
    whole = json.loads(path.read_text())

    def newest(links: list[object]) -> KeySet:
        path.write_text(json.dumps(whole | {"links": links}))
        return KeyChain.read(path).newest(first, None)

    one, two, three = whole["links"]
    with pytest.raises(InputError, match="set 3 of keys does not follow set 1"):
        newest([one, three])
    with pytest.raises(InputError, match="set 2 of keys does not follow set 2"):
        newest([one, two, two])
    with pytest.raises(InputError, match="do not follow from set 1, which this device has"):
        newest([two, three])
    more = two["set"] | {"keys": [*two["set"]["keys"], first.keys[0]]}
    with pytest.raises(InputError, match="set 2 of keys: the signature is wrong"):
        newest([one, two | {"set": more}])
    assert newest([one, two, three]).version == 3


def test_older_keys_and_anothers_are_refused(keys: Path, tmp_path: Path) -> None:
    path = chain(keys, tmp_path / "keys.json", ("a", 1, "a"))
    old = shutil.copy(path, tmp_path / "old.json")
    chain(keys, path, ("b", 1, "ab"))
    known = KeyChain.read(path).newest(None, ids(keys, "a"))
    assert known.version == 2
    with pytest.raises(InputError, match="do not follow from set 2, which this device has: they are older"):
        KeyChain.read(old).newest(known, None)
    theirs = chain(keys, tmp_path / "theirs.json", ("c", 1, "c"), ("d", 1, "cd"))
    with pytest.raises(InputError, match=r"do not follow from set 2, .*: they are another publisher's"):
        KeyChain.read(theirs).newest(known, None)
    with pytest.raises(InputError, match="no set of keys is signed by a key that this device trusts"):
        KeyChain.read(theirs).newest(None, ids(keys, "a"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"[" * 9000,
        b'{"schema": "edgefr.keys/1", "links": []}',
        b'{"schema": "edgefr.keys/2"}',
        b" " * (1 << 21),
    ],
)
def test_files_that_are_no_keys(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(content)
    with pytest.raises(InputError, match=r"keys\.json is not an edgefr\.keys/1 file; make one with `edgefr bundle"):
        KeyChain.read(tmp_path / "keys.json")
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        KeyChain.read(tmp_path / "none.json")


@pytest.mark.parametrize(("members", "threshold"), [("aa", 1), ("ab", 3), ("", 1)])
def test_sets_that_nobody_can_meet_are_not_made(members: str, threshold: int, keys: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"are no set; give each once, and fewer"):
        add_set(tmp_path / "keys.json", [keys / name / "public.pem" for name in members], threshold)
    assert not (tmp_path / "keys.json").exists()


def test_a_device_follows_its_publishers_keys_and_takes_nothing_of_a_revoked_one(keys: Path, tmp_path: Path) -> None:
    bundle, state = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "laptop"), tmp_path / "state"
    sign_bundle(bundle, keys / "a" / "private.pem")
    assert Device(bundle, state).publisher == ids(keys, "a")
    path = chain(keys, tmp_path / "keys.json", ("ab", 1, "ab"))
    assert follow(state, path).ids == ids(keys, "ab")
    assert Device(bundle, state).publisher == ids(keys, "ab")
    sign_bundle(bundle, keys / "b" / "private.pem")
    device = Device(bundle, state)
    assert device.state.facts["publisher"] == ids(keys, "b")[0]
    chain(keys, path, ("b", 1, "ab"))  # a is revoked
    follow(state, path)
    assert Device(bundle, state).publisher == ids(keys, "b")
    sign_bundle(bundle, keys / "a" / "private.pem")
    with pytest.raises(InputError, match=r"is not among its publisher's keys \(set 2\): it is revoked, or another's"):
        Device(bundle, state)
    rows = {"item": (np.arange(ITEMS), np.ones((ITEMS, 8), np.float32))}
    change = Delta(device.bundle.manifest.bundle_id, bundles.ROUND - 1, bundles.ROUND, rows=rows)
    update = write_delta(tmp_path / "update.safetensors", change)
    sign_delta(update, keys / "a" / "private.pem")
    with pytest.raises(InputError, match="and this device takes its publisher's alone"):
        device.apply(read_delta(update, device.learning))
    sign_delta(update, keys / "b" / "private.pem")
    device.apply(read_delta(update, device.learning, trusted=device.publisher))
    theirs = chain(keys, tmp_path / "theirs.json", ("c", 1, "c"))
    with pytest.raises(InputError, match="do not follow from set 2"):
        follow(state, theirs)
    with pytest.raises(InputError, match="is signed by a key that this device trusts"):
        follow(_trusting(bundle, keys, tmp_path), theirs)
    assert NewestSeen.of(state).keys is not None


def _trusting(bundle: Path, keys: Path, folder: Path) -> Path:
    """The state of a device that has trusted key a since its first use, and has been shown no set."""
    Device(bundle, folder / "young", trusted=[keys / "a" / "public.pem"])
    return folder / "young"


def test_a_new_device_asks_for_the_key_that_it_is_told_of(keys: Path, tmp_path: Path) -> None:
    path = chain(keys, tmp_path / "keys.json", ("a", 1, "a"), ("bc", 1, "ab"))
    for name, words in (("other", "signed by a key that this device trusts"), ("a", "does not have the key")):
        with pytest.raises(InputError, match=words):
            follow(tmp_path / "new", path, [keys / name / "public.pem"])
        assert NewestSeen.of(tmp_path / "new").keys is None
    assert follow(tmp_path / "new", path, [keys / "b" / "public.pem"]).ids == ids(keys, "bc")
    assert follow(tmp_path / "newer", path).version == 2


def test_one_key_that_signs_twice_counts_once(keys: Path, tmp_path: Path) -> None:
    path = chain(keys, tmp_path / "keys.json", ("abc", 2, "ab"), ("cd", 1, "ad"))
    record = json.loads(path.read_text())
    record["links"][1]["signatures"] *= 2
    path.write_text(json.dumps(record))
    found = KeyChain.read(path)
    with pytest.raises(InputError, match="signed by 1 of set 1, not by 2"):
        found.newest(found.links[0].set, None)
