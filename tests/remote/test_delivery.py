"""A device fetches its bundle from its server, and the next one, as if it came from a disk: whole, signed, or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import edgefr
from edge import fetch as fetching
from edge.bundle import Bundle, open_bundle
from edge.connection import Server as Remote
from edge.device import Device
from edge.fetch import fetch
from edge.manifest import MANIFEST, SIGNATURE, canonical, identify
from edge.policy import OPEN
from edge.remote import join
from edge.rollback import NAME as SEEN
from edge.signature import key_id
from edgefr.serving.broker import RoundBroker
from edgefr.serving.delivery import Delivery
from edgefr.serving.keys import Keys
from edgefr.serving.origin import Origin
from edgefr.serving.serve import serve
from edgefr.serving.server import Access, Server, listening
from edgefr.simulation.bundles import export_run
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.served_tensors import ServedTensors
from export.sign import public_pem, signature_of
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import interactions, program
from tests.export import worlds
from tests.remote.test_server import CLIENT, NUMBER, QUICK, USER, Broker
from tests.remote.worlds import CLASS, Twins, fedmf, known, serving, session, take_part

OTHER = bundles.user(0)
ANOTHERS = Ed25519PrivateKey.from_private_bytes(bytes(32))


@dataclass
class Shop:
    """A server with a bundle for one user, none for the other, and that user's device."""

    source: Path
    folder: Path
    server: Server
    remote: Remote

    @property
    def target(self) -> Path:
        return self.folder / "fetched"

    @property
    def state(self) -> Path:
        return self.remote.identity.folder

    def put(self, bundle: Path) -> None:
        """Hand out this bundle from now on, whatever is wrong with it."""
        object.__setattr__(self.server.pages, "delivery", given(bundle, USER))

    def asks(self) -> list[int]:
        """Have the device note how many bytes it asks for, from now on."""
        asked: list[int] = []
        inner = self.remote.piece

        def piece(sha256: str, start: int, stop: int) -> bytes:
            asked.append(stop - start)
            return inner(sha256, start, stop)

        object.__setattr__(self.remote, "piece", piece)
        return asked


def unsigned(path: Path) -> Bundle:
    """A bundle whatever it says, as a hostile server has it."""
    from edge.manifest import Config, Manifest

    manifest = Manifest.model_validate_json((path / MANIFEST).read_bytes())
    return Bundle(path, manifest, Config.model_validate_json((path / "config.json").read_bytes()))


def given(path: Path, user: str) -> Delivery:
    return Delivery.of([(unsigned(path), [user])])


def nobodys(folder: Path) -> Path:
    """A bundle of FedMF that carries nobody, for one to change."""
    return Path(shutil.copytree(_nobodys(), folder))


@cache
def _nobodys() -> Path:
    out = bundles.fresh()
    bundles.write(out, program("fedmf"), bundles.LEARNING, with_users=False)
    return out / bundles.CLASS


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    source = nobodys(tmp_path / "source")
    origin = Origin.of(open_bundle(source), bundles.USERS)
    origin_bundles = dict.fromkeys(origin.users.values(), origin.bundle)
    broker = RoundBroker(origin_bundles, origin.learning, origin.items)
    broker.open(NUMBER, {origin.bundle: b""}, [USER])
    with listening(broker, Keys(tmp_path), Access(), given(source, USER)) as server:
        identity = known(Run(tmp_path), tmp_path / "device", USER)
        yield Shop(source, tmp_path, server, Remote(server.url, identity, patience=QUICK))


def same(one: Path, two: Path) -> None:
    files = {path.relative_to(one): path.read_bytes() for path in one.rglob("*") if path.is_file()}
    assert files == {path.relative_to(two): path.read_bytes() for path in two.rglob("*") if path.is_file()}


def changed(path: Path, key: Ed25519PrivateKey | None = worlds.KEY, **fields: object) -> Path:
    """A bundle with another manifest, right in itself; signed, unless nobody does."""
    manifest = unsigned(path).manifest.model_copy(update=fields)
    manifest = manifest.model_copy(update={"bundle_id": identify(manifest)})
    (path / MANIFEST).write_bytes(canonical(manifest))
    (path / SIGNATURE).unlink(missing_ok=True)
    if key is not None:
        (path / SIGNATURE).write_bytes(signature_of("bundle", canonical(manifest), key))
    return path


# --- what an honest server and its device do --------------------------------------------------------------------------


