"""A server that answers byte by byte keeps a device no longer than a whole request may take, in head and body alike."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from edge.connection import Patience, Server
from edge.identity import Identity
from privacy.errors import InputError

HEAD, BODY = b"HTTP/1.1 200 OK\r\nEdgefr-Round: 1\r\n", b"Content-Length: 60000\r\n\r\n"
LINES = HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(5000))
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EVERY_S, LONGEST_S = 0.05, 0.6


def dripping(at_once: bytes, after: bytes) -> str:
    """The address of a server that answers with some bytes at once, and with those after them one by one."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listening, listening.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(at_once)
            try:
                for byte in after:
                    connection.sendall(bytes([byte]))
                    time.sleep(EVERY_S)
            except OSError:
                return  # the device has had enough

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("at_once", "after"),
    [
        pytest.param(b"", LINES, id="its first line"),
        pytest.param(HEAD, LINES, id="its headers"),
        pytest.param(HEAD + BODY, bytes(200), id="its body"),
        pytest.param(CHUNKS, b"1\r\nx\r\n" * 50, id="its chunks"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 20, id="go on"),
    ],
)
def test_no_answer_takes_longer_than_a_request_may(tmp_path: Path, at_once: bytes, after: bytes) -> None:
    patience = Patience(tries=1, request_s=LONGEST_S)
    server = Server(dripping(at_once, after), Identity.made(tmp_path), patience=patience)
    began = time.monotonic()
    with pytest.raises(InputError, match=rf"in 1 tries \(an answer took more than {LONGEST_S:g} s\)"):
        server.task(0, 1 << 20)
    assert time.monotonic() - began < 3 * LONGEST_S


def test_an_answer_that_comes_slowly_and_in_time_is_taken(tmp_path: Path) -> None:
    answer = HEAD + b"Content-Length: 4\r\n\r\n"
    server = Server(dripping(answer, b"body"), Identity.made(tmp_path), patience=Patience(tries=1, request_s=30))
    found = server.task(0, 1 << 20)
    assert found is not None
    assert (found.round, found.content) == (1, b"body")
