"""Connections count from when they are accepted: strangers take neither a server's open files nor its memory."""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path

import pytest

from edge.connection import Server as Remote
from edgefr.serving import connections, server
from edgefr.serving.server import Access
from edgefr.simulation.runs.run import Run
from tests.remote.test_server import QUICK, USER, Broker, opened
from tests.remote.test_server import broker as broker
from tests.remote.worlds import known

FILES = 120


@pytest.mark.parametrize("secure", [False, True])
def test_silent_connections_take_no_more_files_than_there_are(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that never end their handshake; an honest device comes all the same."""
    monkeypatch.setattr(server, "files_allowed", lambda: FILES)
    monkeypatch.setattr(connections, "SILENCE_S", 60.0)
    cert, key = server.own_certificate(tmp_path)
    place = Access(cert=cert, key=key) if secure else Access()
    identity = known(Run(tmp_path), tmp_path / "device", USER)
    identity = identity.enrolled(USER, server.pin_of(cert) if secure else None)
    with opened(tmp_path, place) as (_, at_work):
        crowd = at_work.uvicorn.crowd
        assert crowd.most == FILES // 2
        slow = [socket.create_connection(at_work.server_address[:2], timeout=10) for _ in range(2 * FILES)]
        for one in slow[: 2 * FILES - crowd.most]:
            assert one.recv(1) == b"", "the oldest made room"
        assert len(crowd.all) <= crowd.most + 3, "one that was cut is closed some turns of the loop later"
        assert Remote(at_work.url, identity, patience=QUICK).task(0, 1 << 20) is not None
        for one in slow:
            one.close()


def test_of_connections_without_a_key_there_are_so_many(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that nobody signed makes a connection no older; one that was answered is closed."""
    monkeypatch.setattr(connections, "MOST_YOUNG", 5)
    young = [socket.create_connection(broker.address, timeout=10) for _ in range(9)]
    for one in young[:4]:
        assert one.recv(1) == b""
    for one in young[4:]:
        one.sendall(b"POST /enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    for _ in range(5):
        assert broker.ask("GET", "/metrics")[0] == 200
    assert len(broker.server.uvicorn.crowd.young) <= 5 + 3
    for one in young:
        one.close()


def test_a_connection_has_one_request(broker: Broker) -> None:
    with socket.create_connection(broker.address, timeout=10) as one:
        one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 300)
        content = bytearray()
        try:
            while chunk := one.recv(1 << 16):
                content += chunk
        except ConnectionResetError:
            pass
    assert content.count(b"HTTP/1.1 200") <= 1


def test_trailers_without_end_end_a_connection(broker: Broker) -> None:
    sent, over = 0, threading.Event()
    with socket.create_connection(broker.address, timeout=10) as one:
        one.sendall(b"POST /release?round=1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        with pytest.raises(OSError):  # noqa: PT012 - it sends until it is cut
            while not over.is_set():
                one.sendall(b"x: " + b"y" * 1000 + b"\r\n")
                sent += 1000
                assert sent < 50_000_000, "nobody ends it"


def test_a_body_that_was_not_signed_is_refused(broker: Broker) -> None:
    signed = broker.signature("GET", "/task?after=0")
    connection = http.client.HTTPConnection(*broker.address, timeout=10)
    connection.request("GET", "/task?after=0", b"anything", {"Authorization": signed})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (400, b"this request has a body, and none was signed\n")
    connection.close()


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_counts_are_told_to_nobody_through_a_proxy_that_says_so(broker: Broker, header: str) -> None:
    assert broker.ask("GET", "/metrics", **{header: "203.0.113.9"})[0] == 404
    assert broker.ask("GET", "/metrics")[0] == 200
