"""A device goes on under a newer bundle of its lineage, wholly or not at all, and back until it has learned there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.device import Device
from edge.enrol import Carried
from edge.rollback import NewestSeen
from edge.state import EARLIER, STATE, Store
from export.sign import generate, sign_bundle
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import ITEMS
from tests.devices import open_device
from tests.edge.folders import edit_json, edit_tensors, resign
from tests.edge.test_life import Killed, killed_before

SERIAL = 1795255200
OWN = ["i3", "i9", "i0", "i41"]


def newer(folder: Path, change: Callable[[dict[str, Any]], object] = lambda record: None) -> Path:
    """A bundle of a day later: its items in the reverse order, the first of them gone, and one that is new."""
    made = shutil.copytree(bundles.bundle("fedmf", replay=True), folder)
    file = made / json.loads((made / "manifest.json").read_text())["ids_file"]

    def reversed_items(record: dict[str, Any]) -> None:
        record["ids"] = ["new" if item == "i0" else item for item in reversed(record["ids"])]

    edit_json(file, reversed_items)
    shift_tables(made)

    def later(record: dict[str, Any]) -> None:
        record["serial"] = SERIAL + 86400
        change(record)

    resign(made, later)
    return made


def shift_tables(bundle: Path) -> None:
    """Other values of every shared table, in the items' new order."""
    for path in bundle.rglob("*.npy"):
        np.save(path, np.load(path)[::-1] + np.float32(0.25))


def lived(folder: Path) -> Device:
    """A device that has learned, remembers a block, and has begun another."""
    device = open_device(bundles.bundle("fedmf", replay=True), folder, user=bundles.user(7))
    device.learn(OWN[:2])
    device.next_block()
    device.note(OWN[2:])
    return device


def test_what_a_device_has_learned_goes_on_and_items_are_known_by_their_ids(tmp_path: Path) -> None:
    device, bundle = lived(tmp_path / "s"), newer(tmp_path / "newer")
    before, old = device.state, device.catalogue
    assert device.update(bundle) == Carried(kept=3, gone=1)
    after = open_device(bundle, tmp_path / "s")
    state, new = after.state, after.catalogue
    assert [new.ids[item] for item in state.tensors["items.past"]] == ["i3", "i9"]
    assert [new.ids[item] for item in state.tensors["items.own"]] == ["i41"], "i0 is gone"
    assert state.tensors["items.own"].tolist() == [ITEMS - 1 - 41]
    remembered = [old.ids[item] for item in before.tensors["memory.items"]]
    kept = np.array([item != "i0" for item in remembered])
    assert [new.ids[item] for item in state.tensors["memory.items"]] == [i for i in remembered if i != "i0"]
    np.testing.assert_array_equal(state.tensors["memory.labels"], before.tensors["memory.labels"][kept])
    for part in ("private", "ledger"):
        assert before.part(part).keys() == state.part(part).keys()
        for name, value in before.part(part).items():
            np.testing.assert_array_equal(state.part(part)[name], value)
    assert state.part("private")["user"].any()
    np.testing.assert_array_equal(state.tensors["table.item"], before_of(bundles.bundle("fedmf", replay=True)))
    assert (state.facts["number"], state.facts["user"], state.facts["block"]) == (before.facts["number"], "u7", 1)
    assert {"i3", "i9", "i41"}.isdisjoint(item for item, *_ in after.recommend(ITEMS))
    assert "new" in {item for item, *_ in after.recommend(ITEMS)}
    number = after.learn().round
    assert number == bundles.ROUND
    assert after.state.tensors["ledger.round"].tolist() == [bundles.ROUND, bundles.ROUND]


def before_of(bundle: Path) -> np.ndarray:
    """The item table that the newer bundle has, by hand."""
    return np.load(bundle / "index" / "item.f32.npy")[::-1] + np.float32(0.25)


def test_it_can_be_undone_until_the_device_has_learned_there(tmp_path: Path) -> None:
    old, bundle = bundles.bundle("fedmf", replay=True), newer(tmp_path / "newer")
    device = lived(tmp_path / "s")
    before = device.state
    device.update(bundle)
    open_device(bundle, tmp_path / "s").undo()
    assert open_device(old, tmp_path / "s").state.digest() == before.digest()
    assert not (tmp_path / "s" / EARLIER).exists()
    device.update(bundle)
    after = open_device(bundle, tmp_path / "s")
    assert (tmp_path / "s" / EARLIER).stat().st_mode & 0o777 == 0o600
    assert NewestSeen.of(tmp_path / "s").serial == SERIAL, "or nobody could go back"
    after.learn()
    assert not (tmp_path / "s" / EARLIER).exists()
    assert NewestSeen.of(tmp_path / "s").serial == SERIAL + 86400
    with pytest.raises(InputError, match=r"no update of this bundle to go back from|cannot read"):
        after.undo()
    with pytest.raises(InputError, match="is older than one before it"):
        open_device(old, tmp_path / "s")


