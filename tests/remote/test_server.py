"""The counter: what strangers and faulty devices are told, and that nothing they send is taken."""

from __future__ import annotations

import datetime
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge.bundle import open_bundle
from edge.connection import ROUND, Patience
from edge.connection import Server as Remote
from edge.delta import Delta, read_delta, write_delta
from edge.identity import Identity
from edge.remote import join, release_limit
from edge.update import ClientUpdate
from edgefr.serving import admission as gate
from edgefr.serving import connections, pages
from edgefr.serving.broker import RoundBroker
from edgefr.serving.keys import Keys
from edgefr.serving.origin import Origin
from edgefr.serving.server import Access, Server, listening
from edgefr.simulation.runs.run import Run
from export.sign import sealed
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import interactions, program
from tests.devices import open_device
from tests.export import worlds
from tests.remote.worlds import known

CLIENT = 7
USER, NUMBER = bundles.user(CLIENT), bundles.ROUND
QUICK = Patience(tries=2, pause_s=0.01)
NO_DELTA = sealed(b"not a delta", worlds.KEY)
ANOTHERS = sealed(b"not a delta", Ed25519PrivateKey.from_private_bytes(bytes(32)))


@dataclass
class Broker:
    """A listening server of FedMF devices with one open round, and one release for it."""

    broker: RoundBroker
    server: Server
    release: ClientUpdate
    folder: Path

    def identity(self, user: str = USER) -> Identity:
        return known(Run(self.folder), self.folder / "devices" / user, user)

    def signature(self, method: str, path: str, body: bytes = b"", user: str = USER) -> str:
        identity, session = self.identity(user), self.server.gate.session
        return identity.signed(method, path, body, session, time.time_ns(), int(time.time())).header

    def ask(self, method: str, path: str, body: bytes = b"", user: str = USER, **headers: str) -> tuple[int, bytes]:
        parts = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
        try:
            signed = {"Authorization": self.signature(method, path, body, user)}
            connection.request(method, path, body or None, signed | headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.server_address[1]

    def post(self, release: ClientUpdate | bytes, user: str = USER, number: int = NUMBER) -> tuple[int, bytes]:
        content = release if isinstance(release, bytes) else release.to_bytes()
        return self.ask("POST", f"/release?round={number}", content, user)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with opened(tmp_path) as (broker, server):
        opened_broker = Broker(broker, server, learned(), tmp_path)
        opened_broker.identity()
        yield opened_broker


@cache
def learned() -> ClientUpdate:
    """What the device of the tests makes of its items."""
    with TemporaryDirectory() as state:
        return open_device(bundles.bundle("fedmf"), state, user=USER).learn(interactions()[CLIENT])


@contextmanager
def opened(run: Path, access: Access | None = None) -> Iterator[tuple[RoundBroker, Server]]:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    broker = RoundBroker(origin.bundles, origin.learning, origin.items)
    broker.open(NUMBER, {origin.bundle: b""}, [USER, bundles.user(0)])
    with listening(broker, Keys(run), access or Access()) as server:
        yield broker, server


def one_line(status: int, body: bytes, want: int, words: str) -> None:
    assert status == want, (status, body)
    (line,) = body.decode().splitlines()
    assert words in line, line


def test_a_release_is_taken_once_and_may_be_sent_again(broker: Broker) -> None:
    assert broker.post(broker.release) == (200, b"taken\n")
    assert broker.post(broker.release) == (200, b"taken\n")
    assert broker.broker.counts.uploads == 1
    items, values = broker.release.rows["item"]
    other = replace(broker.release, rows={"item": (items, values + 1)})
    one_line(*broker.post(other), 409, "another release")
    (taken,) = broker.broker.collect(0.01).values()
    np.testing.assert_array_equal(taken.rows["item"][1], values)
    assert broker.post(broker.release) == (200, b"taken\n")  # its answer was lost, and the round has closed since
    assert broker.broker.counts.uploads == 1


def test_many_that_send_the_same_at_once_are_one_upload(broker: Broker) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: broker.post(broker.release)[0], range(16)))
    assert 200 in answers
    assert set(answers) <= {200, 401, 429}, "one that was overtaken is signed again, or gives way to a later one"
    assert broker.broker.counts.uploads == 1


