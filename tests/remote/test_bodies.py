"""Bodies are read within bounds: none that nobody waits for, one of a key at a time, and nothing in one ends a run."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import Any

import pytest

from edge.connection import CONFLICT, OK, RELEASE, SUMS, TOO_MANY
from edge.secure_sum import SEALED
from edge.sum_messages import STEPS, Agreeing, KeysMessage, Opening, Shares
from edgefr.serving import bodies
from edgefr.serving import broker as brokers
from edgefr.serving.admission import RequestRefused, reading
from edgefr.serving.secure_sums import SealedRound, SumTerms
from privacy.errors import InputError
from privacy.files import packed
from privacy.masks import Keys, Revealed
from privacy.secret_sharing import SHARE
from tests.contract import bundles
from tests.remote.test_server import NUMBER, USER, Broker, one_line
from tests.remote.test_server import broker as broker

PATH = f"{RELEASE}?round={NUMBER}"
TERMS = SumTerms(size=300, grid=0.5, largest=100, length=100.0, order=2)
OUTSIDE = bundles.user(3)


def begun(broker: Broker, path: str, body: bytes, user: str = USER, sent: int = 0) -> socket.socket:
    """A connection whose request has a head, and so many bytes of its body."""
    made = socket.create_connection(broker.address, timeout=20)
    signed = broker.signature("POST", path, body, user)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {signed}\r\nContent-Length: {len(body)}\r\n\r\n"
    made.sendall(head.encode() + body[:sent])
    return made


def status_of(one: socket.socket) -> int:
    return int(one.recv(1000).split()[1])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is read on for less than a second."""
    monkeypatch.setattr(bodies, "LINGER_S", 0.05)


def summed(broker: Broker, users: list[str]) -> SealedRound:
    """A round of sums that is open."""
    sealed = SealedRound(broker.broker.bundles[USER], NUMBER, TERMS, users, 3)
    broker.broker.open(NUMBER, {broker.broker.bundles[USER]: b""}, users, sealed=sealed)
    return sealed


def test_no_byte_of_a_body_is_read_that_nobody_waits_for(broker: Broker) -> None:
    """The head alone is sent: a server that asked later would wait for the body, with the room for it."""
    body = bytes(9000)

    def refused(path: str, user: str = USER) -> None:
        with begun(broker, path, body, user) as one:
            assert status_of(one) == CONFLICT, path

    refused(f"{RELEASE}?round={NUMBER + 1}")
    refused(PATH, OUTSIDE)
    for step in STEPS:
        refused(f"{SUMS}/{step}?round={NUMBER}")
    assert broker.post(broker.release) == (OK, b"taken\n")
    refused(PATH)  # another release than was taken
    assert broker.post(broker.release) == (OK, b"taken\n")
    summed(broker, [USER, OUTSIDE, bundles.user(0)])
    refused(PATH)
    for step in STEPS[1:]:
        refused(f"{SUMS}/{step}?round={NUMBER}")
    broker.broker.close()
    refused(f"{SUMS}/keys?round={NUMBER}")
    assert broker.broker.counts.uploads == 1


