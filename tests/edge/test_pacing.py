"""A hostile server keeps no device spinning: it waits longer each time, and gives up."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge import connection, pacing, remote
from edge.connection import Patience, Server
from edge.identity import Identity
from edge.pacing import Pace, RequestCount
from edge.remote import join
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import interactions
from tests.devices import open_device

CLIENT = 7
USER = bundles.user(CLIENT)


@contextmanager
def hostile(answer: Callable[[bytes, int], bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A server's address, and the requests that came; `answer` is handed the head of one and its number."""
    listener, came = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def serve() -> None:
        for number in itertools.count():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                content = connection.recv(1 << 16)
                if not content:
                    continue  # a device that asks no more
                came.append(content.split(b"\r\n", 1)[0])
                connection.sendall(answer(came[-1], number))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass  # closed with a body unread, a connection is reset

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", came
    finally:
        listener.close()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a device makes, which take no time here."""
    found, gone = list[float](), [0.0]

    def sleep(seconds: float) -> None:
        found.append(seconds)
        gone[0] += seconds

    own = {"sleep": sleep, "monotonic": lambda: time.monotonic() + gone[0]}
    for module in (pacing, connection, remote):  # and no other thread's
        monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **own}))
    return found


def test_rounds_that_come_to_nothing_end_a_device_and_each_takes_longer(tmp_path: Path, slept: list[float]) -> None:
    device = open_device(bundles.bundle("fedmf"), tmp_path, user=USER)
    Identity.made(tmp_path)
    with hostile(lambda _, n: f"HTTP/1.0 204 No\r\nEdgefr-Round: {n + 2}\r\n\r\n".encode()) as (url, came):
        counts = join(device, url, interactions()[CLIENT], patience=Patience())
    assert counts.stopped == "of 100 rounds in a row nothing was taken; join again later"
    assert (counts.rested, len(came)) == (100, 100)
    pauses = [pause for pause in slept if pause > 0]
    assert pauses[0] < 0.25
    assert pauses[:6] == sorted(pauses[:6]), "each longer than the one before"
    assert sum(pauses) > 90 * Patience().longest_s * 0.9, "less than one request in 7 s"


def test_a_round_that_was_offered_before_is_not_answered_again(tmp_path: Path, slept: list[float]) -> None:
    """Whoever offers one round for ever is sent its release once."""
    device = open_device(bundles.bundle("fedmf"), tmp_path, user=USER)
    Identity.made(tmp_path)
    taken, number = b"HTTP/1.0 200 OK\r\nEdgefr-Round: %d\r\n\r\n", device.status()["round"] + 1
    words = f"round {number} for one above {number}: not a server"
    with hostile(lambda *_: taken % number) as (url, came), pytest.raises(InputError, match=words):
        join(device, url, interactions()[CLIENT], patience=Patience(tries=1))
    assert [head.split()[0] for head in came] == [b"GET", b"POST", b"GET"]


def test_a_server_that_never_has_work_is_asked_ever_less_often(tmp_path: Path, slept: list[float]) -> None:
    device = open_device(bundles.bundle("fedmf"), tmp_path, user=USER)
    Identity.made(tmp_path)
    nothing, words = b"HTTP/1.0 204 No\r\n\r\n", "had no work for 3600 s"
    with hostile(lambda *_: nothing) as (url, came), pytest.raises(InputError, match=words):
        join(device, url, interactions()[CLIENT], patience=Patience())
    assert len(came) < 3600 / Patience().longest_s + 10


def test_a_day_has_a_total_also_for_a_process_that_is_started_again(
    tmp_path: Path, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "A_DAY", 250)
    identity = Identity.made(tmp_path)
    now = [20_000 * pacing.DAY + 5.0]
    monkeypatch.setattr(pacing.time, "time", lambda: now[0])
    with hostile(lambda *_: b"HTTP/1.0 204 No\r\n\r\n") as (url, came):

        def asked(times: int) -> None:
            server = Server(url, identity)
            for _ in range(times):
                server.task(0, 1 << 20)

        asked(150)
        with pytest.raises(InputError, match="asked 250 times in a day"):
            asked(101)
        assert 200 <= len(came) <= 250
        assert (tmp_path / pacing.NAME).stat().st_mode & 0o077 == 0
        now[0] -= pacing.DAY
        with pytest.raises(InputError, match="in a day"):
            asked(1)
        now[0] += 2 * pacing.DAY
        asked(1)
    assert RequestCount.of(tmp_path) == RequestCount(day=20_001, requests=pacing.AHEAD)


def test_a_server_that_is_down_costs_nothing_of_a_day(tmp_path: Path, slept: list[float]) -> None:
    """A device that tried again every 20 ms had spent its day after minutes of a server's restart."""
    identity = Identity.made(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(InputError, match="cannot reach"):
        Server(f"http://127.0.0.1:{port}", identity).task(0, 1 << 20)
    assert RequestCount.of(tmp_path) is None


def test_an_honest_server_that_holds_its_requests_is_asked_at_once(slept: list[float]) -> None:
    pace = Pace(empty=30, last=time.monotonic() - 20.0)
    pace.wait(0.25, 8.0)
    assert slept == [0.0]


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
