"""One server as a device sees it: signed requests, answers with a limit, and TLS to the key it was told of.

    GET  /task?after=N       200 the open round above N, 204 none yet, 410 no more rounds; 204 with a round: it goes on
                             without this device, whose privacy budget is spent
    POST /release?round=N    200 taken (also when sent again), 409 the round has closed, other: refused
    POST /enrol              200 with the user's name: the key of the request is enrolled with the code in its body
    POST /sum/STEP?round=N   200 taken, 409 the sum goes on without this device (`edge.sum_messages`)
    GET  /sum/STEP?round=N   200 what the step came to, 204 it has not ended, 409 as above
    GET  /bundle             200 the manifest of the device's bundle, its signature behind it
    GET  /files/SHA256       206 the bytes that `Range` asks for of a file of that bundle

`Edgefr-Round` is the number of the round. 401 with `Edgefr-Session` or `Edgefr-Nonce` says what to sign with; the
request is then signed and sent again. One request per connection, no redirects, no proxies. Other hosts are reached by
TLS alone.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from edge.identity import Identity, opened_code
from edge.pacing import Deadline, Pace
from edge.records import MOST_ROUNDS, Record
from edge.sum_messages import Seat, Step
from privacy.errors import InputError

ROUND, SESSION, NONCE, SUM = "Edgefr-Round", "Edgefr-Session", "Edgefr-Nonce", "Edgefr-Sum"
"""Headers with a round's number, the session of the server's start, a key's last nonce, and a seat in a secure sum."""
BUNDLE = "Edgefr-Bundle"
"""Header with the id of the bundle that the server takes the asking device to hold."""
TASK, RELEASE, ENROL, SUMS = "/task", "/release", "/enrol", "/sum"
MANIFEST, FILES = "/bundle", "/files"
OK, WAIT, BAD, UNSIGNED, FORBIDDEN, CONFLICT, DONE, TOO_MANY = 200, 204, 400, 401, 403, 409, 410, 429
PART, NO_PART = 206, 416
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LINE = 300  # characters of a server's refusal that are shown
CHUNK = 1 << 16  # bytes read at once
DIGITS = len(str(MOST_ROUNDS))  # longest number of a round
UNKNOWN_TO_IT = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_HANDSHAKE_FAILURE")
"""What TLS says where a server wants a certificate of its own authority and the device shows none, or another's."""

Method = Literal["GET", "POST"]
Headers = Mapping[str, str]
NO_HEADERS: Headers = {}


@dataclass(frozen=True)
class Patience:
    """This says how long a device bears with a server.

    `tries` of a request that fails, with pauses that double from `pause_s` up to `longest_s`; `request_s`: all of one
    request; `idle_s` without work, and `fruitless` rounds in a row of which nothing was taken, after which it gives up.
    """

    tries: int = 8
    pause_s: float = 0.25
    longest_s: float = 8.0
    request_s: float = 120.0
    idle_s: float = 3600.0
    fruitless: int = 100


@dataclass(frozen=True)
class RoundTask:
    """A task is a round to be done.

    `done`: there are no more, and `content` is the server's last word. `rest`: it goes on without this device, whose
    privacy budget is spent. `seat`: uploads of the round are summed under masks, and this is the device's place there.
    `bundle`: id of the bundle that the content changes; None: the server does not say.
    """

    round: int
    content: bytes
    done: bool
    rest: bool = False
    seat: Seat | None = None
    bundle: str | None = None


@dataclass
class Session:
    """This is what a device signs with, the session of the server's start and the last nonce it used, and its pace."""

    name: str = ""
    nonce: int = field(default_factory=time.time_ns)
    pace: Pace = field(default_factory=Pace)


class Code(Record):
    """This is the body of a request that enrols: the secret of a one-time code."""

    code: str = Field(pattern="^[0-9a-f]{32}$", description="what stands before the dot of a one-time code")


class KeyOwner(Record):
    """The answer to it says whom the key of the request stands for from now on."""

    user: str = Field(description="name that the server knows the device by")


@dataclass(frozen=True)
class ServerAnswer:
    """This is what a server answers: status, the round it named, the body, and what it wants signed."""

    status: int
    round: int | None
    body: bytes
    session: str | None = None
    nonce: int | None = None
    seat: Seat | None = None
    bundle: str | None = None


