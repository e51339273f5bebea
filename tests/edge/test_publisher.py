"""A device trusts the key that signed its first bundle, and takes nothing of anybody else from then on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edge.delta import Delta, read_delta, write_delta
from edge.device import Device
from edge.signature import key_id
from edge.state import STATE, Store
from export.archive import pack
from export.sign import sign_bundle, sign_delta
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import ITEMS
from tests.devices import open_device
from tests.export import worlds


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return shutil.copytree(bundles.bundle("fedmf"), tmp_path / "laptop")


def change(device: Device, folder: Path) -> Path:
    """A server's update of a device, that nobody has signed."""
    rows = {"item": (np.arange(ITEMS), np.ones((ITEMS, 8), np.float32))}
    delta = Delta(device.bundle.manifest.bundle_id, bundles.ROUND - 1, bundles.ROUND, rows=rows)
    return write_delta(folder / "update.safetensors", delta)


@pytest.mark.parametrize("zipped", [False, True])
def test_the_first_key_is_remembered_and_no_other_taken(zipped: bool, bundle: Path, keys: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"

    def given() -> Path:
        return pack(bundle, tmp_path / "laptop.zip") if zipped else bundle

    first = Device(given(), state)
    assert first.publisher == [key_id(worlds.KEY.public_key())]
    assert Store(state).read().facts["publisher"] == first.publisher[0]
    before = (state / STATE).read_bytes()
    sign_bundle(bundle, keys / "other" / "private.pem")
    for trusted in (None, [keys / "other" / "public.pem"]):
        with pytest.raises(InputError, match=r"has trusted key \w{16}\.\.\. since its first use; .* --state"):
            Device(given(), state, trusted=trusted)
    (bundle / "manifest.sig.json").unlink()
    with pytest.raises(InputError, match="is signed by nobody, but"):
        Device(given(), state)
    (state / "policy.yaml").write_text("signed: false\n")
    with pytest.raises(InputError, match="is signed by nobody, but"):
        Device(given(), state)
    assert (state / STATE).read_bytes() == before
    assert Device(bundles.bundle("fedmf"), state).publisher == first.publisher


@pytest.mark.parametrize("zipped", [False, True])
def test_nobodys_bundle_is_refused_unless_the_policy_allows_it(zipped: bool, bundle: Path, tmp_path: Path) -> None:
    (bundle / "manifest.sig.json").unlink()
    given, state = pack(bundle, tmp_path / "laptop.zip") if zipped else bundle, tmp_path / "state"
    with pytest.raises(InputError, match=r"is not signed, so its publisher is unknown; .*`signed: false` in"):
        Device(given, state)
    assert not (state / STATE).exists()
    state.mkdir(exist_ok=True)
    (state / "policy.yaml").write_text("signed: false\n")
    one = Device(given, state)
    assert one.publisher is None
    one.apply(read_delta(change(one, tmp_path), one.learning, trusted=one.publisher))
    assert one.state.facts["round"] == bundles.ROUND
    signed = Device(bundles.bundle("fedmf"), state)
    assert signed.state.facts["publisher"] == key_id(worlds.KEY.public_key()), "the same content, signed later"


def test_keys_that_are_asked_for_must_have_signed(bundle: Path, keys: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which is not trusted; give its public key"):
        Device(bundle, tmp_path / "state", trusted=[keys / "mine" / "public.pem"])
    sign_bundle(bundle, keys / "mine" / "private.pem")
    one = Device(bundle, tmp_path / "state", trusted=[keys / "other" / "public.pem", keys / "mine" / "public.pem"])
    assert one.publisher == [sign_bundle(bundle, keys / "mine" / "private.pem")]


def test_updates_come_from_the_publisher_alone(bundle: Path, keys: Path, tmp_path: Path) -> None:
    sign_bundle(bundle, keys / "mine" / "private.pem")
    one = Device(bundle, tmp_path / "state")
    update = change(one, tmp_path)
    with pytest.raises(InputError, match="is not signed"):
        read_delta(update, one.learning, trusted=one.publisher)
    sign_delta(update, keys / "other" / "private.pem")
    with pytest.raises(InputError, match="which is not trusted"):
        read_delta(update, one.learning, trusted=one.publisher)
    sign_delta(update, keys / "mine" / "private.pem")
    one.apply(read_delta(update, one.learning, trusted=one.publisher))
    assert one.state.facts["round"] == bundles.ROUND


def test_a_zip_is_unpacked_once_and_checked_whenever_it_is_used(bundle: Path, tmp_path: Path) -> None:
    archive, state = pack(bundle, tmp_path / "laptop.zip"), tmp_path / "state"
    first = open_device(archive, state)
    items = first.catalogue.offered_items[:4].tolist()
    learned = first.learn(items)
    place = first.bundle.root
    assert place.is_relative_to(state)
    assert place.parent.stat().st_mode & 0o077 == 0
    stamp = place.stat().st_mtime_ns
    again = open_device(archive, state)
    assert (again.bundle.root, place.stat().st_mtime_ns) == (place, stamp)
    assert again.learn().to_bytes() == learned.to_bytes()
    (place / "onnx" / "score.onnx").write_bytes(b"other")
    with pytest.raises(InputError, match=r"score\.onnx has 5 bytes instead of"):
        Device(archive, state)
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(InputError, match="is not a plain zip"):
        Device(archive, tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def test_a_state_from_before_keys_were_remembered_remembers_now(bundle: Path, tmp_path: Path) -> None:
    Device(bundle, tmp_path)
    store = Store(tmp_path)
    with store.locked():
        old = store.read()
        del old.facts["publisher"]
        store.write(old)
    assert Device(bundle, tmp_path).state.facts["publisher"] == key_id(worlds.KEY.public_key())
