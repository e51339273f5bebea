"""A device at work for a server: fetch a round, learn, send the release, until there are no more rounds.

    GET  /task?device=D&after=N      200 the open round above N, 204 none yet, 410 no more rounds; 204 with a round:
                                     it goes on without this device, whose privacy budget is spent
    POST /release?device=D&round=N   200 taken (also when sent again), 409 the round has closed, other: refused

`Edgefr-Round` is the number of the round. A task's body is a delta from the bundle to the tensors that the round starts
from, with the publisher's signature behind it, empty where those are the bundle's own; that of 410 is the server's
last word. One request per connection, no
redirects, no proxies.

Owns: what a device asks a server, and how often. Does not own: learning (`edge.device`), what a server answers.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from edge.delta import read_delta
from edge.device import Device, Withheld
from edge.learning import Learning
from edge.signature import opened_seal, place
from privacy.errors import InputError
from privacy.files import write_atomic

ROUND = "Edgefr-Round"  # the header with a round's number
TASK, RELEASE = "/task", "/release"
OK, WAIT, CONFLICT, DONE = 200, 204, 409, 410
UPDATE = "update.safetensors"  # the server's last update, in the device's state folder
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = 1 << 20  # bytes of a file of tensors that are not values
LINE = 300  # characters of a server's refusal that are shown
CHUNK = 1 << 16  # bytes read at once
TOKEN = 16, 256  # characters of a token, least and most
DIGITS = 9  # longest number of a round


@dataclass(frozen=True)
class Patience:
    """This says how long a device bears with a server.

    `tries` of a request that fails, with pauses that double from `pause_s` up to `longest_s`; `request_s`: all of one
    request; `idle_s`: without any work, after which the device gives up.
    """

    tries: int = 8
    pause_s: float = 0.25
    longest_s: float = 8.0
    request_s: float = 120.0
    idle_s: float = 3600.0


@dataclass(frozen=True)
class Task:
    """A task is a round to be done.

    `done`: there are no more, and `content` is the server's last word. `rest`: it goes on without this device, whose
    privacy budget is spent.
    """

    round: int
    content: bytes
    done: bool
    rest: bool = False


@dataclass
class TrafficCounts:
    """This counts what a device did for a server.

    Rounds whose release was taken, those that had closed, those it was told to sit out since its privacy budget is
    spent, bytes of bodies. `stopped`: why the device let no more leave (None: it did to the end).
    """

    taken: int = 0
    late: int = 0
    rested: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    stopped: str | None = None


@dataclass(frozen=True)
class Server:
    """This is a server as a device sees it.

    `token`: sent with every request; `ca`: file of the authority that signed its certificate (None: the system's).

    Raises `InputError` for an address that is none, and for a token that would travel in the clear to another host.

    >>> Server("http://127.0.0.1:8080").host
    '127.0.0.1'
    """

    url: str
    token: str | None = None
    ca: Path | None = None
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            plain = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/")
            if not plain or parts.query or parts.fragment or parts.username is not None or (parts.port or 1) < 1:
                raise ValueError
        except ValueError:
            raise InputError(f"{self.url!r} is no server's address; give one such as http://127.0.0.1:8080") from None
        if self.token is not None and parts.scheme == "http" and self.host not in LOOPBACK:
            raise InputError(f"a token would travel in the clear to {self.host}; give an https address")
        if self.ca is not None and not self.ca.is_file():
            raise InputError(f"{self.ca} is not there; give the certificate that signed the server's")

    @property
    def host(self) -> str:
        """Return the server's name or number."""
        return urlsplit(self.url).hostname or ""

    def task(self, device: str, after: int, limit: int) -> Task | None:
        """Return the round above `after` that is open, None if there is none yet. `limit`: bytes of the answer."""
        status, number, body = self._ask("GET", f"{TASK}?device={quote(device, safe='')}&after={after}", b"", limit)
        if status == WAIT:
            return None if number is None else Task(number, b"", done=False, rest=True)
        if status not in (OK, DONE) or number is None:
            raise self._refused(status, body)
        return Task(number, body, status == DONE)

    def send(self, device: str, number: int, content: bytes) -> bool:
        """Send a round's release; whether it was taken. False: the round has closed."""
        path = f"{RELEASE}?device={quote(device, safe='')}&round={number}"
        status, _, body = self._ask("POST", path, content, CHUNK)
        if status not in (OK, CONFLICT):
            raise self._refused(status, body)
        return status == OK

    def _ask(self, method: Literal["GET", "POST"], path: str, body: bytes, limit: int) -> tuple[int, int | None, bytes]:
        """Status, round and body of an answer. A server that cannot be reached, or is out of order, is asked again."""
        problem, pause = "", self.patience.pause_s
        for attempt in range(self.patience.tries):
            if attempt:
                time.sleep(pause)
                pause = min(2 * pause, self.patience.longest_s)
            try:
                answer = self._once(method, path, body, limit)
            except ssl.SSLCertVerificationError as error:
                raise InputError(f"{self.url}: its certificate is not trusted ({error.verify_message})") from error
            except (OSError, http.client.HTTPException) as error:
                problem = " ".join(str(error).split())[:LINE] or type(error).__name__
                continue
            if answer[0] < 500:
                return answer
            problem = f"it answers {answer[0]}"
        raise InputError(
            f"cannot reach {self.url} in {self.patience.tries} tries ({problem}); nothing is lost: join again later"
        )

    def _once(self, method: str, path: str, body: bytes, limit: int) -> tuple[int, int | None, bytes]:
        parts, until = urlsplit(self.url), time.monotonic() + self.patience.request_s
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca)
            connection = http.client.HTTPSConnection(self.host, parts.port, timeout=60, context=context)
        else:
            connection = http.client.HTTPConnection(self.host, parts.port, timeout=60)
        headers = {"Connection": "close"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            got = bytearray()
            while chunk := answer.read(CHUNK):
                got += chunk
                if len(got) > limit:
                    raise InputError(f"{self.url} answers with more than {limit:,} bytes: not a server of this bundle")
                if time.monotonic() > until:
                    raise TimeoutError(f"an answer took more than {self.patience.request_s:g} s")
            if answer.length:
                raise http.client.IncompleteRead(bytes(got), answer.length)
            number = answer.getheader(ROUND, "")
            known = number.isascii() and number.isdigit() and len(number) <= DIGITS
            return answer.status, int(number) if known else None, bytes(got)
        finally:
            connection.close()

    def _refused(self, status: int, body: bytes) -> InputError:
        line = " ".join(body[:LINE].decode("utf-8", "replace").split())
        said = "".join(letter for letter in line if letter.isprintable())
        return InputError(f"{self.url} refuses this device ({status}): {said or 'it does not say why'}")


def read_token(path: Path) -> str:
    """Return the token in a file: its one line, plain characters. Raises `InputError` for anything else."""
    try:
        with open(path, "rb") as file:
            token = file.read(TOKEN[1] + 2).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read a token from {path}: {error}") from error
    if not (TOKEN[0] <= len(token) <= TOKEN[1] and token.isprintable() and " " not in token):
        raise InputError(f"{path} holds no token: one line of {TOKEN[0]} to {TOKEN[1]} characters without spaces")
    return token


def update_limit(learning: Learning) -> int:
    """Bytes that an update of all shared tensors of a bundle can have."""
    return HEADERS + _values(learning, {t.name for t in learning.tensors if t.place == "shared"})


def release_limit(learning: Learning) -> int:
    """Bytes that a release of a bundle's device can have."""
    return HEADERS + _values(learning, set(learning.trained("round", "shared")))


def join(
    device: Device,
    url: str,
    interactions: Iterable[str | int] = (),
    *,
    token: str | None = None,
    ca: Path | None = None,
    patience: Patience | None = None,
) -> TrafficCounts:
    """Work for the server at `url` until it has no more rounds, then take its last update.

    A device that was stopped at any moment goes on where it was when it joins again: what it has learned of a round is
    sent, not learned again. It ends by itself where its own policy or ledger lets nothing more leave. Raises
    `InputError` for a device that lets nothing leave at all, a server that cannot be reached or refuses the device, one
    of another bundle, one whose rounds are not those that the device's state has come to, and as `Device.learn`.

    >>> join(Device("bundles/phone_sd680", "state"), "http://127.0.0.1:8080", ["318"]).taken  # doctest: +SKIP
    3
    """
    server, why = Server(url, token, ca, patience or Patience()), device.refuses()
    if why is not None:
        raise Withheld(f"nothing would leave this device: {why}")
    name, limit = device.state.facts["user"], update_limit(device.learning)
    if name is None:
        raise InputError("a server knows devices by their name; start the state with --user NAME")
    counts, after, new = TrafficCounts(), 0, list(interactions)
    until = time.monotonic() + server.patience.idle_s
    while True:
        task = server.task(name, after, limit)
        if task is None:
            if time.monotonic() > until:
                raise InputError(f"{url} had no work for {server.patience.idle_s:g} s; join again later")
            time.sleep(server.patience.pause_s)  # however fast it says so
            continue
        if task.rest:
            after, counts.rested, until = task.round, counts.rested + 1, time.monotonic() + server.patience.idle_s
            continue
        counts.bytes_down += len(task.content)
        _catch_up(device, task, url)
        if task.done:
            return counts
        try:
            content = device.learn(new).to_bytes()
        except Withheld as refused:
            return replace(counts, stopped=str(refused))
        new, after = [], task.round
        if server.send(name, task.round, content):
            counts.taken += 1
            counts.bytes_up += len(content)
        else:
            counts.late += 1
        until = time.monotonic() + server.patience.idle_s


def _catch_up(device: Device, task: Task, url: str) -> None:
    """Take a task's update unless the device has it; `InputError` when it then is not where the task starts."""
    if task.content:
        content, signature = opened_seal(task.content)
        path = write_atomic(device.store.folder / UPDATE, content, mode=0o600)
        place(path).unlink(missing_ok=True)
        if signature is not None:
            write_atomic(place(path), signature, mode=0o600)
        limit = update_limit(device.learning)
        delta = read_delta(path, device.learning, limit=limit, trusted=device.publisher)
        if delta.to_round > device.state.facts["round"]:
            device.apply(delta)
    reached, starts = device.state.facts["round"], task.round if task.done else task.round - 1
    if reached != starts:
        raise InputError(
            f"{url} is at round {starts}, this device's state at {reached}: they belong to different servers; give "
            "another --state"
        )


def _values(learning: Learning, names: set[str]) -> int:
    """Return the bytes of these tensors, whole, with an item number beside every row of a table."""
    size = 0
    for tensor in learning.tensors:
        if tensor.name in names:
            count = 4
            for extent in tensor.shape:
                count *= extent
            size += count + (8 * tensor.shape[0] if tensor.kind == "rows" else 0)
    return size
