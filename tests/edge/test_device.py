"""A device's life: it learns, takes updates, remembers, explains; what is wrong is refused and changes nothing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge import local_work
from edge import release as releasing
from edge.bundle import open_bundle
from edge.delta import Delta
from edge.device import Device
from edge.policy import NAME, Policy
from edge.release import Withheld
from edge.state import LEDGER, STATE, State, Store
from edge.update import ClientUpdate, read_update
from privacy import keyed
from privacy.clip import joint_norms
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import ITEMS, interactions
from tests.devices import open_device

CLIENT = 7


def made(folder: Path, variant: str = "fedmf", **options) -> Device:
    return open_device(bundles.bundle(variant), folder, user=bundles.user(CLIENT), **options)


def delta(device: Device, to_round: int, from_round: int | None = None, **changes) -> Delta:
    """An update that moves some rows of the item table."""
    items = keyed.choose(to_round, np.arange(ITEMS), 5)
    values = keyed.normal(keyed.fold(to_round, items)[:, None], np.arange(8)).astype(np.float32)
    start = device.learning.round if from_round is None else from_round
    manifest, signed_by = device.bundle.manifest, device.bundle.signed_by
    base = {"base_digest": manifest.bundle_id, "rows": {"item": (items, values)}, "signed_by": signed_by}
    return Delta(from_round=start, to_round=to_round, **(base | changes))


def test_a_round_trip(tmp_path: Path) -> None:
    own = interactions()[CLIENT]
    device = made(tmp_path)
    first = device.learn(own)
    assert first.round == bundles.ROUND
    assert device.status()["waiting_release"] == bundles.ROUND
    device.apply(delta(device, bundles.ROUND))
    assert device.status()["round"] == bundles.ROUND
    second = device.learn()
    assert second.round == bundles.ROUND + 1
    assert not np.array_equal(first.rows["item"][1], second.rows["item"][1])
    had = {f"i{item}" for item in own}
    shown = device.recommend(5)
    assert len(shown) == 5
    assert not had & {item for item, _, _ in shown}
    assert [score for *_, score in shown] == sorted((score for *_, score in shown), reverse=True)
    assert {item for item, *_ in device.nearest(shown[0][0], 2)} <= had
    assert device.status()["releases"] == 2


def test_undoing_an_update_forgets_no_release(tmp_path: Path) -> None:
    device = made(tmp_path)
    device.learn(interactions()[CLIENT])
    device.apply(delta(device, bundles.ROUND))
    device.learn(["i1", "i2"])
    device.undo()
    status = device.status()
    assert (status["round"], status["releases"]) == (bundles.ROUND - 1, 2)
    assert status["interactions"] == len(set(interactions()[CLIENT].tolist()) | {1, 2})


NOISED = {"clip": 1.0, "noise": "discrete-gaussian", "scale": 0.25, "step": 2.0**-15, "noised": "here"}


def first_values(path: Path) -> int:
    """Return how many values an update of a bundle's devices has."""
    learning = open_bundle(path).config.learning
    assert learning is not None
    return learning.uploaded


@pytest.mark.parametrize("count", [0, 1, 6, 20])
def test_an_update_of_which_something_is_promised_tells_nothing_of_how_much_there_was(
    tmp_path: Path, count: int
) -> None:
    """As many bytes, the same header and the same facts, whether there was much to learn from, little, or nothing."""
    path, everything = bundles.bundle("fedmf", **NOISED), np.arange(20)
    many = open_device(path, tmp_path / "many").learn(everything).to_bytes()
    few = open_device(path, tmp_path / "few").learn(everything[:count]).to_bytes()
    size = 8 + int.from_bytes(many[:8], "little")
    assert few[:size] == many[:size]
    assert len(few) == len(many)
    assert few[size:] != many[size:]


def test_who_learns_for_itself_draws_no_noise_and_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(bundles.bundle("fedmf", **NOISED), tmp_path, policy=Policy(signed=False))
    monkeypatch.setattr("privacy.mechanism.Noise.exact", lambda *asked: pytest.fail("nothing was to leave"))
    before = device.state.part("private")["user"]
    device.practise(np.arange(6))
    assert not np.array_equal(device.state.part("private")["user"], before)
    assert (device.work["steps"] > 0, device.status()["releases"]) == (True, 0)