def test_of_one_key_one_body_is_read_at_a_time_and_the_later_takes_its_place(broker: Broker) -> None:
    """A device whose connection broke comes again at once; who opens many has the room of one."""
    body, reading = broker.release.to_bytes(), broker.server.pages.bodies.under_way
    several = []
    for _ in range(6):
        several.append(begun(broker, PATH, body, sent=len(body) // 2))
        until = time.monotonic() + 10.0
        while not reading and time.monotonic() < until:
            time.sleep(0.01)
        assert len(reading) == 1
    assert broker.post(broker.release) == (OK, b"taken\n")
    assert [status_of(one) for one in several] == [TOO_MANY] * 6
    for one in several:
        one.close()
    assert reading == {}
    assert broker.broker.counts.uploads == 1


def test_two_keys_are_read_at_once(broker: Broker) -> None:
    other, body = bundles.user(0), broker.release.to_bytes()
    with begun(broker, PATH, body, sent=40) as one:
        assert broker.post(broker.release, other) == (OK, b"taken\n")
        one.sendall(body[40:])
        assert status_of(one) == OK
    assert broker.broker.counts.uploads == 2


def test_each_kind_of_message_has_its_own_limit(broker: Broker) -> None:
    sealed = summed(broker, [USER, OUTSIDE, bundles.user(0)])
    limit = sealed.expects(USER, "keys", bytes(32))
    assert limit < 1000 < broker.server.pages.limit
    path = f"{SUMS}/keys?round={NUMBER}"
    one_line(*broker.ask("POST", path, bytes(limit + 1)), 413, f"more than the {limit:,} that are taken here")
    one_line(*broker.ask("POST", path, bytes(limit)), 400, "not a message of a secure sum")


@pytest.mark.parametrize("devices", [3, 100, 400])
def test_what_devices_send_in_a_sum_is_within_its_limits(devices: int) -> None:
    """As they write it, indented as somebody else may, and with the longest numbers."""
    users = [str(n) for n in range(devices)]
    sealed = SealedRound("0" * 64, NUMBER, TERMS, users, 3)
    near = range(999_999_999, 999_999_999 - devices + 1, -1)
    messages = {
        "keys": KeysMessage.of(Keys(bytes(32), bytes(32), bytes(32))),
        "shares": Shares.of(dict.fromkeys(near, bytes(SEALED))),
        "agree": Agreeing(signature=bytes(64).hex()),
        "opening": Opening.of(Revealed(dict.fromkeys(near, bytes(SHARE)), {})),
    }
    for step in STEPS:
        sealed._step = step
        sealed._taken = {one: dict.fromkeys(sealed.numbers.values(), b"") for one in STEPS}
        sealed._taken[step] = {}
        limit = sealed.expects(users[0], step, bytes(32))
        longest = 4 * TERMS.size if step == "vector" else len(messages[step].model_dump_json(indent=2))
        assert longest <= limit <= max(2 * longest, 2000), step


DEEP = b"[" * 200_000


def test_json_that_is_nested_deep_is_refused_and_ends_nothing(broker: Broker) -> None:
    facts = packed({"update": broker.release.update}, {"release": DEEP.decode()})
    nested = len(DEEP).to_bytes(8, "little") + DEEP
    for body in (facts, nested, DEEP, b'{"a":' * 200_000):
        one_line(*broker.post(body), 400, "not a release of this bundle")
    summed(broker, [USER, OUTSIDE, bundles.user(0)])
    for body in (b"[" * 500, b'{"mask":' * 60):
        one_line(*broker.ask("POST", f"{SUMS}/keys?round={NUMBER}", body), 400, "not a message of a secure sum")
    one_line(*broker.ask("POST", "/enrol", b"[" * 256), 400, "the body is no code")
    assert broker.ask("GET", "/metrics")[0] == OK


@pytest.mark.parametrize("error", [RecursionError, MemoryError, AssertionError, OverflowError, UnicodeError, OSError])
def test_whatever_reading_raises_is_a_refusal_of_who_sent_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def raises(*given: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(brokers, "read_update", raises)
        one_line(*broker.post(broker.release), 400, "not a release of this bundle")
    assert broker.post(broker.release) == (OK, b"taken\n")


def test_a_refusal_says_one_thing() -> None:
    for raised, said in (
        (InputError("it is too old"), "it is too old"),
        (KeyError("facts"), "no release: 'facts'"),
        (RecursionError(), "no release: RecursionError"),
        (RequestRefused(CONFLICT, "over"), "over"),
    ):
        with pytest.raises(RequestRefused) as refused, reading("no release"):
            raise raised
        assert str(refused.value) == said
    with pytest.raises(KeyboardInterrupt), reading("no release"):
        raise KeyboardInterrupt


def test_a_body_that_was_not_signed_is_not_taken(broker: Broker) -> None:
    """The digest in the head is of what was taken before, and the body is another."""
    assert broker.post(broker.release) == (OK, b"taken\n")
    right, wrong = broker.release.to_bytes(), replace(broker.release, round=NUMBER + 1).to_bytes()
    header = broker.signature("POST", PATH, right)
    one_line(*broker.ask("POST", PATH, wrong, Authorization=header), 400, "not the one that was signed")
    assert broker.broker.counts.uploads == 1
