"""A device takes nothing that is older than what it has seen, whatever its clock says and whatever was undone."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from edge import rollback as seen
from edge.bundle import open_on
from edge.delta import Delta, read_delta, write_delta
from edge.device import Device
from edge.manifest_check import AdmissionTerms
from edge.rollback import LOCK, MOST_AHEAD, NAME, NewestSeen, note
from edge.signature import KeySet
from edge.state import EARLIER, STATE, Store
from export.sign import generate, sign_delta
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.machine import hold
from tests.contract import bundles
from tests.contract.programs import ITEMS
from tests.devices import open_device
from tests.edge.folders import resign

ENDS = datetime(2100, 1, 1, tzinfo=UTC)
SERIAL = 1795255200  # 2026-11-21T10:00:00+00:00


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of its own that expires in the year 2100."""
    made = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "laptop")
    resign(made, lambda record: record.update(expires=ENDS.isoformat()))
    return made


def update(device: Device, to_round: int, **changes: object) -> Delta:
    """The server's update from the bundle, as its publisher has signed it."""
    rows = {"item": (np.arange(ITEMS), np.full((ITEMS, 8), to_round, np.float32))}
    made = Delta(device.bundle.manifest.bundle_id, bundles.ROUND - 1, to_round, rows=rows)
    return replace(made, **{"signed_by": device.bundle.signed_by, **changes})  # type: ignore[arg-type]


def test_a_device_remembers_serial_round_and_time_beside_its_state(bundle: Path, tmp_path: Path) -> None:
    device = open_device(bundle, tmp_path / "s", now=datetime(2050, 1, 1, tzinfo=UTC))
    device.apply(update(device, 4))
    assert json.loads((tmp_path / "s" / NAME).read_bytes()) == {
        "schema": "edgefr.seen/1",
        "serial": SERIAL,
        "seconds": 2524608000,
        "bundle": device.bundle.manifest.bundle_id,
        "round": 4,
        "keys": None,
    }
    assert (tmp_path / "s" / NAME).stat().st_mode & 0o777 == 0o600
    assert device.status()["expires"] == "2100-01-01T00:00:00+00:00"


def test_what_has_expired_stays_so_when_the_clock_is_set_back(bundle: Path, tmp_path: Path) -> None:
    open_device(bundle, tmp_path / "s", now=ENDS - timedelta(days=1))
    with pytest.raises(InputError, match=r"expired on 2100-01-01T00:00:00\+00:00; get a newer one"):
        open_device(bundle, tmp_path / "s", now=ENDS)  # a look at it, which was refused, is enough
    for back in (ENDS - timedelta(seconds=1), datetime(1970, 1, 1, tzinfo=UTC), None):
        with pytest.raises(InputError, match=r"the clock has been set back, since it was 2100-01-01 00:00 UTC here"):
            open_device(bundle, tmp_path / "s", now=back)
    open_device(bundle, tmp_path / "another", now=datetime(1970, 1, 1, tzinfo=UTC))
    (tmp_path / "s" / NAME).unlink()  # the owner's clock had been wrong
    open_device(bundle, tmp_path / "s", now=ENDS - timedelta(days=1))


def test_an_older_bundle_is_refused_once_a_newer_one_was_taken(bundle: Path, tmp_path: Path) -> None:
    newer = shutil.copytree(bundle, tmp_path / "newer")
    resign(newer, lambda record: record.update(serial=SERIAL + 1))
    open_device(bundle, tmp_path / "s")
    with pytest.raises(InputError, match="is the state of bundle"):
        open_device(newer, tmp_path / "s")
    assert NewestSeen.of(tmp_path / "s").serial == SERIAL, "a bundle that was not taken says nothing"
    open_device(newer, tmp_path / "s", renew=True)
    before = (tmp_path / "s" / STATE).read_bytes()
    for renew in (False, True):
        with pytest.raises(InputError, match=rf"older than one before it \(serial {SERIAL}, {SERIAL + 1} was seen"):
            open_device(bundle, tmp_path / "s", renew=renew)
    assert (tmp_path / "s" / STATE).read_bytes() == before


def test_an_update_older_than_one_that_was_undone_is_refused(tmp_path: Path) -> None:
    device = open_device(bundles.bundle("fedmf"), tmp_path)
    device.apply(update(device, 5))
    device.undo()
    assert device.status()["round"] == bundles.ROUND - 1
    with pytest.raises(InputError, match="goes to round 4, but 5 was seen here; fetch the newest; nothing was changed"):
        device.apply(update(device, 4))
    device.apply(update(device, 5))
    assert device.status()["round"] == 5


def test_no_round_number_silences_a_device_for_good(tmp_path: Path) -> None:
    """A device waits for the round after its own: after one of a billion it would wait for ever."""
    device = open_device(bundles.bundle("fedmf"), tmp_path)
    before = (tmp_path / STATE).read_bytes()
    for far in (10**9 - 1, bundles.ROUND - 1 + MOST_AHEAD + 1):
        with pytest.raises(InputError, match=f"goes to round {far}, more than 10,000 after the 1 of this device"):
            device.apply(update(device, far))
    assert (tmp_path / STATE).read_bytes() == before
    device.apply(update(device, bundles.ROUND - 1 + MOST_AHEAD))
    device.undo()
    device.apply(update(device, bundles.ROUND - 1 + MOST_AHEAD))
    assert device.status()["round"] == 10_001