def test_releases_that_no_device_of_this_bundle_makes_are_refused(broker: Broker) -> None:
    items, values = broker.release.rows["item"]
    not_finite = values.copy()
    not_finite[0, 0] = np.nan
    bad: dict[str, ClientUpdate | bytes] = {
        "not finite": replace(broker.release, rows={"item": (items, not_finite)}),
        "of bundle": replace(broker.release, bundle="0" * 64),
        "release of round": replace(broker.release, round=NUMBER + 1),
        "ascend": replace(broker.release, rows={"item": (items[::-1].copy(), values)}),
        "not a release": b"\xff" * 40,
        "header": b"",
    }
    for words, release in bad.items():
        status, body = broker.post(release)
        assert status == 400, (words, body)
        assert len(body.splitlines()) == 1
        if words != "header":
            assert words.encode() in body, (words, body)
    assert broker.broker.counts.uploads == 0
    assert broker.post(broker.release)[0] == 200


def test_strangers_and_wrong_questions_are_refused(broker: Broker) -> None:
    one_line(*broker.post(broker.release, user="nobody"), 404, "no such device")
    one_line(*broker.ask("GET", "/task?after=0", user="nobody"), 404, "no such device")
    one_line(*broker.post(broker.release, user=bundles.user(3)), 409, "not open for this device")
    one_line(*broker.post(replace(broker.release, round=1), number=1), 409, "round 1 is not open")
    one_line(*broker.ask("GET", "/"), 404, "no such page")
    one_line(*broker.ask("GET", "/../../etc/passwd"), 404, "no such page")
    for query in ("", "device=u7", "after=", "after=-1", "after=1e3", "after=1&after=2", "after=0&device=u7"):
        status, body = broker.ask("GET", f"/task?{query}" if query else "/task")
        assert status == 400, (query, body)
    one_line(*broker.ask("GET", f"/task?after={'9' * 300}"), 400, "whole number")
    assert broker.ask("DELETE", "/task")[0] == 405


def test_a_body_over_the_limit_is_not_read(broker: Broker) -> None:
    limit = release_limit(broker.broker.learning)
    one_line(*broker.post(b"x" * (limit + 1)), 413, "more than")
    claim = {"Content-Length": str(10**12)}
    assert broker.ask("POST", f"/release?round={NUMBER}", b"x", **claim)[0] == 413
    for length in ("-1", "1e3", "٣", "9" * 40):
        with socket.create_connection(broker.address, timeout=10) as plain:
            head = f"POST /release HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
            plain.sendall(head.encode())
            plain.shutdown(socket.SHUT_WR)
            assert plain.recv(100).split()[1] in (b"400", b"411")


def test_size_weights_are_bounded_by_the_catalogue(tmp_path: Path) -> None:
    folder = bundles.bundle("fedmf", weights="size")
    device = open_device(folder, tmp_path, user=USER)
    release = device.learn(interactions()[CLIENT])
    origin = Origin.of(open_bundle(folder), bundles.USERS)
    broker = RoundBroker({USER: origin.bundle}, origin.learning, origin.items)
    broker.open(NUMBER, {origin.bundle: b""}, [USER])
    for count in (0, origin.items + 1, None):
        with pytest.raises(Exception, match="interactions"):
            broker.submit(USER, NUMBER, replace(release, examples=count).to_bytes())
    broker.submit(USER, NUMBER, release.to_bytes())
    assert broker.counts.uploads == 1