@dataclass(frozen=True)
class Server:
    """This is a server as a device sees it.

    `identity`: signs every request. `ca`: file of the authority that signed the server's certificate (None: the
    system's); where enrolment named the server's key, that key alone is taken, whoever signed. `shown`: certificate and
    key (PEM) that the device shows a server which asks for one.

    Raises `InputError` for an address that is none, and for one that is reached in the clear on another host.
    """

    url: str
    identity: Identity
    ca: Path | None = None
    patience: Patience = field(default_factory=Patience)
    shown: tuple[Path, Path] | None = None
    session: Session = field(default_factory=Session)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            plain = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/")
            if not plain or parts.query or parts.fragment or parts.username is not None or (parts.port or 1) < 1:
                raise ValueError
        except ValueError:
            raise InputError(f"{self.url!r} is no server's address; give one such as http://127.0.0.1:8080") from None
        if parts.scheme == "http" and self.host not in LOOPBACK:
            raise InputError(f"all would travel in the clear to {self.host}; give an https address")
        if self.ca is not None and not self.ca.is_file():
            raise InputError(f"{self.ca} is not there; give the certificate that signed the server's")

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    def task(self, after: int, limit: int) -> RoundTask | None:
        """Return the round above `after` that is open, None if there is none yet. `limit`: bytes of the answer."""
        answer = self._ask("GET", f"{TASK}?after={after}", (OK, DONE, WAIT), limit=limit)
        if answer.status == WAIT:
            return None if answer.round is None else RoundTask(answer.round, b"", done=False, rest=True)
        if answer.round is None:
            raise self._refused(answer)
        return RoundTask(answer.round, answer.body, answer.status == DONE, seat=answer.seat, bundle=answer.bundle)

    def send(self, number: int, content: bytes) -> bool:
        """Send a round's release; whether it was taken. False: the round has closed."""
        return self._ask("POST", f"{RELEASE}?round={number}", (OK, CONFLICT), content).status == OK

    def send_again(self, number: int, content: bytes) -> bool:
        """Send a release whose answer never came; whether it is taken now, or was. False: nobody waits for it."""
        return self._ask("POST", f"{RELEASE}?round={number}", (OK, CONFLICT, BAD), content).status == OK

    def tell(self, step: Step, number: int, content: bytes) -> bool:
        """Send what a step of a round's secure sum asks for. False: the sum goes on without this device."""
        return self._ask("POST", f"{SUMS}/{step}?round={number}", (OK, CONFLICT), content).status == OK

    def told(self, step: Step, number: int, limit: int) -> bytes | None:
        """Wait for the end of a step, and return what it came to; None: the sum goes on without this device."""
        until = time.monotonic() + self.patience.idle_s
        while time.monotonic() < until:
            answer = self._ask("GET", f"{SUMS}/{step}?round={number}", (OK, CONFLICT, WAIT), limit=limit)
            if answer.status != WAIT:
                return answer.body if answer.status == OK else None
        return None

    def manifest(self, limit: int) -> bytes:
        """Return the manifest of the bundle that the server has for this device, its signature behind it."""
        return self._ask("GET", MANIFEST, (OK,), limit=limit).body

    def piece(self, sha256: str, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop` of a file of that bundle, which is known by its digest."""
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        answer = self._ask("GET", f"{FILES}/{sha256}", (PART,), limit=stop - start, headers=wanted)
        if len(answer.body) != stop - start:
            raise InputError(f"{self.url} answers with {len(answer.body):,} bytes in place of {stop - start:,}")
        return answer.body

    def enrol(self, secret: str) -> str:
        """Enrol the identity's key with a code's secret; the name of the user it stands for."""
        answer = self._ask("POST", ENROL, (OK,), Code(code=secret).model_dump_json().encode())
        try:
            return KeyOwner.model_validate_json(answer.body).user
        except ValidationError:
            raise InputError(f"{self.url} does not say who this device is: not a server of edgefr") from None

    def _ask(
        self,
        method: Method,
        path: str,
        taken: Sequence[int],
        body: bytes = b"",
        limit: int = CHUNK,
        headers: Headers = NO_HEADERS,
    ) -> ServerAnswer:
        """Ask until there is an answer, which must be one of those `taken`; a server that is out of order again."""
        problem, pause, pace = "", self.patience.pause_s, self.session.pace
        pace.wait(self.patience.pause_s, self.patience.longest_s)
        for attempt in range(self.patience.tries):
            if attempt:
                time.sleep(pause)
                pause = min(2 * pause, self.patience.longest_s)
            try:
                answer = self._signed(method, path, body, limit, headers)
            except ssl.SSLCertVerificationError as error:
                raise InputError(f"{self.url}: its certificate is not trusted ({error.verify_message})") from error
            except ssl.SSLError as error:
                if error.reason not in UNKNOWN_TO_IT:
                    problem = str(error.reason or error)
                    continue
                raise InputError(
                    f"{self.url} takes devices with a certificate that its operator vouches for ({error.reason}): give "
                    "--tls-cert and --tls-key"
                ) from error
            except (OSError, http.client.HTTPException) as error:
                problem = " ".join(str(error).split())[:LINE] or type(error).__name__
                continue
            if answer.status < 500 and answer.status != TOO_MANY:
                pace.empty = pace.empty + 1 if answer.status == WAIT else 0
                if answer.status not in taken:
                    raise self._refused(answer)
                return answer
            problem = f"it answers {answer.status}"
        raise InputError(
            f"cannot reach {self.url} in {self.patience.tries} tries ({problem}); nothing is lost: see that the "
            "address is right and a server is at work there, then do the same again"
        )

    def _signed(self, method: Method, path: str, body: bytes, limit: int, headers: Headers) -> ServerAnswer:
        """Ask once, and once more where the server says what it wants signed."""
        answer = self._once(method, path, body, limit, headers)
        if answer.status == UNSIGNED and (answer.session is not None or answer.nonce is not None):
            self.session.name = self.session.name if answer.session is None else answer.session
            self.session.nonce = max(self.session.nonce, answer.nonce or 0)
            answer = self._once(method, path, body, limit, headers)
        return answer

    def _once(self, method: Method, path: str, body: bytes, limit: int, headers: Headers) -> ServerAnswer:
        deadline = Deadline.after(self.patience.request_s)
        self.session.nonce += 1
        signed = self.identity.signed(method, path, body, self.session.name, self.session.nonce, int(time.time()))
        connection = self._connected(deadline)
        try:
            self.session.pace.count(self.identity.folder)  # connected: a server that is down uses up no day
            deadline.bind(connection)
            own = {"Connection": "close", "Authorization": signed.header}
            try:
                connection.request(method, path, body or None, {**own, **headers})
            except (ConnectionError, ssl.SSLError):
                connection.sock.recv(1)  # raises what the server said when it ended the connection, if it did
                raise
            answer = connection.getresponse()
            got = bytearray()
            while chunk := answer.read(CHUNK):
                got += chunk
                if len(got) > max(limit, LINE):
                    raise InputError(f"{self.url} answers with more than {limit:,} bytes: not a server of this bundle")
            if answer.length:
                raise http.client.IncompleteRead(bytes(got), answer.length)
            session = answer.getheader(SESSION)
            known = session is not None and len(session) == 32 and set(session) <= set("0123456789abcdef")
            numbers = (_number(answer.getheader(ROUND), DIGITS), _number(answer.getheader(NONCE), 20))
            seat = answer.getheader(SUM)
            seated = None if seat is None else Seat.of(seat)
            named = session if known else None
            return ServerAnswer(
                answer.status, numbers[0], bytes(got), named, numbers[1], seated, answer.getheader(BUNDLE)
            )
        finally:
            connection.close()

    def _connected(self, deadline: Deadline) -> http.client.HTTPConnection:
        parts, pin = urlsplit(self.url), self.identity.record.pin
        if parts.scheme == "http":
            plain = http.client.HTTPConnection(self.host, parts.port, timeout=deadline.left())
            plain.connect()
            return plain
        context = ssl.create_default_context(cafile=self.ca)
        if self.shown is not None:
            try:
                context.load_cert_chain(*self.shown)
            except (OSError, ValueError) as error:
                raise InputError(f"cannot use {self.shown[0]} and {self.shown[1]} for TLS: {error}") from error
        if pin is not None:  # the one key that will do, whatever names and dates a certificate gives it
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self.host, parts.port, timeout=deadline.left(), context=context)
        connection.connect()
        if pin is not None and public_digest(connection.sock.getpeercert(binary_form=True) or b"") != pin:
            connection.close()
            raise InputError(
                f"{self.url}: its certificate is not trusted (another key than the one-time code named); enrol again "
                "if the server has a new one"
            )
        return connection

    def _refused(self, answer: ServerAnswer) -> InputError:
        line = " ".join(answer.body[:LINE].decode("utf-8", "replace").split())
        said = "".join(letter for letter in line if letter.isprintable())
        return InputError(f"{self.url} refuses this device ({answer.status}): {said or 'it does not say why'}")


def enrol(
    folder: Path,
    url: str,
    code: str,
    *,
    ca: Path | None = None,
    patience: Patience | None = None,
    shown: tuple[Path, Path] | None = None,
) -> Identity:
    """Make a key in the folder of a device's state, and enrol it with a one-time code; who the device then is.

    A second call uses the same key. Raises `InputError` for a code that is none, and for a server that cannot be
    reached, is not the one that the code names, or refuses it.
    """
    secret, pin = opened_code(code)
    identity = Identity.made(folder)
    asking = Identity(folder, identity.record.model_copy(update={"pin": pin}))
    return identity.enrolled(Server(url, asking, ca, patience or Patience(), shown=shown).enrol(secret), pin)


def public_digest(certificate: bytes) -> str | None:
    """Return the sha256 of a certificate's public key (DER); None for bytes that are no certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
        return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    except ValueError:
        return None


def _number(text: str | None, digits: int) -> int | None:
    known = text is not None and text.isascii() and text.isdigit() and len(text) <= digits
    return int(text or "") if known else None