def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have training come to values that are no numbers."""
    trained = local_work.train

    def diverged(*given: Any) -> Any:
        found = trained(*given)
        return replace(found, dense={name: value * np.nan for name, value in found.dense.items()})

    monkeypatch.setattr(local_work, "train", diverged)


def test_a_diverged_update_is_noise_and_nothing_but_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundles.bundle("fedmf", **NOISED)
    device = open_device(path, tmp_path)
    before = device.state.part("private")
    diverging(monkeypatch)
    release = device.learn(np.arange(6))
    assert device.work["dropped"]
    assert len(release.update) == first_values(path)
    assert np.std(release.update) == pytest.approx(2.0**13, rel=0.2)
    for name, value in before.items():
        np.testing.assert_array_equal(device.state.part("private")[name], value)


def test_personal_training_that_diverges_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device(bundles.bundle("fedrecon"), tmp_path)
    device.personalise(np.arange(6))
    shown, before = device.recommend(3), (tmp_path / STATE).read_bytes()
    diverging(monkeypatch)
    with pytest.raises(InputError, match="training has diverged: values are not finite; nothing was changed"):
        device.personalise([7])
    assert (tmp_path / STATE).read_bytes() == before
    assert device.recommend(3) == shown


def test_a_device_stops_by_itself_whatever_a_server_asks(tmp_path: Path) -> None:
    """Two hundred rounds of a hostile server: what left never cost more than the policy lets it."""
    path = bundles.promising("fedmf", epsilon=1.0, rounds=4)
    device, asked = Device(path, tmp_path, policy=Policy(signed=False, epsilon=1.5)), 0
    device.note(np.arange(5))
    for number in range(bundles.ROUND, bundles.ROUND + 200):
        try:
            device.learn()
            asked += 1
        except Withheld:
            pass
        assert device.status()["epsilon"] <= 1.5
        device.apply(delta(device, number))
    assert asked == device.status()["releases"]
    assert 4 <= asked < 12
    assert "epsilon" in str(device.status()["withheld"])
    strict = Device(path, tmp_path / "strict", policy=Policy(signed=False, epsilon=1.5, least_noise=1e6))
    with pytest.raises(Withheld, match="policy least_noise"):
        strict.learn(np.arange(5))
    assert strict.status()["releases"] == 0


def test_the_ledger_of_a_device_goes_on_under_the_next_bundle(tmp_path: Path) -> None:
    """A publisher who hands out a bundle a day spends the same epsilon, not a new one every day."""
    policy, left = Policy(signed=False, epsilon=1.5), 0
    for days, rounds in enumerate((4, 5, 6, 7, 8, 9, 10)):
        path = bundles.promising("fedmf", epsilon=1.0, rounds=rounds)
        if days:
            with pytest.raises(InputError, match=r"go on under this one with .* or --renew"):
                Device(path, tmp_path, policy=policy).learn()
        device = Device(path, tmp_path, policy=policy, renew=True)
        if not days:
            device.note(np.arange(5))
        assert device.status()["interactions"] == 5, "the catalogue is the same"
        with suppress(Withheld):
            for number in range(bundles.ROUND, bundles.ROUND + 9):
                device.learn()
                left += 1
                device.apply(delta(device, number))
        assert device.status()["releases"] == left
        assert device.status()["epsilon"] <= 1.5
    assert "epsilon" in str(device.status()["withheld"])


def test_by_default_nothing_leaves_that_nothing_is_promised_for(tmp_path: Path) -> None:
    """The device learns from it all the same, and says why."""
    device = Device(bundles.bundle("fedmf"), tmp_path)
    device.note(np.arange(5))
    before = device.state.part("private")["user"]
    with pytest.raises(Withheld, match=r"nothing leaves this device: policy unprotected: .*unprotected: true"):
        device.learn()
    assert device.status()["releases"] == 0
    device.practise()
    assert not np.array_equal(device.state.part("private")["user"], before)
    assert (device.status()["releases"], device.status()["waiting_release"]) == (0, None)
    (tmp_path / NAME).write_text("unprotected: true\n")
    assert Device(bundles.bundle("fedmf"), tmp_path).learn().round == bundles.ROUND


def test_undoing_an_update_releases_no_round_a_second_time(tmp_path: Path) -> None:
    """The release that waited before the update is handed out again; that made after it is gone, and not made anew."""
    path = bundles.bundle("fedmf", **NOISED)
    device = open_device(path, tmp_path, user=bundles.user(CLIENT))
    first = device.learn(interactions()[CLIENT])
    device.apply(delta(device, bundles.ROUND))
    device.learn()
    device.undo()
    assert device.learn().to_bytes() == first.to_bytes()
    device.apply(delta(device, bundles.ROUND))
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(InputError, match=rf"round {bundles.ROUND + 1} was released before .*; take the server's next"):
        device.learn(["i1"])
    assert (tmp_path / STATE).read_bytes() == before
    assert device.status()["releases"] == 2
    device.apply(delta(device, bundles.ROUND + 1))
    assert device.learn().round == bundles.ROUND + 2


def test_an_update_that_is_older_than_the_device_changes_nothing(tmp_path: Path) -> None:
    """Also one that starts from what the bundle brought, which a device can take from any round before."""
    device = made(tmp_path)
    device.apply(delta(device, 4))
    before = (tmp_path / STATE).read_bytes()
    for to_round in (bundles.ROUND, 3, 4):
        with pytest.raises(InputError, match=f"from round 1 to {to_round}, but this device is at round 4"):
            device.apply(delta(device, to_round))
    assert (tmp_path / STATE).read_bytes() == before


def test_a_block_without_interactions_keeps_the_memory(tmp_path: Path) -> None:
    device = open_device(bundles.bundle("fedmf", replay=True), tmp_path, user=bundles.user(CLIENT))
    device.learn(interactions()[CLIENT])
    device.next_block()
    kept = device.state.tensors["memory.items"]
    device.apply(delta(device, bundles.ROUND))
    device.next_block()
    np.testing.assert_array_equal(device.state.tensors["memory.items"], kept)
    assert device.status()["block"] == 2


def test_a_round_is_released_once(tmp_path: Path) -> None:
    """Asked again, also after a restart and with the device's own noise, the same bytes leave."""
    path = bundles.bundle("fedmf", **NOISED)
    first = open_device(path, tmp_path, user=bundles.user(CLIENT)).learn(interactions()[CLIENT])
    again = open_device(path, tmp_path).learn()
    assert first.to_bytes() == again.to_bytes()
    assert open_device(path, tmp_path).status()["releases"] == 1
    assert len(first.update) == first_values(path), "noise on the touched rows alone would tell which they are"
    other = open_device(path, tmp_path / "other", user=bundles.user(CLIENT)).learn(interactions()[CLIENT])
    assert not np.array_equal(first.update, other.update), "its noise must not be foreseeable"


