"""The HTTP counter of an `RoundBroker`: the standard library's server, with bounds on everything a stranger decides.

Bodies, headers (the library's: 100 lines of 64 KiB), connections at a time and the time of each are limited; every
refusal is one line of plain text. Owns: HTTP. Does not own: what is asked and answered (`broker`).
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edge.connection import BAD, DIGITS, DONE, ENROL, FORBIDDEN, LOOPBACK, OK, RELEASE, ROUND, TASK, WAIT
from edge.identity import Signed
from edge.remote import release_limit
from edgefr.remote.broker import UNKNOWN, RoundBroker
from edgefr.remote.gate import Gate, Refused, check_body
from edgefr.remote.keys import Keys
from privacy.errors import InputError

NO_LENGTH, TOO_LARGE = 411, 413
POLL_S = 20.0  # how long a request for a task is held
SILENCE_S = 15.0  # without a byte from the other side
REQUEST_S = 180.0  # all of one request
DISCARDED, LINGER_S = 1 << 20, 1.0  # bytes and seconds for which a refused body is read, so that the refusal arrives
LONGEST_CODE = 256  # bytes of a body that enrols


@dataclass(frozen=True)
class Access:
    """This says where a server is open.

    `cert` and `key`: files of its TLS certificate (PEM), both or neither; a server that other hosts reach has them.

    >>> Access().host
    '127.0.0.1'
    """

    host: str = "127.0.0.1"
    port: int = 0
    cert: Path | None = None
    key: Path | None = None
    connections: int = 256

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InputError("TLS needs a certificate and its key: give both --tls-cert and --tls-key")

    @property
    def open(self) -> bool:
        """Say whether other hosts reach it."""
        return self.host not in LOOPBACK

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs; None without it.

        Raises `InputError` for files that are no certificate and key, and where other hosts would come without TLS.
        """
        if self.cert is None:
            if self.open:
                raise InputError(f"other hosts reach {self.host}: give a certificate and its key as well")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot use {self.cert} and {self.key} for TLS: {error}") from error
        return context


