"""Attacks that once worked on a served run, each by its name: who is who, poison, and one answer alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from edge.bundle import open_bundle
from edge.connection import Patience, Server, enrol
from edge.delta import Delta, write_delta
from edge.device import Device
from edge.identity import PRIME, SMALL_ORDER, Identity, Signed
from edge.policy import OPEN
from edge.remote import join
from edge.update import ClientUpdate
from edgefr.serving import admission as gate
from edgefr.serving.admission import Gate, RequestRefused
from edgefr.serving.broker import RoundBroker
from edgefr.serving.keys import DAY, Keys
from edgefr.serving.norm_bound import DOUBT, Reach
from edgefr.serving.origin import Origin
from edgefr.serving.server import Access, own_certificate, pin_of
from edgefr.simulation.runs.run import Run
from export.sign import sealed
from privacy import exact
from privacy.errors import InputError
from privacy.mechanism import law_of
from tests.cli.commands import edgefr, refused
from tests.contract import bundles
from tests.contract.programs import interactions
from tests.export import worlds as exports
from tests.remote.test_server import CLIENT, NUMBER, QUICK, USER, Broker, Odd, opened
from tests.remote.test_server import broker as broker
from tests.remote.worlds import fedmf, known, serving, take_part, time_up

OTHER = bundles.user(0)
ASKED = "/task?after=0"


def charged(broker: Broker) -> frozenset[str]:
    """Users whose budget a round would be charged to."""
    return broker.broker.close()


# --- 1: anyone was anyone ---------------------------------------------------------------------------------------------


def test_attack_1_strangers_are_refused_and_nobody_is_charged(broker: Broker) -> None:
    stranger = Identity.made(broker.folder / "stranger")
    session, now = broker.server.gate.session, int(time.time())
    signed = stranger.signed("GET", ASKED, b"", session, time.time_ns(), now).header
    for given, status in ((signed, 403), ("", 401), ("Bearer of-something", 401), (signed[:-1], 401), ("\xe9", 401)):
        assert broker.ask("GET", ASKED, Authorization=given)[0] == status
        assert broker.post(broker.release)[0] == 200  # and honest ones go on
    assert broker.broker.counts.refused == 5
    assert charged(broker) == {USER}, "who uploads is, and nobody else"


@pytest.mark.parametrize("sign", [0, 128])
@pytest.mark.parametrize("y", sorted(SMALL_ORDER))
def test_attack_1_a_key_with_which_anybody_signs_is_none(y: int, sign: int) -> None:
    """Of a point of small order one signature, which takes no private key, holds for one request in eight or more."""
    raw = y.to_bytes(32, "little")
    key, nothing = raw[:31] + bytes([raw[31] | sign]), bytes([1]) + bytes(31)
    holds = 0
    for number in range(64):
        signed = Signed(key.hex(), "0" * 32, number, 0, "0" * 64, (nothing + bytes(32)).hex())
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(nothing + bytes(32), signed.content("GET", ASKED))
            holds += 1
        except InvalidSignature:
            pass
        assert not signed.holds("GET", ASKED)
    assert holds or y in (PRIME, PRIME + 1) or (sign and y in (1, PRIME - 1)), "the library takes it"


def test_attack_1_nobody_asks_or_uploads_in_anothers_name(broker: Broker) -> None:
    mine, theirs = broker.identity(OTHER), broker.identity(USER)
    signed = mine.signed("GET", ASKED, b"", broker.server.gate.session, time.time_ns(), int(time.time()))
    for said in (replace(signed, key=theirs.key), replace(signed, signature="0" * 128), replace(signed, nonce=1)):
        assert broker.ask("GET", ASKED, Authorization=said.header)[0] == 403
    path = f"/release?round={NUMBER}"
    header = broker.signature("POST", path, broker.release.to_bytes(), OTHER)
    assert broker.ask("POST", path, b"x" * 40, Authorization=header)[0] == 400  # another body than was signed
    header = broker.signature("POST", path, broker.release.to_bytes(), OTHER)
    assert broker.ask("POST", f"/release?round={NUMBER + 1}", broker.release.to_bytes(), Authorization=header)[0] == 403
    header = broker.signature("GET", "/task?after=9", b"", OTHER)
    assert broker.ask("GET", ASKED, Authorization=header)[0] == 403
    assert broker.broker.counts.uploads == 0
    assert charged(broker) == frozenset()


def test_attack_1_a_request_counts_once(broker: Broker) -> None:
    header = broker.signature("GET", ASKED)
    assert broker.ask("GET", ASKED, Authorization=header)[0] == 200
    assert broker.ask("GET", ASKED, Authorization=header)[0] == 401
    assert charged(broker) == {USER}


def test_attack_1_what_was_signed_for_an_earlier_start_or_long_ago_is_worth_nothing(broker: Broker) -> None:
    identity, session = broker.identity(), broker.server.gate.session
    now = int(time.time())
    for name, moment, status in (("0" * 32, now, 401), ("", now, 401), (session, now - 301, 400), (session, 0, 400)):
        header = identity.signed("GET", ASKED, b"", name, time.time_ns(), moment).header
        assert broker.ask("GET", ASKED, Authorization=header)[0] == status
    assert charged(broker) == frozenset()


def test_attack_1_a_code_enrols_one_key_once(broker: Broker) -> None:
    keys, url = Keys(broker.folder), broker.server.url
    code, late = keys.issue([OTHER])[OTHER], keys.issue(["late"], days=-1 / DAY)["late"]
    first = enrol(broker.folder / "first", url, code, patience=QUICK)
    assert (first.record.user, broker.server.gate.keys.user_of(first.key)) == (OTHER, OTHER)
    assert enrol(broker.folder / "first", url, code, patience=QUICK).key == first.key  # its answer was lost
    for folder, given in (("second", code), ("third", "0" * 32), ("fourth", late)):
        with pytest.raises(InputError, match=r"\(403\): this code is unknown, used or too old"):
            enrol(broker.folder / folder, url, given, patience=QUICK)
    with pytest.raises(InputError, match="this key is enrolled already"):
        enrol(broker.folder / "first", url, keys.issue([USER])[USER], patience=QUICK)
    with pytest.raises(InputError, match="no one-time code"):
        enrol(broker.folder / "fifth", url, "hello")
    assert Server(url, first, patience=QUICK).task(0, 1 << 20) is not None
    assert (broker.folder / "first" / "identity.json").stat().st_mode & 0o077 == 0


def test_attack_1_a_revoked_or_replaced_key_is_nobodys_at_once(broker: Broker) -> None:
    keys = Keys(broker.folder)
    old = broker.identity()
    assert Server(broker.server.url, old, patience=QUICK).task(0, 1 << 20) is not None
    new = enrol(broker.folder / "new", broker.server.url, keys.issue([USER])[USER], patience=QUICK)
    with pytest.raises(InputError, match="was replaced or is revoked"):
        Server(broker.server.url, old, patience=QUICK).task(0, 1 << 20)
    assert Server(broker.server.url, new, patience=QUICK).task(0, 1 << 20) is not None
    keys.revoke(USER)
    with pytest.raises(InputError, match="was replaced or is revoked"):
        Server(broker.server.url, new, patience=QUICK).task(0, 1 << 20)
    with pytest.raises(InputError, match="nothing to revoke"):
        keys.revoke(USER)


def test_attack_1_who_asks_too_often_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BURST", 5)
    door, identity = Gate(Keys(tmp_path)), known(Run(tmp_path), tmp_path / "device", USER)

    def ask(nonce: int) -> None:
        signed = identity.signed("GET", ASKED, b"", door.session, nonce, int(time.time()))
        assert door.admit("GET", ASKED, signed.header) == (USER, signed)

    for nonce in range(5):
        ask(nonce)
    with pytest.raises(RequestRefused, match="requests a minute"):
        ask(5)


def test_what_a_kill_left_of_a_line_is_no_key(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    code = keys.issue(["ada"])["ada"]
    whole = keys.path.read_bytes()
    with open(keys.path, "ab") as file:
        file.write(b'{"kind":"enrolled","code":"00')
    assert Keys(tmp_path).enrol(code, "ab" * 32) == "ada"
    again = Keys(tmp_path)
    again.look()
    assert (again.users, again.path.read_bytes()[: len(whole)]) == ({"ab" * 32: "ada"}, whole)
    keys.path.write_bytes(b"{}\n" + whole)
    with pytest.raises(InputError, match="is damaged"):
        Keys(tmp_path).look()


def test_requests_are_read_as_they_are_written() -> None:
    said = Signed("ab" * 32, "cd" * 16, 7, 1_700_000_000, "ef" * 32, "01" * 64)
    assert Signed.of(said.header) == said
    for wrong in (said.header + "\n", said.header.upper(), said.header.replace(" 7 ", " -7 "), f" {said.header}"):
        assert Signed.of(wrong) is None


# --- 2: one client moved the table as far as it liked -----------------------------------------------------------------


@pytest.mark.parametrize(("noise", "norm"), [("discrete-gaussian", "l2"), ("discrete-laplace", "l1")])
def test_attack_2_an_upload_longer_than_clip_and_noise_is_not_taken(noise: str, norm: str, tmp_path: Path) -> None:
    terms = {"clip": 1.0, "norm": norm, "noise": noise, "scale": 0.25, "step": 2.0**-9, "noised": "here"}
    origin = Origin.of(open_bundle(bundles.bundle("fedmf", **terms)), bundles.USERS)
    broker = RoundBroker({USER: origin.bundle}, origin.learning, origin.items)
    broker.open(NUMBER, {origin.bundle: b""}, [USER])
    device = Device(bundles.bundle("fedmf", **terms), tmp_path, user=USER, policy=OPEN)
    honest = device.learn(interactions()[CLIENT])
    reach = broker.reach
    assert reach is not None
    for far in (140.0, 4.0 + reach.tail.value * 2.0**-9):  # the attack's, and little more than one value can be
        values = honest.update.copy()
        values[3] = round(far / 2.0**-9)
        with pytest.raises(RequestRefused, match="longer than the clip and its noise"):
            broker.submit(USER, NUMBER, replace(honest, update=values).to_bytes())
    spread = np.full_like(honest.update, int(reach.tail.value))  # no value alone, all of them together
    with pytest.raises(RequestRefused, match="longer than the clip and its noise"):
        broker.submit(USER, NUMBER, replace(honest, update=spread).to_bytes())
    assert (broker.counts.uploads, broker.counts.too_long) == (0, 3)
    broker.submit(USER, NUMBER, honest.to_bytes())
    assert broker.counts.uploads == 1


@pytest.mark.parametrize("noise", ["discrete-gaussian", "discrete-laplace"])
def test_honest_noise_stays_below_its_quantiles_and_near_them(noise: str) -> None:
    """With a doubt of 1/20, of 200 vectors some pass the middle of the bound, and at most 30 pass it."""
    scale, size, draws = 40, 60, 200
    tail, strict = (law_of(noise).tail(scale, size, doubt) for doubt in (0.05, DOUBT))
    assert tail is not None
    assert strict is not None
    vectors = getattr(exact, noise.replace("-", "_"))(scale, size * draws).reshape(draws, size)
    lengths = np.linalg.norm(vectors.astype(float), {"l1": 1, "l2": 2}[tail.norm], axis=1)
    widest = np.abs(vectors).max(axis=1)
    assert (lengths > tail.length).sum() <= 30
    assert (widest > tail.value).sum() <= 30
    assert (lengths > strict.length).sum() == (widest > strict.value).sum() == 0
    assert lengths.max() > tail.length / 2
    assert widest.max() > tail.value / 2


def test_where_devices_add_no_noise_the_clip_itself_bounds() -> None:
    assert Reach.of(Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS).learning) is None


# --- 3: a device was silenced for good, and all went in the clear -----------------------------------------------------


def test_attack_3_no_number_out_of_the_air_becomes_a_devices_round(tmp_path: Path) -> None:
    device = Device(bundles.bundle("fedmf"), tmp_path / "state", user=USER, policy=OPEN)
    Identity.made(device.store.folder)
    before = device.state.digest()
    path = write_delta(tmp_path / "far.safetensors", Delta(device.bundle.manifest.bundle_id, 1, 999_999_999))
    signed = sealed(path.read_bytes(), exports.KEY)
    for answer in (
        b"HTTP/1.0 410 Gone\r\nEdgefr-Round: 999999999\r\n\r\n",
        b"HTTP/1.0 410 Gone\r\nEdgefr-Round: 7\r\n\r\n" + signed,
        b"HTTP/1.0 200 OK\r\nEdgefr-Round: 7\r\n\r\n" + signed,
    ):
        odd = Odd(answer)
        with pytest.raises(InputError, match=r"different servers|nothing was changed"):
            join(device, odd.url, patience=QUICK)
        odd.listener.close()
    assert device.state.digest() == before


def test_attack_3_a_device_talks_to_the_key_that_its_code_named(tmp_path: Path) -> None:
    cert, key = own_certificate(tmp_path)
    assert own_certificate(tmp_path) == (cert, key)
    assert key.stat().st_mode & 0o077 == 0
    code = f"{Keys(tmp_path).issue([USER])[USER]}.{pin_of(cert)}"
    with opened(tmp_path, Access(cert=cert, key=key)) as (_, server):
        device = enrol(tmp_path / "device", server.url, code, patience=QUICK)
        assert Server(server.url, device, patience=QUICK).task(0, 1 << 20) is not None
    other = own_certificate(tmp_path / "other")
    with opened(tmp_path, Access(cert=other[0], key=other[1])) as (broker, server):
        with pytest.raises(InputError, match="another key than the one-time code named"):
            Server(server.url, device, patience=QUICK).task(0, 1 << 20)
        assert broker.counts.refused == 0, "nothing was sent there"


# --- 5: of one answer the others learned all --------------------------------------------------------------------------


def test_attack_5_of_too_few_answers_nothing_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins, progress = fedmf().own(tmp_path), time_up(monkeypatch, {1: 1})
    first, *others = twins.users
    with serving(twins.begun, tmp_path / "served", rounds=2, progress=progress) as (url, future):
        identity = known(twins.begun, tmp_path / "states" / first, first)
        server = Server(url, identity, patience=Patience(tries=3, pause_s=0.05))
        device = Device(twins.bundle, tmp_path / "states" / first, user=first, policy=OPEN)
        assert server.task(0, 1 << 20) is not None
        alone: ClientUpdate = device.learn(twins.items(first))
        assert server.send(1, alone.to_bytes())
        nxt = server.task(1, 1 << 24)  # of round 2, which starts where round 1 did
        assert nxt is not None
        take_part(twins, url, tmp_path / "states", [first, *others])
        result = future.result(60)
    assert (result.summary["min_answers"], result.summary["withheld_rounds"]) == (3, [1])
    began = twins.begun.read_tensors("model")["shared.item"]
    assert float((result.shared["item"] - began).abs().max()) > 1e-2, "round 2 was published"
    path = tmp_path / "second.safetensors"
    from edge.delta import read_delta
    from edge.signature import opened_seal

    path.write_bytes(opened_seal(nxt.content)[0])
    items, _ = read_delta(path, device.learning).rows["item"]
    assert len(items) == 0, "what one device sent reached the others"


def test_codes_are_printed_by_the_command_line_and_taken_by_a_device(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    user, *_ = twins.users
    done = edgefr("enrol", twins.begun.path, "--user", user, cache=tmp_path)
    name, code = done.stdout.split()
    assert name == user
    assert done.stderr == f"laptop_x86: {user}\n", "the class of device that the user has in the run"
    with serving(twins.begun, tmp_path / "served", rounds=1, timeout_s=60.0) as (url, future):
        asked = ("device", "enrol", twins.bundle, "--state", tmp_path / "states" / user, "--url", url, "--code", code)
        done = edgefr(*asked, cache=tmp_path)
        assert done.stdout.startswith(f"enrolled as {user}"), done.stderr
        take_part(twins, url, tmp_path / "states", list(twins.users))
        assert future.result(60).summary["uploads"] == len(twins.users)
    twins.bundle.rename(tmp_path / "elsewhere")
    done = edgefr("enrol", twins.begun.path, "--user", user, cache=tmp_path)
    assert done.stderr.startswith("laptop_x86, which has no bundle in ")
    done = edgefr("enrol", twins.begun.path, "--user", "nobody", cache=tmp_path)
    assert "unknown user 'nobody'" in refused(done.returncode, done.stdout, done.stderr)
    done = edgefr("enrol", twins.begun.path, "--revoke", cache=tmp_path)
    assert "give --user" in refused(done.returncode, done.stdout, done.stderr)
    assert edgefr("enrol", twins.begun.path, "--user", user, "--revoke", cache=tmp_path).returncode == 0
    lines = [json.loads(line)["kind"] for line in Keys(twins.begun.path).path.read_text().splitlines()]
    assert lines[0] == "issued"
    assert lines[-1] == "revoked"