def test_a_clipped_update_is_no_longer_than_the_bound(tmp_path: Path) -> None:
    path = bundles.bundle("transfr vector", clip=0.01)
    device = open_device(path, tmp_path, user=bundles.user(CLIENT))
    release = device.learn(interactions()[CLIENT])
    assert device.work["clipped"]
    assert joint_norms([release.update[None]], "l2")[0] <= 0.01


def test_noise_on_the_device_has_its_scale(tmp_path: Path) -> None:
    terms = {**NOISED, "clip": 2.0**-30, "step": 2.0**-30, "noise": "discrete-laplace", "scale": 2.0**-10}
    path = bundles.bundle("fedmf", **terms)
    release = open_device(path, tmp_path, user=bundles.user(CLIENT)).learn(interactions()[CLIENT])
    values = release.update * 2.0**-19
    assert abs(np.abs(values).mean() / 2.0 - 1) < 5 / np.sqrt(values.size)  # E|x| of a Laplace is its scale


@pytest.mark.parametrize("limits", [{"max_seconds": 1e-9}, {"max_ram_mb": 1}])
def test_training_stops_between_steps_and_the_state_stays_whole(tmp_path: Path, limits: dict) -> None:
    device = made(tmp_path, **limits)
    before = device.state.part("private")
    release = device.learn(interactions()[CLIENT])
    assert (device.work["steps"], device.work["stopped"]) == (
        0,
        next(iter(limits)).rpartition("_")[2].replace("seconds", "time").replace("mb", "memory"),
    )
    assert not any(np.abs(values).max(initial=0) for _, values in release.rows.values())
    np.testing.assert_array_equal(device.state.part("private")["user"], before["user"])