@pytest.mark.parametrize("how", ["unsigned", "another's", "in memory"])
def test_no_update_comes_to_a_device_but_its_publishers(how: str, tmp_path: Path) -> None:
    """Whatever its policy allows: who has a key asks for its signature."""
    device = open_device(bundles.bundle("fedmf"), tmp_path / "s")
    before = device.state.digest()
    found = update(device, 3, signed_by=None)
    if how != "in memory":
        path = write_delta(tmp_path / "update.safetensors", found)
        generate(tmp_path / "keys")
        if how == "another's":
            sign_delta(path, tmp_path / "keys" / "private.pem")
        found = read_delta(path, device.learning)  # with no key asked for
    with pytest.raises(InputError, match=r"signed by (nobody|key \w{16}\.\.\.), and this device takes its publisher's"):
        device.apply(found)
    assert device.state.digest() == before
    device.apply(update(device, 3))


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 4000, b'{"schema": "edgefr.seen/1", "serial": -1}'])
def test_a_damaged_memory_is_refused_and_says_what_to_do(content: bytes, tmp_path: Path) -> None:
    open_device(bundles.bundle("fedmf"), tmp_path)
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(InputError, match=r"seen\.json is damaged, .*restore it, or remove it to begin anew"):
        open_device(bundles.bundle("fedmf"), tmp_path)


def test_what_was_seen_only_grows(tmp_path: Path) -> None:
    note(tmp_path, serial=7, seconds=100, reached=("a" * 64, 5))
    note(tmp_path, serial=6, seconds=99, reached=("a" * 64, 4))
    found = note(tmp_path)
    assert (found.serial, found.seconds, found.round_of("a" * 64), found.round_of("b" * 64)) == (7, 100, 5, 0)
    assert note(tmp_path, reached=("b" * 64, 2)).round_of("b" * 64) == 2


@pytest.mark.parametrize("first", ["time", "keys"])
def test_what_two_processes_note_at_once_is_all_there(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has read the file and is about to write it when the other notes a newer bundle: nothing is put back."""
    keys = KeySet(version=2, threshold=1, keys=["0" * 64], before="0" * 64)
    said = {"time": {"serial": 3, "seconds": 60}, "keys": {"keys": keys}}[first]
    other = Thread(target=note, args=(tmp_path,), kwargs={"serial": 9, "reached": ("b" * 64, 5)})

    def late(path: Path, content: bytes, mode: int) -> Path:
        if not other.ident:
            other.start()
            other.join(0.3)
        return write_atomic(path, content, mode=mode)

    monkeypatch.setattr(seen, "write_atomic", late)
    note(tmp_path, **said)  # type: ignore[arg-type]
    other.join(30)
    found = NewestSeen.of(tmp_path)
    assert (found.serial, found.bundle, found.round) == (9, "b" * 64, 5)
    assert (found.seconds, found.keys) == ((60, None) if first == "time" else (0, keys))


def test_who_takes_the_states_lock_leaves_alone_what_is_being_noted(bundle: Path, tmp_path: Path) -> None:
    store = open_device(bundle, tmp_path / "s").store
    noted, other = (store.folder / f".{name}.1234.part" for name in (NAME, STATE))
    for left in (noted, other):
        left.write_bytes(b"")
    with store.locked():
        assert (noted.exists(), other.exists()) == (True, False)
    note(store.folder, serial=SERIAL)
    assert not noted.exists()


def test_opening_a_device_drops_nothing_that_another_process_sets_aside_meanwhile(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_device(bundle, tmp_path / "s")
    settled = Store.settled.fget  # type: ignore[attr-defined]

    def then_updated(store: Store) -> bool:
        found: bool = settled(store)
        device.store.set_aside()
        return found

    monkeypatch.setattr(Store, "settled", property(then_updated))
    open_device(bundle, tmp_path / "s")
    assert (tmp_path / "s" / EARLIER).exists()


def test_the_second_of_expiry_is_too_late_by_what_was_seen_as_by_the_clock(bundle: Path) -> None:
    early = datetime(2026, 1, 1, tzinfo=UTC)
    assert open_on(bundle, AdmissionTerms(now=early, since=ENDS - timedelta(seconds=1))).manifest.serial == SERIAL
    with pytest.raises(InputError, match="the clock has been set back"):
        open_on(bundle, AdmissionTerms(now=early, since=ENDS))


def test_a_process_that_holds_the_file_is_waited_for_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "WAIT_S", 0.05)
    handle = hold(tmp_path / LOCK)
    with pytest.raises(InputError, match=r"seen\.lock is in use by another process"):
        note(tmp_path, serial=1)
    os.close(handle)
    assert note(tmp_path, serial=1).serial == 1


def test_rounds_under_an_older_bundle_do_not_take_the_place_of_the_newest_ones(tmp_path: Path) -> None:
    note(tmp_path, serial=7, reached=("b" * 64, 5))
    note(tmp_path, serial=6, reached=("a" * 64, 0))
    assert NewestSeen.of(tmp_path).round_of("b" * 64) == 5
