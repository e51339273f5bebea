"""Who operates a server: certificates that devices show, what it is doing, and what it wrote down."""

from __future__ import annotations

import datetime
import json
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from edge.connection import Server as Remote
from edge.connection import enrol
from edge.remote import join
from edgefr.cli.app import app
from edgefr.serving.keys import Keys
from edgefr.serving.log import FILE as LOG
from edgefr.serving.server import Access, guarded, own_certificate, pin_of
from edgefr.serving.status import FILE as SERVING
from edgefr.serving.status import status
from edgefr.simulation.runs.lineage import Journal
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from tests.cli.commands import edgefr, refused
from tests.contract import bundles
from tests.devices import open_device
from tests.remote.test_server import QUICK, USER, Broker, opened
from tests.remote.test_server import broker as broker
from tests.remote.worlds import fedmf, known, serving, take_part

PLAIN = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def authority(folder: Path, name: str) -> tuple[Path, tuple[Path, Path]]:
    """An authority's certificate, and the certificate and key of a device that it vouches for."""
    now, key = datetime.datetime.now(datetime.UTC), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])

    def made(subject: x509.Name, public: ec.EllipticCurvePublicKey, ca: bool, file: str) -> Path:
        found = (
            x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        (folder / file).write_bytes(found.public_bytes(serialization.Encoding.PEM))
        return folder / file

    own = ec.generate_private_key(ec.SECP256R1())
    device = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "device")])
    (folder / f"{name}-device.key").write_bytes(own.private_bytes(*PLAIN))
    shown = made(device, own.public_key(), False, f"{name}-device.pem"), folder / f"{name}-device.key"
    return made(issuer, key.public_key(), True, f"{name}.pem"), shown


def test_with_an_authority_for_devices_nobody_else_is_let_in(tmp_path: Path) -> None:
    ca, shown = authority(tmp_path, "ours")
    _, anothers = authority(tmp_path, "anothers")
    place = guarded(Access(client_ca=ca), tmp_path)
    assert (place.cert, place.key) == own_certificate(tmp_path), "all of it comes by TLS, also on this host"
    code = f"{Keys(tmp_path).issue([USER])[USER]}.{pin_of(place.cert)}"
    with opened(tmp_path, place) as (broker, server):
        for certs in (None, anothers):
            with pytest.raises(InputError, match="certificate that its operator vouches for"):
                enrol(tmp_path / "device", server.url, code, patience=QUICK, shown=certs)
        assert broker.counts.refused == 0
        identity = enrol(tmp_path / "device", server.url, code, patience=QUICK, shown=shown)
        with pytest.raises(InputError, match="certificate that its operator vouches for"):
            Remote(server.url, identity, patience=QUICK).task(0, 1 << 20)
        device = open_device(bundles.bundle("fedmf"), tmp_path / "device", user=USER)
        with pytest.raises(InputError, match="nothing to learn from"):
            join(device, server.url, patience=QUICK, shown=shown)
        remote = Remote(server.url, identity, patience=QUICK, shown=shown)
        assert remote.task(0, 1 << 20) is not None