class Server(ThreadingHTTPServer):
    """The server serves a round broker, a thread per connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, broker: RoundBroker, keys: Keys, access: Access):
        self.broker, self.gate, self.access, self.tls = broker, Gate(keys), access, access.context()
        self.limit = release_limit(broker.learning)
        self.slots = threading.BoundedSemaphore(access.connections)
        self.ends: dict[socket.socket, float] = {}  # of open connections
        self.address_family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
        super().__init__((access.host, access.port), Handler)

    @property
    def url(self) -> str:
        """Return where it is reached."""
        host = f"[{self.access.host}]" if ":" in self.access.host else self.access.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Bind as the library does, without asking the network for this host's name.

        A server that starts again has its port again, though connections of the one before are not all forgotten.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if there is room for one more.

        Else it is closed, and the device comes again.
        """
        if not self.slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def service_actions(self) -> None:
        """Cut connections that take too long; this is called several times a second."""
        now = time.monotonic()
        for connection, end in list(self.ends.items()):
            if now > end:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the other side's affair; anything else is a fault of ours, and told."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def listening(broker: RoundBroker, keys: Keys, access: Access) -> Iterator[Server]:
    """Yield a server at work in its own thread. Raises `InputError` for an address that cannot be used."""
    try:
        server = Server(broker, keys, access)
    except OSError as error:
        raise InputError(f"cannot listen on {access.host} port {access.port}: {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """A handler serves one connection: one request and its answer."""

    server: Server
    timeout = SILENCE_S
    server_version, sys_version = "edgefr", ""

    def setup(self) -> None:
        if self.server.tls is not None:  # here, not where connections are accepted: a handshake takes its time
            self.request.settimeout(SILENCE_S)
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        self.server.ends[self.request] = time.monotonic() + REQUEST_S
        super().setup()

    def finish(self) -> None:
        self.server.ends.pop(self.request, None)
        with suppress(OSError):
            super().finish()
        if self.server.tls is not None:
            self.request.close()

    def do_GET(self) -> None:
        self._answer({TASK: self._task})

    def do_POST(self) -> None:
        self._answer({RELEASE: self._release, ENROL: self._enrol})

    def _answer(self, pages: dict[str, Callable[[], None]]) -> None:
        self.unread = 0
        try:
            self._bound()
            page = pages.get(urlsplit(self.path).path)
            if page is None:
                raise Refused(UNKNOWN, "there is no such page")
            page()
        except Refused as refused:
            self.server.broker.refuse()
            self._send(refused.status, f"{' '.join(str(refused).split())}\n".encode(), headers=refused.headers)
            self._discard()

    def _bound(self) -> None:
        """Check how much body there is to be read."""
        length = self.headers.get("Content-Length", "0" if self.command == "GET" else "")
        known = length.isascii() and length.isdigit() and len(length) < 16
        self.unread = int(length) if known else DISCARDED
        if not known or "Transfer-Encoding" in self.headers:
            raise Refused(NO_LENGTH, "say how long the body is")
        limit = LONGEST_CODE if self.path == ENROL else self.server.limit
        if self.unread > limit:
            raise Refused(TOO_LARGE, f"{self.unread:,} bytes are more than the {limit:,} of a release")

    @property
    def _signature(self) -> tuple[str, str, str]:
        return self.command, self.path, self.headers.get("Authorization", "")

    def _task(self) -> None:
        device, _ = self.server.gate.admit(*self._signature)
        task = self.server.broker.task(device, self._asked("after"), POLL_S)
        if task is None:
            self._send(WAIT, b"")
            return
        self._send(DONE if task.done else WAIT if task.rest else OK, task.content, task.round)
        if not task.rest:
            self.server.broker.handed(device, task)

    def _release(self) -> None:
        device, signed = self.server.gate.admit(*self._signature)
        number = self._asked("round")
        self.server.broker.submit(device, number, self._body(signed))
        self._send(OK, b"taken\n", number)

    def _enrol(self) -> None:
        signed = self.server.gate.stranger(*self._signature)
        try:
            code = json.loads(self._body(signed))["code"]
            user = self.server.gate.keys.enrol(str(code), signed.key)
        except InputError as error:
            raise Refused(FORBIDDEN, str(error)) from error
        except (ValueError, LookupError, TypeError):
            raise Refused(BAD, "the body is no code") from None
        self._send(OK, json.dumps({"user": user}).encode())

    def _body(self, signed: Signed) -> bytes:
        content = self.rfile.read(self.unread)
        if len(content) < self.unread:
            raise ConnectionError("the body ended early")
        self.unread = 0
        check_body(signed, content)
        return content

    def _asked(self, number: str) -> int:
        """Return the number of a query."""
        try:
            query = parse_qs(urlsplit(self.path).query, strict_parsing=True, max_num_fields=1)
            (value,) = query[number]
        except (ValueError, KeyError):
            raise Refused(BAD, f"ask with {number}, once") from None
        if not (value.isascii() and value.isdigit() and len(value) <= DIGITS):
            raise Refused(BAD, f"{number} is a whole number")
        return int(value)

    def _discard(self) -> None:
        """Read on a little after a refusal: closed on bytes that nobody read, a connection loses what was sent."""
        left = min(self.unread, DISCARDED)
        with suppress(OSError):
            self.wfile.flush()
            self.connection.settimeout(LINGER_S)
            while left and (got := len(self.rfile.read1(min(left, 1 << 16)))):
                left -= got

    def _send(
        self, status: int, body: bytes, number: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**({} if number is None else {ROUND: str(number)}), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header(
            "Content-Type", "text/plain" if status >= BAD and status != DONE else "application/octet-stream"
        )
        if status != WAIT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