def test_a_release_is_read_back_and_only_from_its_own_bundle(tmp_path: Path) -> None:
    device = made(tmp_path)
    release = device.learn(interactions()[CLIENT])
    own = device.bundle.manifest.bundle_id
    back = read_update(release.to_bytes(), device.learning, own)
    assert back.to_bytes() == release.to_bytes()
    for content in (b"", b"x" * 100, release.to_bytes()[:-1], (2**40).to_bytes(8, "little") + b"{}"):
        with pytest.raises(InputError, match="not a release of this bundle"):
            read_update(content, device.learning, own)
    with pytest.raises(InputError, match="not a release of this bundle"):
        read_update(release.to_bytes(), device.learning, "0" * 64)
    items, values = release.rows["item"]
    for rows in (
        (items[::-1].copy(), values),
        (items, values[:, :3]),
        (items + ITEMS, values),
        (items, values * np.nan),
    ):
        broken = ClientUpdate(**(vars(release) | {"rows": {"item": rows}}))
        with pytest.raises(InputError, match="not a release of this bundle"):
            read_update(broken.to_bytes(), device.learning, own)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_digest": "0" * 64}, "is of bundle 000000000000, not of this one"),
        (
            {"rows": {"item": (np.array([ITEMS]), np.zeros((1, 8), np.float32))}},
            "the update does not fit: rows.item",
        ),
        ({"rows": {"other": (np.array([0]), np.zeros((1, 8), np.float32))}}, "the update does not fit: rows.other"),
        ({"rows": {"item": (np.array([0]), np.zeros((1, 9), np.float32))}}, "the update does not fit: rows.item"),
        ({"dense": {"adapter": np.zeros(3, np.float32)}, "rows": {}}, "the update does not fit: dense.adapter is"),
        ({"rows": {"item": (np.array([0]), np.full((1, 8), np.nan, np.float32))}}, "not finite"),
    ],
)
def test_an_update_that_does_not_fit_changes_nothing(tmp_path: Path, change: dict, message: str) -> None:
    device = made(tmp_path)
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(InputError, match=message):
        device.apply(delta(device, bundles.ROUND, **change))
    assert (tmp_path / STATE).read_bytes() == before


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "nothing to learn from"),
        (["i1", "nosuch"], "unknown item 'nosuch'"),
        ([ITEMS], "outside the catalogue"),
        ("i1", "must be a list"),
        ([True], "an item is an id"),
    ],
)
def test_interactions_that_do_not_fit_change_nothing(tmp_path: Path, items, message: str) -> None:
    device = made(tmp_path)
    before = (tmp_path / STATE).read_bytes()
    with pytest.raises(InputError, match=message):
        device.learn(items)
    assert (tmp_path / STATE).read_bytes() == before