def test_a_silent_or_slow_connection_ends(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", 0.5)
    with socket.create_connection(broker.address, timeout=10) as silent:
        assert silent.recv(10) == b""
    began = time.monotonic()
    with socket.create_connection(broker.address, timeout=10) as slow:
        slow.sendall(b"GET /task HTTP/1.1\r\n")
        with pytest.raises(OSError):  # noqa: PT012 - it drips until it is cut
            for number in range(200):
                slow.sendall(f"X-{number}: 1\r\n".encode())
                time.sleep(0.05)
    assert time.monotonic() - began < 5
    assert broker.post(broker.release)[0] == 200


def test_attack_7_slow_sockets_keep_nobody_out(tmp_path: Path) -> None:
    """As many silent ones as there may be connections, and honest devices come and go as if they were not there."""
    identity = known(Run(tmp_path), tmp_path / "device", USER)
    with opened(tmp_path, Access(connections=260)) as (_, server):
        slow = [socket.create_connection(server.server_address[:2], timeout=10) for _ in range(260)]
        began = time.monotonic()
        for _ in range(20):
            assert Remote(server.url, identity, patience=QUICK).task(0, 1 << 20) is not None
        assert time.monotonic() - began < connections.SILENCE_S
        assert slow[0].recv(10) == b"", "the oldest made room"
        for connection in slow:
            connection.close()


def test_attack_7_many_honest_devices_wait_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there were threads for: all of them are told when the round opens."""
    waiting, told = 300, NUMBER + 1
    sockets = [socket.create_connection(broker.address, timeout=30) for _ in range(waiting)]
    path = f"/task?after={NUMBER}"
    monkeypatch.setattr(gate, "BURST", 1000)
    for one in sockets:
        signed = broker.signature("GET", path)
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {signed}\r\n\r\n".encode())
        time.sleep(0.002)  # one key asks for all of them, and its nonces have to come in order
    broker.broker.open(told, {broker.broker.bundles[USER]: b"new"}, [USER])
    answers = [one.recv(1000) for one in sockets]
    for one in sockets:
        one.close()
    assert sum(f"{ROUND.lower()}: {told}".encode() in answer.lower() for answer in answers) == waiting


def test_counts_are_told_on_this_host(broker: Broker) -> None:
    assert broker.post(broker.release)[0] == 200
    status, body = broker.ask("GET", "/metrics")
    assert status == 200
    assert "edgefr_uploads_total 1\n" in body.decode()
    assert f"edgefr_round {NUMBER}\n" in body.decode()


def test_a_task_is_held_until_its_round_opens_and_no_longer_than_the_poll(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "POLL_S", 0.3)
    remote = Remote(broker.server.url, broker.identity(), patience=QUICK)
    other = Remote(broker.server.url, broker.identity(bundles.user(3)), patience=QUICK)
    assert remote.task(NUMBER, 1 << 20) is None
    assert other.task(0, 1 << 20) is None  # not in the cohort
    monkeypatch.setattr(pages, "POLL_S", 10.0)
    timer = threading.Timer(0.2, broker.broker.open, (NUMBER + 1, {broker.broker.bundles[USER]: b"new"}, [USER]))
    timer.start()
    task = remote.task(NUMBER, 1 << 20)
    assert task is not None
    assert (task.round, task.content, task.done) == (NUMBER + 1, b"new", False)
    broker.broker.finish(NUMBER + 1, {broker.broker.bundles[USER]: b"last"}, 0.0)
    ended = remote.task(NUMBER + 1, 1 << 20)
    assert ended is not None
    assert (ended.content, ended.done) == (b"last", True)


def test_a_release_of_another_classes_bundle_is_refused(broker: Broker) -> None:
    """Of two devices of the same rounds each is checked against the bundle of its own class."""
    broker.broker.bundles[bundles.user(0)] = "0" * 64
    one_line(*broker.post(broker.release, bundles.user(0)), 400, "not a release of this bundle")
    assert broker.post(replace(broker.release, bundle="0" * 64), bundles.user(0)) == (200, b"taken\n")
    one_line(*broker.post(replace(broker.release, bundle="0" * 64)), 400, "not a release of this bundle")
    assert broker.broker.counts.uploads == 1


def test_devices_of_two_classes_are_each_sent_what_their_own_bundle_needs(broker: Broker) -> None:
    known, other = broker.broker, bundles.user(0)
    known.bundles[other] = "0" * 64
    for say, done in ((known.open, False), (known.finish, True)):
        last = [USER, other] if say == known.open else 0.0
        say(NUMBER + 1, {known.bundles[USER]: b"one", "0" * 64: b"two"}, last)  # type: ignore[operator]
        found = [known.task(user, NUMBER) for user in (USER, other)]
        assert [(task.content, task.bundle, task.done) for task in found if task is not None] == [
            (b"one", known.bundles[USER], done),
            (b"two", "0" * 64, done),
        ]


def test_what_devices_are_sent_takes_them_to_the_servers_tensors(tmp_path: Path) -> None:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    shared = program("fedmf").init_shared(bundles.SEED)
    origin.check(shared)
    assert origin.update(origin.learning.round, shared) == b""
    shared["item"] = shared["item"].clone()
    shared["item"][[3, 11]] += 0.5
    with pytest.raises(InputError, match="is not the run's"):
        origin.check(shared)
    path = tmp_path / "update.safetensors"
    path.write_bytes(origin.update(5, shared))
    delta = read_delta(path, origin.learning)
    assert (delta.from_round, delta.to_round) == (1, 5)
    assert delta.rows["item"][0].tolist() == [3, 11]
    device = open_device(bundles.bundle("fedmf"), tmp_path / "state", user=USER)
    device.apply(replace(delta, signed_by=device.bundle.signed_by))
    assert torch.equal(torch.from_numpy(device.state.tensors["table.item"]), shared["item"])


class Odd:
    """A server that answers everything with the same bytes."""

    def __init__(self, answer: bytes):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url, self.answer, self.asked = f"http://127.0.0.1:{self.listener.getsockname()[1]}", answer, 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.asked += 1
                connection.recv(1 << 16)
                connection.sendall(self.answer)


@pytest.mark.parametrize(
    ("answer", "words", "asked"),
    [
        (b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", r"refuses this device \(302\)", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 2\r\n\r\n" + b"x" * (3 << 20), "more than", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 2\r\n\r\n" + NO_DELTA, "is not a edgefr.delta/1 file", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 2\r\n\r\nunsigned", "is not signed", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 2\r\n\r\n" + NO_DELTA[1:], "the signature is wrong", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 2\r\n\r\n" + ANOTHERS, "which is not trusted", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 2\r\nContent-Length: 99\r\n\r\nshort", "cannot reach", 2),
        (b"HTTP/1.0 200 OK\r\n\r\n", r"refuses this device \(200\)", 1),
        (b"HTTP/1.0 200 OK\r\nEdgefr-Round: 9\r\n\r\n", "at round 8, this device's state at 1", 1),
        (b"HTTP/1.0 503 Busy\r\n\r\n", "it answers 503", 2),
        (b"HTTP/1.0 401 No\r\n\r\na\x1b[31mb\nc", r"\(401\): a\[31mb c", 1),
        (b"SSH-2.0\r\n", "cannot reach", 2),
    ],
)
def test_a_device_is_not_fooled_by_a_server(answer: bytes, words: str, asked: int, tmp_path: Path) -> None:
    device, odd = open_device(bundles.bundle("fedmf"), tmp_path, user=USER), Odd(answer)
    before = device.state.digest()
    Identity.made(device.store.folder)
    try:
        with pytest.raises(InputError, match=words) as refused:
            join(device, odd.url, ["i1"], patience=QUICK)
    finally:
        odd.listener.close()
    assert "\n" not in str(refused.value)
    assert odd.asked == asked
    assert device.state.digest() == before


def test_an_update_of_another_bundle_changes_nothing(tmp_path: Path) -> None:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    path = write_delta(tmp_path / "other.safetensors", Delta("0" * 64, 1, 3))
    odd = Odd(b"HTTP/1.0 200 OK\r\nEdgefr-Round: 4\r\n\r\n" + sealed(path.read_bytes(), worlds.KEY))
    device = open_device(bundles.bundle("fedmf"), tmp_path / "state", user=USER)
    before = device.state.digest()
    Identity.made(device.store.folder)
    try:
        with pytest.raises(InputError, match="nothing was changed"):
            join(device, odd.url, patience=QUICK)
    finally:
        odd.listener.close()
    assert device.state.digest() == before
    assert origin.learning.round == device.status()["round"]


def test_addresses_that_would_leak_are_refused(tmp_path: Path) -> None:
    identity = Identity.made(tmp_path / "device")
    for url in (
        "ftp://127.0.0.1",
        "http://",
        "http://u:p@127.0.0.1",
        "http://127.0.0.1/x",
        "http://h:99999",
        "file:///x",
    ):
        with pytest.raises(InputError, match="no server's address"):
            Remote(url, identity)
    with pytest.raises(InputError, match="in the clear"):
        Remote("http://example.org", identity)
    with pytest.raises(InputError, match="other hosts reach"), opened(tmp_path, Access(host="0.0.0.0")):
        pass
    with pytest.raises(InputError, match="both --tls-cert"):
        Access(cert=tmp_path)
    with (
        pytest.raises(InputError, match="cannot listen"),
        opened(tmp_path, Access("203.0.113.7", 0, *certificate(tmp_path))),
    ):
        pass


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))
    return folder / "cert.pem", folder / "key.pem"


def test_tls_carries_a_round_and_only_to_who_trusts_the_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with opened(tmp_path, Access(cert=cert, key=key)) as (broker, server):
        assert server.url.startswith("https://")
        device = open_device(bundles.bundle("fedmf"), tmp_path / "state", user=USER)
        identity = known(Run(tmp_path), tmp_path / "state", USER)
        with pytest.raises(InputError, match="not trusted"):
            join(device, server.url, patience=QUICK)
        with pytest.raises(InputError, match="cannot reach"):
            join(device, server.url.replace("https", "http"), patience=QUICK)
        with socket.create_connection(server.server_address[:2], timeout=10):  # says nothing: keeps nobody waiting
            remote = Remote(server.url, identity, cert, QUICK)
            task = remote.task(0, 1 << 20)
            assert task is not None
            assert remote.send(task.round, device.learn(["i1", "i5"]).to_bytes())
        assert broker.counts.uploads == 1
        context = ssl.create_default_context(cafile=str(cert))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        host, port = server.server_address[:2]
        with socket.create_connection((host, port)) as raw, context.wrap_socket(raw, server_hostname=str(host)) as safe:
            signed = identity.signed("GET", "/task?after=0", b"", server.gate.session, time.time_ns(), int(time.time()))
            safe.sendall(f"GET /task?after=0 HTTP/1.0\r\nAuthorization: {signed.header}\r\n\r\n".encode())
            assert ROUND.lower().encode() in safe.recv(1000)