def test_certificates_that_are_none_are_said_so(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    cert, key = own_certificate(tmp_path)
    with pytest.raises(InputError, match="no authority's certificate"):
        Access(cert=cert, key=key, client_ca=tmp_path / "no.pem").context()
    with pytest.raises(InputError, match=r"devices show certificates to 127\.0\.0\.1: give a certificate"):
        Access(client_ca=cert).context()
    context = Access(cert=cert, key=key, client_ca=cert).context()
    assert context is not None
    assert context.verify_mode == ssl.CERT_REQUIRED
    identity = known(Run(tmp_path), tmp_path / "device", USER)
    with pytest.raises(InputError, match="for TLS"):
        Remote("https://127.0.0.1:1", identity, patience=QUICK, shown=(tmp_path / "no.pem", key)).task(0, 9)
    asked = ("device", "fetch", tmp_path / "b", "--state", tmp_path / "device", "--url", "https://x:1")
    done = edgefr(*asked, "--tls-cert", cert, cache=tmp_path)
    assert "give both --tls-cert and --tls-key" in refused(done.returncode, done.stdout, done.stderr)


def test_a_server_is_looked_at_while_it_works_and_after_it(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    run, users = twins.begun, list(twins.users)
    assert status(run) == {
        "state": "stopped",
        "rounds over": 0,
        "devices with a key": 0,
        "open codes": 0,
        "users who left": 0,
        "epsilon": "nothing was served",
    }
    with serving(run, tmp_path / "served", rounds=1) as (url, future):
        identity = known(run, tmp_path / "states" / users[0], users[0])
        assert Remote(url, identity, patience=QUICK).task(0, 1 << 24) is not None
        at_work = status(run)
        took = ("state", "url", "open round", "asked", "answers awaited", "answers on the disk", "devices with a key")
        assert {name: at_work[name] for name in took} == {
            "state": "at work",
            "url": url,
            "open round": 1,
            "asked": len(users),
            "answers awaited": len(users),
            "answers on the disk": 0,
            "devices with a key": 1,
        }
        assert at_work["requests held"] == 0
        done = edgefr("serve", run.path, "--status", cache=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "at work" in done.stdout
        assert url in done.stdout
        take_part(twins, url, tmp_path / "states", users)
        future.result(60)
    after = status(run)
    assert (after["state"], after["rounds over"], after["epsilon"]) == ("stopped", 1, "no guarantee")
    assert "url" not in after
    assert not (run.path / SERVING).exists()
    done = edgefr("serve", run.path, cache=tmp_path)
    assert "give --rounds" in refused(done.returncode, done.stdout, done.stderr)


LOOKS = "--rounds 2,--bundle-class laptop_x86,--host 0.0.0.0,--port 8765,--client-ca ca.pem,--timeout 5,--min-answers 3"


@pytest.mark.parametrize("asked", [*LOOKS.split(","), "--secure-sum", "--trusted-server us", "--out o", "--rehearse 4"])
def test_what_would_change_nothing_about_looking_is_refused(asked: str) -> None:
    run = fedmf().begun
    done = CliRunner().invoke(app, ["serve", str(run.path), "--status", *asked.split()])
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith(f"{asked.split()[0]} says how to serve, and --status only looks")
    assert not list(run.path.glob("served*"))


def test_looking_at_a_server_keeps_none_from_starting(tmp_path: Path) -> None:
    run, over = fedmf().own(tmp_path).begun, threading.Event()

    def look() -> None:
        while not over.is_set():
            status(run)

    with Journal.locked(run.path):
        pass
    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        try:
            for _ in range(200):
                with Journal.locked(run.path):
                    assert status(run)["state"] == "at work"
        finally:
            over.set()
        for one in looking:
            one.result()


def test_a_server_that_asks_for_certificates_tells_its_counts_to_who_shows_one(tmp_path: Path) -> None:
    (ca, shown), twins, asked = authority(tmp_path, "ours"), fedmf().own(tmp_path), threading.Event()
    options = {"access": Access(client_ca=ca), "timeout_s": 1.0, "progress": lambda *_: asked.wait(120)}
    with serving(twins.begun, tmp_path / "served", 1, **options) as (_, future):
        assert "not told" in str(status(twins.begun)["counts"])
        assert status(twins.begun, shown)["uploads taken"] == 0
        told = ("serve", twins.begun.path, "--status", "--tls-cert", shown[0], "--tls-key", shown[1])
        done = edgefr(*told, cache=tmp_path)
        assert "uploads taken" in done.stdout, done.stderr
        asked.set()  # nobody takes part, and the round may end
        with pytest.raises(InputError, match="nothing was published"):
            future.result(60)
    done = edgefr("serve", twins.begun.path, "--status", "--tls-cert", shown[0], cache=tmp_path)
    assert "give both --tls-cert and --tls-key" in refused(done.returncode, done.stdout, done.stderr)


def test_a_server_that_was_killed_is_said_to_be(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    with serving(twins.begun, tmp_path / "served", rounds=1, timeout_s=3.0) as (_, future):
        while "open round" not in status(twins.begun):
            time.sleep(0.02)
        left = (twins.begun.path / "lineage/rounds.jsonl").read_bytes()
        with pytest.raises(InputError, match="nothing was published"):
            future.result(60)
    (twins.begun.path / "lineage/rounds.jsonl").write_bytes(left)
    (twins.begun.path / "private/lineage.json").unlink()
    found = status(twins.begun)
    assert (found["state"], found["open round"], found["rounds over"]) == ("killed within a round", 1, 0)
    with Journal.locked(twins.begun.path):  # at work, of an edgefr that says no more
        assert status(twins.begun)["state"] == "at work"


def test_what_happens_is_a_line_each_and_tells_nothing_of_a_device(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    run, users = twins.begun, list(twins.users)
    with serving(run, tmp_path / "served", rounds=2) as (url, future):
        code = Keys(run.path).issue([users[0]])[users[0]]
        device = enrol(tmp_path / "states" / users[0], url, code, patience=QUICK)
        with pytest.raises(InputError):
            enrol(tmp_path / "other", url, code, patience=QUICK)
        take_part(twins, url, tmp_path / "states", users)
        future.result(60)
    text = (run.path / LOG).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(abs(line.pop("at") - time.time()) < 600 for line in lines)
    events = [line["event"] for line in lines]
    assert (events[0], events[-1]) == ("listening", "stopped")
    expected = {"opened": 2, "closed": 2, "taken": 2 * len(users), "enrolled": 1, "listening": 1, "stopped": 1}
    assert {name: events.count(name) for name in expected} == expected
    assert {"event": "enrolled", "user": users[0]} in lines
    assert {"event": "opened", "round": 1, "asked": len(users), "sat_out": 0} in lines
    assert {"event": "closed", "round": 2, "charged": len(users), "burnt": False} in lines
    refusals = [line for line in lines if line["event"] == "refused" and line["status"] == 403]
    assert [(line["method"], line["path"]) for line in refusals] == [("POST", "/enrol")]
    for secret in (code, device.key, device.record.private, "127.0.0.1:0"):
        assert secret not in text
    assert (run.path / LOG).stat().st_mode & 0o077 == 0


def test_requests_that_are_held_are_counted(broker: Broker) -> None:
    body = broker.ask("GET", "/metrics")[1].decode()
    assert "edgefr_waiting 0\n" in body