def test_a_state_belongs_to_one_bundle_and_one_user(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(InputError, match="is the state of bundle"):
        open_device(bundles.bundle("fedncf"), tmp_path)
    with pytest.raises(InputError, match="is the state of user 'u7', not 'u3'"):
        open_device(bundles.bundle("fedmf"), tmp_path, user="u3")


@pytest.mark.parametrize("harm", [b"", b"{}" * 40, "flip", "gone"])
def test_a_damaged_state_is_undone_without_forgetting_a_release(tmp_path: Path, harm: bytes | str) -> None:
    device = made(tmp_path)
    device.learn(interactions()[CLIENT])
    device.apply(delta(device, bundles.ROUND))
    device.learn(["i1", "i2"])
    path = tmp_path / STATE
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(harm if isinstance(harm, bytes) else content)
    if harm == "gone":
        path.unlink()
    again = made(tmp_path)
    with pytest.raises(InputError, match=r"is not a device's state|cannot read"):
        again.status()
    again.undo()
    status = again.status()
    assert (status["round"], status["releases"]) == (bundles.ROUND - 1, 2)
    again.apply(delta(again, bundles.ROUND))
    with pytest.raises(InputError, match="no round is released twice"):
        again.learn(["i3"])


def test_a_state_whose_ledger_is_damaged_too_releases_nothing_more(tmp_path: Path) -> None:
    device = made(tmp_path)
    device.learn(interactions()[CLIENT])
    device.apply(delta(device, bundles.ROUND))
    for name in (STATE, LEDGER):
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(InputError, match="can no longer be counted, so nothing more may be; give a new --state"):
        made(tmp_path).undo()
    with pytest.raises(InputError, match="is not a device's state"):
        made(tmp_path).learn(["i1"])


def test_one_process_at_a_time(tmp_path: Path) -> None:
    device = made(tmp_path)
    with Store(tmp_path).locked(), pytest.raises(InputError, match="in use by another process"):
        device.learn(interactions()[CLIENT])


def live(folder: Path, rounds: int) -> None:
    """A device's life from wherever it is, in a process that may be killed at any moment."""
    device = made(folder)
    while device.state.facts["round"] < bundles.ROUND + rounds:
        number = device.state.facts["round"] + 1
        device.learn(interactions()[CLIENT])
        device.apply(delta(device, number, from_round=number - 1))


@pytest.mark.slow
def test_kill_at_any_moment_leaves_a_whole_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "time", SimpleNamespace(time=lambda: 1_900_000_000))  # which ledgers note
    rounds, kills, moments = 40, 0, random.Random(3)
    live(tmp_path / "whole", rounds)
    while True:
        child = os.fork()
        if child == 0:
            try:
                live(tmp_path / "killed", rounds)
            finally:
                os._exit(0)
        time.sleep(moments.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break
        kills += 1
        if Store(tmp_path / "killed").exists:
            Store(tmp_path / "killed").read()
        if kills > 400:
            live(tmp_path / "killed", rounds)
            break
    assert kills >= 20, "the children lived too long to be killed: nothing was tested"
    assert Store(tmp_path / "killed").read().digest() == Store(tmp_path / "whole").read().digest()
    shutil.rmtree(tmp_path)


def test_what_is_near_is_told_by_vectors_and_never_by_numbers_of_tokens(tmp_path: Path) -> None:
    """A device that reads texts itself has its catalogue's tokens for a first table, and vectors beside them."""
    device = open_device(bundles.bundle("transfr lora"), tmp_path)
    device.note([3, 5, 7])
    rows = device._model.rows(device.state)
    assert next(iter(rows)) == "tokens"
    one, own = (np.asarray(rows["vectors"](np.array(items)), float) for items in ([9], [3, 5, 7]))
    cosines = own @ one[0] / (np.linalg.norm(own, axis=1) * np.linalg.norm(one))
    found = device.nearest(9, 3)
    assert [item for item, *_ in found] == [f"i{(3, 5, 7)[place]}" for place in np.argsort(-cosines)]
    np.testing.assert_allclose([value for *_, value in found], np.sort(cosines)[::-1], rtol=1e-6)
    device._model.rows = lambda state: {"tokens": rows["tokens"]}  # type: ignore[method-assign]
    with pytest.raises(InputError, match="has no rows of items to compare"):
        device.nearest(9, 3)


def test_no_file_of_a_state_is_written_in_place(tmp_path: Path) -> None:
    """Another name of the old file keeps what was in it; what is there now is of the owner alone."""
    store, names = Store(tmp_path / "state"), ("state", "previous", "earlier", "ledger")

    def write(number: int) -> None:
        state = State({"round": number}, {"ledger.round": np.arange(number)})
        with store.locked():
            store.write(state, keep_previous=True)
            store.set_aside()

    write(1)
    write(2)
    files = [store.folder / f"{name}.safetensors" for name in names]
    kept = [(file, tmp_path / file.name, file.read_bytes()) for file in files]
    for file, other, _ in kept:
        os.link(file, other)
    write(3)
    for file, other, content in kept:
        assert other.read_bytes() == content != file.read_bytes(), file.name
        assert file.stat().st_mode & 0o777 == 0o600, file.name
