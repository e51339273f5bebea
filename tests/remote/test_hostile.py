"""Thousands of requests that no honest device makes: each is refused as declared, nothing is taken, nobody is charged.

They go to the server's own application, in this process; some more as raw bytes over sockets, where most are no HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from edge import connection
from edge.bundle import open_bundle
from edge.connection import SUMS
from edge.identity import Identity, Signed
from edge.remote import release_limit
from edge.sum_messages import STEPS
from edge.update import ClientUpdate
from edgefr.serving import admission as gate
from edgefr.serving import pages
from edgefr.serving.admission import Gate
from edgefr.serving.broker import RoundBroker
from edgefr.serving.delivery import Delivery
from edgefr.serving.keys import Keys
from edgefr.serving.origin import Origin
from edgefr.serving.pages import Pages
from edgefr.serving.protocol import BODY, NOT_ALLOWED, OPERATIONS, UNKNOWN, Operation
from edgefr.simulation.runs.run import Run
from privacy.files import packed
from tests.contract import bundles
from tests.remote.test_server import Broker, learned
from tests.remote.test_server import broker as broker
from tests.remote.worlds import known

REQUESTS, AT_ONCE = 2400, 12
NUMBER, CLIENT = bundles.ROUND, 7
USER, OTHER, REVOKED = bundles.user(CLIENT), bundles.user(0), bundles.user(3)
PAGES = {(one.method, one.path): one for one in OPERATIONS}
FILES = f"{connection.FILES}/"


def page_of(method: str, path: str) -> Operation | None:
    """What is declared of a path, of whichever file it is."""
    rest = path.removeprefix(FILES)
    return PAGES.get((method, f"{FILES}{{sha256}}" if path.startswith(FILES) and rest and "/" not in rest else path))


@dataclass(frozen=True)
class Request:
    """One request; `who` signs it (None: nobody), and `spoilt` is what is then wrong with the signature."""

    method: str
    path: str
    body: bytes = b""
    who: str | None = None
    spoilt: str = "nothing"
    headers: tuple[tuple[str, str], ...] = ()
    pieces: int = 1
    ends: bool = True  # False: the connection is lost before the end of the body


@dataclass
class Target:
    """The application of a server with one open round, and who may be somebody there."""

    folder: Path
    broker: RoundBroker
    pages: Pages
    who: dict[str, Identity]
    update: ClientUpdate
    loop: asyncio.AbstractEventLoop
    nonce: int = field(default_factory=time.time_ns)
    seen: Counter[int] = field(default_factory=Counter)
    earlier: list[str] = field(default_factory=list)

    @classmethod
    def made(cls, folder: Path) -> Target:
        origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
        broker = RoundBroker(origin.bundles, origin.learning, origin.items)
        broker.open(NUMBER, {origin.bundle: b"update"}, [USER, OTHER])
        keys, run = Keys(folder), Run(folder)
        who = {name: known(run, folder / name, name) for name in (USER, OTHER, REVOKED)}
        keys.revoke(REVOKED)
        who["stranger"] = Identity.made(folder / "stranger")
        limit = release_limit(origin.learning)
        held = Delivery.of([(open_bundle(bundles.bundle("fedmf")), [USER])])  # which carries users, so nobody gets it
        made = Pages(broker, Gate(keys), limit, held)
        return cls(folder, broker, made, who, learned(), asyncio.new_event_loop())

    @property
    def release(self) -> bytes:
        """What an honest device sends."""
        return self.update.to_bytes()

    def signature(self, one: Request) -> str:
        """The header of a request, spoilt as it says."""
        self.nonce += 1
        who, session, now = self.who[one.who or "stranger"], self.pages.gate.session, int(time.time())
        if one.spoilt == "session":
            session = "0" * 32
        if one.spoilt == "late":
            now -= gate.CLOCK_S + 60
        path = "/task?after=9" if one.spoilt == "path" else one.path
        method = "DELETE" if one.spoilt == "method" else one.method
        body = b"another" if one.spoilt == "body" else one.body
        said = who.signed(method, path, body, session, self.nonce, now)
        if one.spoilt == "name":  # of another who is enrolled
            said = replace(said, key=self.who[OTHER if one.who == USER else USER].key)
        if one.spoilt == "nonce":
            said = replace(said, nonce=said.nonce + 1)
        if one.spoilt == "replay" and self.earlier:
            return self.earlier[len(one.body) % len(self.earlier)]
        if one.spoilt == "cut":
            return said.header[: len(one.body) % len(said.header)]
        return said.header

    def ask(self, one: Request) -> tuple[int, dict[bytes, bytes], bytes]:
        """What the application answers; raises what it raises."""
        raw, _, query = one.path.partition("?")
        heads = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in one.headers]
        if one.who is not None:
            heads.append((b"authorization", self.signature(one).encode()))
        if one.body and b"content-length" not in dict(heads):
            heads.append((b"content-length", b"%d" % len(one.body)))
        scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
        scope |= {"method": one.method, "path": unquote(raw), "raw_path": raw.encode(), "headers": heads}
        scope |= {"query_string": query.encode(), "root_path": "", "client": ("203.0.113.9", 1), "server": ("x", 1)}
        size = max(1, len(one.body) // one.pieces)
        parts = [one.body[at : at + size] for at in range(0, len(one.body), size)] or [b""]
        feed: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        feed[-1]["more_body"] = not one.ends
        answer: list[Message] = []

        async def receive() -> Message:
            return feed.pop(0) if feed else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            answer.append(message)

        self.loop.run_until_complete(self.pages.app()(scope, receive, send))
        assert answer[0]["type"] == "http.response.start", "nothing was answered"
        body = b"".join(message.get("body", b"") for message in answer[1:])
        return answer[0]["status"], dict(answer[0]["headers"]), body

    def hit(self, one: Request) -> None:
        """Send it, and see that it was refused as the protocol says."""
        status, headers, body = self.ask(one)
        self.seen[status] += 1
        page = page_of(one.method, unquote(one.path.partition("?")[0]))
        if page is None:  # and where both are wrong, or the path is written in another way
            assert status in (UNKNOWN, NOT_ALLOWED, *BODY), (one, status, body)
        elif page.asker == "anybody":
            assert status in page.replies, (one, status, body)
            return
        else:
            assert status >= 400 and status in page.replies, (one, status, body)  # noqa: PT018 - one rule
        if one.ends:
            assert headers[b"content-type"].startswith(b"text/plain"), (one, headers)
            assert len(body.decode().splitlines()) == 1, (one, body)
        assert b"Traceback" not in body
        assert b"/" + self.folder.name.encode() not in body, "no place on the server's disk is told"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setattr(pages, "POLL_S", 0.0)
    monkeypatch.setattr(gate, "BURST", 10**9)
    made = Target.made(tmp_path)
    yield made
    made.loop.close()


PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
LATIN = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=60)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get"])
QUERIES = st.sampled_from(["after=-1", "after=1e3", "after=", "after=1&after=2", "after=%00", "after=" + "9" * 99, "a"])
LENGTHS = st.sampled_from(["-1", "1e3", "9" * 40, "99999999999", "", " 5", "0x10", "+5"])
WAYS = ("session", "late", "path", "method", "body", "name", "nonce", "replay", "cut")
SPOILT, STEPPED = st.sampled_from(WAYS), st.sampled_from(STEPS)
NAMES = st.sampled_from(["Authorization", "Content-Length", "Transfer-Encoding", "Range", "Cookie", "X-Forwarded-For"])


def malformed(release: bytes) -> st.SearchStrategy[bytes]:
    """Bodies that no device makes of a right one, and bodies of anything."""
    size = int.from_bytes(release[:8], "little")
    header = json.loads(release[8 : 8 + size])
    facts, values = json.loads(header["__metadata__"]["release"]), release[8 + size :]
    tensors = {name: told for name, told in header.items() if name != "__metadata__"}

    def with_header(text: str) -> bytes:
        return len(text.encode()).to_bytes(8, "little") + text.encode() + values

    def told(text: str) -> bytes:
        return with_header(json.dumps({**tensors, "__metadata__": {"release": text}}))

    def changed(change: dict[str, Any]) -> bytes:
        return with_header(json.dumps({name: {**tensor, **change} for name, tensor in tensors.items()}))

    wrong: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.integers(), st.floats(), st.text(max_size=9), st.just([]), st.just({}), st.booleans()
    )
    fields = st.sampled_from(["schema", "bundle", "round", "tables", "examples", "dropped", "more"])
    return st.one_of(
        st.binary(max_size=300),
        st.integers(0, len(release) - 1).map(lambda at: release[:at]),
        st.binary(min_size=1, max_size=9).map(lambda more: release + more),
        st.integers(0, 2**64 - 1).filter(lambda n: n != size).map(lambda n: n.to_bytes(8, "little") + release[8:]),
        st.builds(lambda name, value: told(json.dumps(facts | {name: value})), fields, wrong),
        st.integers(2, 100_000).map(lambda deep: with_header("[" * deep + "]" * deep)),
        st.integers(2, 5000).map(lambda deep: told("[" * deep + "]" * deep)),
        st.sampled_from(["BF16", "F8", "I32", "", "F32 "]).map(lambda kind: changed({"dtype": kind})),
        st.lists(st.integers(-(2**40), 2**40), max_size=3).map(lambda shape: changed({"shape": shape})),
        st.lists(st.integers(-(2**70), 2**70), max_size=3).map(lambda at: changed({"data_offsets": at})),
        st.just(packed({}, {})),
    )


def requests(target: Target) -> st.SearchStrategy[Request]:
    """Requests of every kind of stranger, and malformed ones of devices that are enrolled."""
    right, path = target.release, f"/release?round={NUMBER}"
    bodies, insiders = malformed(right), st.sampled_from([USER, OTHER])
    outsiders, anyones = st.sampled_from([REVOKED, "stranger"]), st.sampled_from([USER, OTHER, REVOKED, "stranger"])
    heads = st.lists(st.tuples(NAMES, LATIN), max_size=3).map(tuple)
    asked = st.sampled_from([("GET", "/task?after=0", b""), ("POST", path, right)])
    codes = st.text("0123456789abcdef", min_size=32, max_size=32) | st.text(max_size=40) | st.integers() | st.none()
    rounds = st.integers(NUMBER + 1, 10**9 - 1) | st.just(0)
    digests = st.sampled_from(["0" * 64, "..%2f..%2fprivate%2fkeys.jsonl", "F" * 64, "a", "%00", "{sha256}"])
    anything = st.sampled_from(["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=5-1", "bytes=0-1,2-3", "x", "bytes=9e9-"])
    spans = st.builds(lambda text: (("Range", text),), anything | LATIN)
    odd = ["/task", "/bundle", "/files", "/files/", "/files/a/b", "/release", "/enrol", "/metrics", "/task/", "//task"]
    odd_paths = st.sampled_from([*odd, "/%74ask?after=0"])

    def of_round(number: int) -> bytes:
        return replace(target.update, round=number).to_bytes()

    def post(body: bytes, who: str, where: str = path, **more: Any) -> Request:
        return Request("POST", where, body, who, **more)

    return st.one_of(
        st.builds(Request, METHODS | PRINTABLE, PRINTABLE.map(lambda text: f"/{text}"), bodies, headers=heads),
        st.builds(Request, METHODS, odd_paths, headers=heads),
        st.builds(Request, st.just("POST"), st.sampled_from([path, "/enrol"]), bodies, headers=heads),
        st.builds(lambda a, who: Request(*a, who=who), asked, outsiders),
        st.builds(lambda a, who, how: Request(*a, who=who, spoilt=how), asked, anyones, SPOILT),
        st.builds(lambda query, who: Request("GET", f"/task?{query}", b"", who), QUERIES, insiders),
        st.builds(post, bodies, insiders, pieces=st.integers(1, 4), ends=st.booleans()),
        st.builds(lambda body, who: post(body[:256], who, "/enrol"), bodies, anyones),
        st.builds(lambda body, who, step: post(body, who, f"{SUMS}/{step}?round={NUMBER}"), bodies, anyones, STEPPED),
        st.builds(lambda code: post(json.dumps({"code": code}).encode()[:256], "stranger", "/enrol"), codes),
        st.builds(lambda number, who: post(right, who, f"/release?round={number}"), rounds, insiders),
        st.builds(lambda n, who: post(of_round(n), who, f"/release?round={n}"), rounds, insiders),
        st.builds(lambda length, who: post(right, who, headers=(("Content-Length", length),)), LENGTHS, insiders),
        st.builds(lambda who: post(right, who, headers=(("Transfer-Encoding", "chunked"),)), insiders),
        st.builds(
            lambda name, who, heads: Request("GET", f"{FILES}{name}", b"", who, headers=heads), digests, anyones, spans
        ),
        st.builds(lambda who, how: Request("GET", "/bundle", b"", who, spoilt=how), anyones, SPOILT),
        st.builds(lambda who: Request("GET", "/bundle", b"", who), st.sampled_from([OTHER, REVOKED, "stranger"])),
        st.builds(lambda who: Request("HEAD", "/task?after=0", b"", who), insiders),
    )


def is_right(one: Request, target: Target) -> bool:
    """Say whether a drawn request happens to be an honest one."""
    return one.spoilt == "nothing" and one.who in (USER, OTHER) and one.body == target.release and one.ends


def test_2400_hostile_requests_are_refused_and_nobody_is_charged(target: Target) -> None:
    enrolled = target.folder / "private/keys.jsonl"
    before, hits = enrolled.read_bytes(), 0
    signed = Request("GET", "/task?after=7", b"", USER)
    target.earlier = [target.signature(replace(signed, who=name)) for name in (USER, OTHER)]
    for header in target.earlier:  # what an attacker has heard: right requests, each of which was answered once
        found = Signed.of(header)
        assert found is not None
        target.pages.gate.admit("GET", "/task?after=7", header)

    @settings(
        max_examples=REQUESTS // AT_ONCE,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],  # a server remembers, so a shorter attack is another one
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(requests(target), min_size=AT_ONCE, max_size=AT_ONCE))
    def attack(several: list[Request]) -> None:
        nonlocal hits
        for one in several:
            if not (is_right(one, target) and one.path == f"/release?round={NUMBER}" and not one.headers):
                target.hit(one)
                hits += 1

    for method, path, body in (("GET", "/task?after=0", b""), ("POST", f"/release?round={NUMBER}", target.release)):
        for who, spoilt in product(target.who, WAYS):
            target.hit(Request(method, path, body, who, spoilt))
    deep = b"[" * 90_000 + b"]" * 90_000
    whole = (len(target.release) - 8).to_bytes(8, "little") + deep[: len(target.release) - 8]  # of the right length
    for who, body in product((USER, OTHER), (deep, len(deep).to_bytes(8, "little") + deep, whole)):
        target.hit(Request("POST", f"/release?round={NUMBER}", body, who))
    attack()
    assert hits >= 2000, hits
    assert set(target.seen) >= {400, 401, 403, 404, 405, 409, 411, 413}, target.seen
    assert (target.broker.counts.uploads, target.broker.counts.bytes_down) == (0, 0)
    assert enrolled.read_bytes() == before, "a key was enrolled or lost"
    assert not (target.folder / "private/answers").exists()
    honest = Request("POST", f"/release?round={NUMBER}", target.release, USER)
    assert target.ask(honest)[0] == 200, "and who is honest goes on"
    assert target.broker.close() == {USER}, "who is honest is charged for what it sent, and nobody else for anything"


def test_bytes_that_are_no_http_end_a_connection_and_nothing_else(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each on a socket of its own: garbage, cut heads, two lengths, lengths that lie, huge heads, TLS's first bytes."""
    head, right = b"POST /release?round=2 HTTP/1.1\r\nHost: x\r\n", broker.release.to_bytes()
    blobs = [bytes(range(256)), b"\x16\x03\x01\x02\x00\x01", b"GET", b"\r\n" * 50, b"GET / HTTP/9.9\r\n\r\n", head]
    blobs += [
        head + b"Content-Length: %s\r\n\r\n" % n + right[:40]
        for n in (b"5, 6", b"-1", b"40\r\nContent-Length: 41", b"9e9")
    ]
    blobs += [head + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"]
    blobs += [b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", head + b"X: " + b"y" * 40_000 + b"\r\n\r\n"]
    blobs += [head + b"X: 1\r\n" * 4000 + b"\r\n", b"GET /task?after=0 HTTP/1.1\r\nAuthorization: \xff\xfe\r\n\r\n"]
    blobs += [right[at:] for at in range(0, len(right), len(right) // 20)]

    def sent(blob: bytes) -> bytes:
        with socket.create_connection(broker.address, timeout=10) as plain:
            try:
                plain.sendall(blob)
                plain.shutdown(socket.SHUT_WR)
                return plain.recv(1 << 16)
            except OSError:
                return b""  # it was cut while it still spoke

    with caplog.at_level(logging.DEBUG), ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(sent, blobs * 5))
    statuses = {answer.split()[1] for answer in answers if answer}
    assert statuses <= {b"400", b"401", b"411", b"404", b"413"}, statuses
    assert b"400" in statuses
    assert [entry for entry in caplog.records if entry.exc_info] == []
    assert broker.broker.counts.uploads == 0
    assert broker.post(broker.release)[0] == 200
    assert broker.broker.close() == {USER}