def test_going_back_forgets_no_release(tmp_path: Path) -> None:
    """As where a process was killed between the first release and forgetting the state before."""
    device, bundle = lived(tmp_path / "s"), newer(tmp_path / "newer")
    device.update(bundle)
    aside = (tmp_path / "s" / EARLIER).read_bytes()
    after = open_device(bundle, tmp_path / "s")
    after.learn()
    (tmp_path / "s" / EARLIER).write_bytes(aside)
    after.undo()
    assert Store(tmp_path / "s").read().tensors["ledger.round"].tolist() == [bundles.ROUND, bundles.ROUND]


def test_an_update_that_is_cut_off_leaves_one_state_or_the_other(tmp_path: Path) -> None:
    bundle, old = newer(tmp_path / "newer"), bundles.bundle("fedmf", replay=True)
    device = lived(tmp_path / "s")
    before, went_on = device.state.digest(), []
    for operation in range(40):
        shutil.rmtree(tmp_path / "t", ignore_errors=True)
        shutil.copytree(tmp_path / "s", tmp_path / "t")
        device.store = Store(tmp_path / "t")
        try:
            with killed_before(operation):
                device.update(bundle)
        except Killed:
            state = Store(tmp_path / "t").read()
            went_on.append(state.facts["bundle"] != device.bundle.manifest.bundle_id)
            assert went_on[-1] or state.digest() == before
            continue
        break
    assert len(went_on) > 5, "nothing was cut off"
    assert not went_on[0]
    assert open_device(old, tmp_path / "s").state.digest() == before


def _private(bundle: Path) -> None:
    """Make the private vectors of a bundle one value wider."""
    edit_json(bundle / "config.json", _wider)
    edit_tensors(bundle / json.loads((bundle / "config.json").read_text())["init"], _widen)
    config = json.loads((bundle / "config.json").read_text())
    if config["private"]:
        edit_tensors(bundle / config["private"], _widen)


def _wider(config: dict[str, Any]) -> None:
    for tensor in config["learning"]["tensors"]:
        if tensor["name"] == "user":
            tensor["shape"] = [9]


def _widen(tensors: dict[str, np.ndarray]) -> None:
    name = next(name for name in tensors if name.rpartition(".")[2] == "user")
    tensors[name] = np.zeros((*tensors[name].shape[:-1], 9), np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(method="fedncf"), r"not of the lineage .*\(method: fedncf, not fedmf\)"),
        (lambda record: record["provenance"].update(experiment="films"), r"\(experiment: films, not None\)"),
        (lambda record: record.update(serial=SERIAL - 1), "is older than"),
    ],
)
def test_what_does_not_follow_is_refused(change: Callable[..., object], words: str, tmp_path: Path) -> None:
    device, bundle = lived(tmp_path / "s"), newer(tmp_path / "newer", change)
    before = (tmp_path / "s" / STATE).read_bytes()
    with pytest.raises(InputError, match=words):
        device.update(bundle)
    with pytest.raises(InputError, match="is the bundle that this device has already"):
        device.update(bundles.bundle("fedmf", replay=True))
    assert (tmp_path / "s" / STATE).read_bytes() == before
    assert not (tmp_path / "s" / EARLIER).exists()


def test_other_shapes_and_other_publishers_are_refused(tmp_path: Path) -> None:
    device, bundle = lived(tmp_path / "s"), newer(tmp_path / "newer")
    before = (tmp_path / "s" / STATE).read_bytes()
    _private(bundle)
    resign(bundle)
    with pytest.raises(
        InputError, match=r"has private user as \[9\], this device as \[8\]: .*begin anew under it with --renew"
    ):
        device.update(bundle)
    generate(tmp_path / "keys")
    sign_bundle(bundle, tmp_path / "keys" / "private.pem")
    with pytest.raises(InputError, match=r"has trusted key \w{16}\.\.\. since its first use"):
        device.update(bundle)
    assert (tmp_path / "s" / STATE).read_bytes() == before
