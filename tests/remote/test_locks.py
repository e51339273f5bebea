"""Whoever holds a file of the server's, and a disk that is slow, hold up no device, and nobody is told of a path."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edge.connection import ENROL, Code, Patience, enrol
from edge.identity import Identity
from edgefr.serving import keys, pages
from edgefr.serving.keys import LOCK, Keys
from edgefr.serving.log import FILE as LOG
from edgefr.serving.log import Log
from privacy.errors import InputError
from privacy.machine import hold
from tests.contract import bundles
from tests.remote.test_server import NUMBER, USER, Broker
from tests.remote.test_server import broker as broker

OTHER = bundles.user(3)


def enrolling(broker: Broker, code: str, folder: Path) -> tuple[int, bytes]:
    """What a server answers a device that comes with a code, asked once."""
    body, identity = Code(code=code).model_dump_json().encode(), Identity.made(folder)
    signed = identity.signed("POST", ENROL, body, broker.server.gate.session, time.time_ns(), int(time.time()))
    connection = http.client.HTTPConnection(*broker.address, timeout=8)
    connection.request("POST", ENROL, body, {"Authorization": signed.header})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_a_lock_that_is_held_is_a_busy_server_and_no_path(broker: Broker, tmp_path: Path) -> None:
    """Its devices are answered, also those whose code is none: they wait for no lock."""
    code = Keys(broker.folder).issue([OTHER])[OTHER]
    handle = hold(broker.folder / LOCK)
    try:
        with ThreadPoolExecutor(6) as pool:
            answers = pool.map(lambda n: enrolling(broker, code, tmp_path / f"new-{n}"), range(6))
            assert broker.ask("GET", "/task?after=0")[0] == 200
            assert list(answers) == [(503, b"the server cannot do that now; ask again\n")] * 6
        status, said = enrolling(broker, "0" * 32, tmp_path / "stranger")
        assert status == 403
        assert b"/" not in said.replace(b"`edgefr enrol`", b"")
        threading.Timer(0.1, os.close, (handle,)).start()
        handle = -1
        again = Patience(tries=40, pause_s=0.05, longest_s=0.05)
        assert enrol(tmp_path / "new-0", broker.server.url, code, patience=again).record.user == OTHER
    finally:
        if handle >= 0:
            os.close(handle)


def test_a_log_that_is_held_holds_up_no_answer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    (broker.folder / LOG).parent.mkdir(exist_ok=True)
    broker.server.pages.log = Log(broker.folder / LOG)
    monkeypatch.setattr(pages, "NOTED_S", 0.1)
    monkeypatch.setattr(pages, "MOST_NOTES", 5)
    handle = hold((broker.folder / LOG).with_name("serve.log.lock"))
    try:
        began = time.monotonic()
        for _ in range(20):
            assert broker.ask("GET", "/nothing")[0] == 404
        assert len(broker.server.pages.notes) == 5
        assert broker.post(broker.release) == (200, b"taken\n")
        assert time.monotonic() - began < 20 * 2.0, "no answer waited for the log"
    finally:
        os.close(handle)


def test_a_slow_disk_holds_up_no_question(broker: Broker) -> None:
    """And a round is not over while a release of it is being kept."""
    slow, there = threading.Event(), threading.Event()

    def keep(device: str, number: int, content: bytes) -> None:
        there.set()
        assert slow.wait(20)

    broker.broker.keep = keep
    with ThreadPoolExecutor(3) as pool:
        posted = pool.submit(broker.post, broker.release)
        assert there.wait(10)
        assert broker.ask("GET", "/task?after=0", user=bundles.user(0))[0] == 200
        closing = pool.submit(lambda: dict(broker.broker.collect(0.0)))
        assert broker.ask("GET", "/metrics")[0] == 200
        slow.set()
        assert posted.result(10) == (200, b"taken\n")
        assert list(closing.result(10)) == [USER]


FAULTS = (
    InputError("cannot write /srv/run/x: No space left"),
    PermissionError("/srv/run/x"),
    OSError(28, "full"),
)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_servers_disk_is_told_to_nobody(broker: Broker, fault: Exception) -> None:
    def keep(device: str, number: int, content: bytes) -> None:
        raise fault

    broker.broker.keep = keep
    assert broker.post(broker.release) == (503, b"the server cannot do that now; ask again\n")
    broker.broker.keep = lambda *given: None
    assert broker.post(broker.release, number=NUMBER) == (200, b"taken\n")


def test_the_protocol_is_put_together_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real: Callable[[], object] = pages.document
    monkeypatch.setattr(pages, "document", lambda: [made.append(1), real()][1])
    pages._document.cache_clear()
    assert {broker.ask("GET", "/openapi.json")[0] for _ in range(5)} == {200}
    assert made == [1]


def test_who_writes_keys_keeps_nobody_from_reading_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is looked up while another thread flushes a line to a slow disk."""
    known, flushing, slow = Keys(tmp_path), threading.Event(), threading.Event()
    code = known.issue([USER])[USER]

    def fsync(handle: int) -> None:
        flushing.set()
        assert slow.wait(20)

    monkeypatch.setattr(keys.os, "fsync", fsync)
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(known.enrol, code, "11" * 32)
        assert flushing.wait(10)
        assert pool.submit(known.user_of, "22" * 32).result(10) is None
        slow.set()
        assert writing.result(10) == USER