def test_a_device_fetches_its_bundle_and_learns_from_it(shop: Shop) -> None:
    found = fetch(shop.remote, shop.target)
    assert found is not None
    same(shop.target, shop.source)
    assert found.received == sum(file.size for file in {f.sha256: f for f in found.bundle.manifest.files}.values())
    assert found.bundle.signed_by == key_id(worlds.KEY.public_key())
    assert not list(shop.folder.glob(".fetched*")), "nothing is left beside it"
    device = Device(shop.target, shop.state, user=USER, policy=OPEN)
    assert device.learn(interactions()[CLIENT]).round == NUMBER
    again = fetch(shop.remote, shop.target)
    assert again is not None
    assert again.received == 0, "it is there already"


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_fetch_that_was_cut_off_goes_on_where_it_was(shop: Shop, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PIECE", 512)
    asked, inner = shop.asks(), shop.remote.piece

    def cut(sha256: str, start: int, stop: int) -> bytes:
        if len(asked) >= 3 + kept:
            raise InputError("cannot reach the server")
        return inner(sha256, start, stop)

    object.__setattr__(shop.remote, "piece", cut)
    with pytest.raises(InputError, match="cannot reach"):
        fetch(shop.remote, shop.target)
    assert not shop.target.exists()
    object.__setattr__(shop.remote, "piece", inner)
    before = sum(asked)
    found = fetch(shop.remote, shop.target)
    assert found is not None
    whole = sum(file.size for file in {f.sha256: f for f in found.bundle.manifest.files}.values())
    assert found.received == whole - before, "nothing came twice"
    same(shop.target, shop.source)


def test_of_the_next_bundle_only_what_is_new_comes(shop: Shop) -> None:
    fetch(shop.remote, shop.target)
    earlier = open_bundle(shop.target)
    assert fetch(shop.remote, shop.folder / "same", earlier=earlier) is None
    assert not (shop.folder / "same").exists()
    shop.put(changed(nobodys(shop.folder / "next"), serial=earlier.manifest.serial + 1))
    asked = shop.asks()
    found = fetch(shop.remote, shop.folder / "newer", earlier=earlier)
    assert found is not None
    assert (found.received, asked) == (0, [])
    assert found.bundle.manifest.serial == earlier.manifest.serial + 1
    with pytest.raises(InputError, match="holds another bundle"):
        fetch(shop.remote, shop.target)


# --- what a hostile one may try ---------------------------------------------------------------------------------------


def refused(shop: Shop, match: str, **options: object) -> None:
    asked = shop.asks()
    with pytest.raises(InputError, match=match):
        fetch(shop.remote, shop.target, **options)  # type: ignore[arg-type]
    assert not shop.target.exists()
    assert asked == [], "no file is asked for of a bundle that would not be opened"


def test_no_file_is_asked_for_before_the_manifest_is_trusted(shop: Shop, tmp_path: Path) -> None:
    key = tmp_path / "publisher.pem"
    key.write_bytes(public_pem(ANOTHERS))
    refused(shop, "not trusted", trusted=[key])
    odd = nobodys(tmp_path / "odd")
    shop.put(changed(odd, key=None))
    refused(shop, "is not signed, so its publisher is unknown")
    shop.put(changed(odd, expires="2020-01-01T00:00:00+00:00"))
    refused(shop, "expired on 2020")
    (odd / SIGNATURE).write_bytes(signature_of("delta", (odd / MANIFEST).read_bytes(), worlds.KEY))
    shop.put(odd)
    refused(shop, "has a signature of an update")
    changed(odd)
    (odd / MANIFEST).write_bytes((odd / MANIFEST).read_bytes().replace(b'"serial": ', b'"serial": 1'))
    object.__setattr__(shop.server.pages, "delivery", Delivery.of([(unsigned(odd), [USER])]))
    refused(shop, "the signature is wrong|was changed")


def test_a_server_has_nobody_fetch_more_than_is_taken_unasked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(one.size for one in open_bundle(shop.source).manifest.files)
    monkeypatch.setattr(fetching, "MOST", size - 1)
    refused(shop, f"has {size:,} bytes, and no more than")
    monkeypatch.setattr(fetching, "MOST", size)
    assert fetch(shop.remote, shop.target) is not None


@pytest.mark.parametrize("of_a_file", [True, False])
def test_a_link_that_was_planted_is_not_followed(shop: Shop, tmp_path: Path, of_a_file: bool) -> None:
    outside, parts = tmp_path / "outside", shop.target.with_name(f".{shop.target.name}.fetched")
    if of_a_file:
        parts.mkdir()
        (parts / open_bundle(shop.source).manifest.files[0].sha256).symlink_to(outside)
    else:
        outside.mkdir()
        parts.symlink_to(outside)
    refused(shop, "is a symbolic link, which nobody here made")
    assert not outside.is_file()
    assert not outside.is_dir() or not list(outside.iterdir())


def test_a_device_that_trusts_a_key_fetches_of_no_other_and_nothing_older(shop: Shop, tmp_path: Path) -> None:
    fetch(shop.remote, shop.target)
    serial = open_bundle(shop.target).manifest.serial
    Device(shop.target, shop.state, user=USER, policy=OPEN)
    shutil.rmtree(shop.target)
    shop.put(changed(nobodys(tmp_path / "anothers"), key=ANOTHERS))
    refused(shop, "has trusted key")
    assert (shop.state / SEEN).exists()
    shop.put(changed(nobodys(tmp_path / "older"), serial=serial - 1))
    refused(shop, "older than one before it")


def test_other_bytes_than_the_manifest_says_are_thrown_away(shop: Shop, tmp_path: Path) -> None:
    odd = nobodys(tmp_path / "odd")
    entry = max(unsigned(odd).manifest.files, key=lambda file: file.size)
    right = (odd / entry.path).read_bytes()
    (odd / entry.path).write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    shop.put(odd)
    with pytest.raises(InputError, match=f"other bytes of {entry.path}"):
        fetch(shop.remote, shop.target)
    assert not shop.target.exists()
    shop.put(shop.source)
    found = fetch(shop.remote, shop.target)
    assert found is not None
    assert entry.size <= found.received < sum(one.size for one in found.bundle.manifest.files), "the others were kept"


def test_a_server_without_the_file_and_one_that_answers_too_much_are_refused(shop: Shop, tmp_path: Path) -> None:
    odd = nobodys(tmp_path / "odd")
    parcel = given(odd, USER).parcels[USER]
    object.__setattr__(parcel, "files", {})
    object.__setattr__(shop.server.pages, "delivery", Delivery({USER: parcel}))
    with pytest.raises(InputError, match=r"\(404\): the bundle of this device has no such file"):
        fetch(shop.remote, shop.target)
    inner = shop.remote.piece
    object.__setattr__(shop.remote, "piece", lambda sha256, start, stop: inner(sha256, start, stop)[:-1])
    shop.put(odd)
    object.__setattr__(shop.remote, "piece", inner)
    (entry, *_) = unsigned(odd).manifest.files
    with pytest.raises(InputError, match="416"):
        shop.remote.piece(entry.sha256, entry.size, entry.size + 1)
    with pytest.raises(InputError, match="in place of"):
        shop.remote.piece(entry.sha256, entry.size - 2, entry.size + 2)


# --- what the server gives to whom ------------------------------------------------------------------------------------


def test_a_bundle_is_given_to_its_users_alone_and_one_with_users_to_nobody(shop: Shop) -> None:
    broker = Broker(shop.server.broker, shop.server, None, shop.folder)  # type: ignore[arg-type]
    digest = unsigned(shop.source).manifest.files[0].sha256
    for path in ("/bundle", f"/files/{digest}"):
        assert broker.ask("GET", path)[0] == 200
        refused, said = broker.ask("GET", path, user=OTHER)
        assert (refused, bundles.CLASS in said.decode()) == (404, True), "which class there is, and nothing of users"
        assert broker.ask("GET", path, Authorization="")[0] == 401
    Keys(shop.folder).revoke(USER)
    assert broker.ask("GET", "/bundle")[0] == 403
    known(Run(shop.folder), shop.folder / "third", USER)
    carrying = Path(shutil.copytree(bundles.bundle("fedmf"), shop.folder / "carrying"))
    shop.put(carrying)
    third = Remote(shop.server.url, known(Run(shop.folder), shop.folder / "third", USER), patience=QUICK)
    with pytest.raises(InputError, match=r"\(403\): this bundle carries users, and is given to nobody"):
        fetch(third, shop.target)


@pytest.mark.parametrize(
    ("asked", "status", "length"),
    [
        ("bytes=0-", 206, None),
        ("bytes=5-9", 206, 5),
        ("bytes=5-99999999999", 206, None),
        *((odd, 416, None) for odd in ("bytes=9-5", "bytes=-5", "bytes=0-1,3-4", "items=0-1", "bytes=999999999-", "")),
    ],
)
def test_ranges_are_one_span_of_the_file(shop: Shop, asked: str, status: int, length: int | None) -> None:
    broker = Broker(shop.server.broker, shop.server, None, shop.folder)  # type: ignore[arg-type]
    entry = max(unsigned(shop.source).manifest.files, key=lambda file: file.size)
    got, body = broker.ask("GET", f"/files/{entry.sha256}", Range=asked)
    assert got == status
    if status == 206:
        start = int(asked.partition("=")[2].partition("-")[0])
        stop = entry.size if length is None else start + length
        assert body == (shop.source / entry.path).read_bytes()[start:stop]


def test_a_device_shows_the_owner_nothing_that_a_terminal_obeys(shop: Shop, tmp_path: Path) -> None:
    odd = nobodys(tmp_path / "odd")
    record = json.loads((odd / MANIFEST).read_bytes()) | {"method": "\x1b[31m"}
    parcel = given(odd, USER).parcels[USER]
    object.__setattr__(parcel, "manifest", json.dumps(record).encode())
    object.__setattr__(shop.server.pages, "delivery", Delivery({USER: parcel}))
    with pytest.raises(InputError) as error:
        fetch(shop.remote, shop.target)
    assert str(error.value).isprintable()


# --- the next bundle of a lineage -------------------------------------------------------------------------------------


def test_devices_fetch_the_bundle_of_what_they_learned_and_go_on(tmp_path: Path) -> None:
    """Two rounds, the next bundle, to which all migrate, a round: the tensors of three rounds under one bundle."""
    twins = fedmf().own(tmp_path)
    shutil.rmtree(twins.begun.path / "bundles")
    edgefr.export(twins.begun)
    states, users = tmp_path / "states", list(twins.users)
    with serving(twins.begun, tmp_path / "served", rounds=2) as (url, future):
        for user in users:
            remote = Remote(url, known(twins.begun, states / user, user), patience=QUICK)
            assert fetch(remote, tmp_path / "bundles" / user) is not None
        take_part(twins, url, states, users)
        first = future.result(60)
    still = Twins(twins.simulated, Run(shutil.copytree(twins.begun.path, tmp_path / "still")))
    with serving(still.begun, tmp_path / "served-still", rounds=1) as (url, future):
        take_part(still, url, Path(shutil.copytree(states, tmp_path / "still-states")), users)
        wanted = future.result(60)
    with pytest.raises(InputError, match="carry nobody"):
        edgefr.export(twins.begun, served=True, with_users=True)
    out, old = edgefr.export(twins.begun, served=True).path, open_bundle(twins.bundle)
    assert out == twins.begun.path / "bundles-2"
    new = open_bundle(out / CLASS)
    assert new.config.learning is not None
    assert (new.config.learning.round, new.manifest.serial > old.manifest.serial) == (2, True)
    assert edgefr.export(twins.begun, served=True).rows[0]["written"] is False, "made again, it is the same"
    with serving(twins.begun, tmp_path / "served-2", rounds=1) as (url, future):
        stale = Device(twins.bundle, states / users[0], policy=OPEN)
        spent = stale.state.digest()
        with pytest.raises(InputError):
            join(stale, url, patience=QUICK)
        assert stale.state.digest() == spent, "nothing was learned for another bundle"
        for user in users:
            _migrate(twins, url, states / user, user, tmp_path / "next" / user)
        take_part(twins, url, states, users, bundle=out / CLASS)
        second = future.result(60)
    assert (first.summary["first_round"], second.summary["first_round"]) == (1, 3)
    for name, value in second.shared.items():
        np.testing.assert_allclose(value.numpy(), wanted.shared[name].numpy(), rtol=0, atol=1e-6)
        assert not np.array_equal(value.numpy(), first.shared[name].numpy())


def test_the_next_bundle_is_of_the_tensors_that_were_served(tmp_path: Path) -> None:
    """One of other tensors, or of rounds that never were, is not gone on with."""
    twins = fedmf().own(tmp_path)
    with pytest.raises(InputError, match=r"nothing of .* was served yet"):
        edgefr.export(twins.begun, served=True)
    session(twins, tmp_path / "states", 1, tmp_path / "served")
    learned = ServedTensors.of(twins.begun)
    assert learned.round == 1
    odd = {name: value + 1 for name, value in learned.shared.items()}
    export_run(twins.begun, served=replace(learned, shared=odd))
    with pytest.raises(InputError, match="is not the run's, or in fewer bits"):
        serve(twins.begun, CLASS, 1, out=tmp_path / "served-2", timeout_s=0.5)
    export_run(twins.begun, served=replace(learned, round=9))
    with pytest.raises(InputError, match="the bundles are of round 9, their run's lineage at 1"):
        serve(twins.begun, CLASS, 1, out=tmp_path / "served-2", timeout_s=0.5)


def _migrate(twins: Twins, url: str, state: Path, user: str, to: Path) -> None:
    """Fetch the newer bundle, of which not all comes over the network, and go on under it."""
    device = Device(twins.bundle, state, policy=OPEN)
    private = device.state.part("private")
    found = fetch(Remote(url, known(twins.begun, state, user), patience=QUICK), to, earlier=device.bundle)
    assert found is not None
    assert 0 < found.received < sum(file.size for file in found.bundle.manifest.files)
    assert device.update(to).kept == len(twins.items(user))
    moved = Device(to, state, policy=OPEN).state.part("private")
    assert all(np.array_equal(value, private[name]) for name, value in moved.items())
