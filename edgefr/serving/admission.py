"""The gate of a server decides whose request it is, before anything is read, charged or waited for.

A request is refused unless an enrolled key that is not revoked has signed it, for this start of the server, within
`CLOCK_S` of its time, with a nonce above that key's last one; a key that asks too often waits. So replays, forged names
and strangers are refused, and so is any error while a peer's bytes are read.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from edge.connection import BAD, FORBIDDEN, NONCE, SESSION, TOO_MANY, UNSIGNED
from edge.identity import Signed
from edge.manifest_check import reason
from edgefr.serving.keys import Keys
from privacy.errors import InputError

CLOCK_S = 300
"""How far the clocks of a device and the server may be apart, seconds."""
PER_MINUTE, BURST = 600, 60
"""Requests of one key: how many a minute, and how many of them may come in one go."""


class RequestRefused(Exception):
    """A request of a device is refused: HTTP `status`, one line, and headers that say how to ask again."""

    def __init__(self, status: int, line: str, headers: dict[str, str] | None = None):
        super().__init__(line)
        self.status, self.headers = status, headers or {}


@dataclass
class Gate:
    """This lets devices' requests in; `session` is drawn at each start, which voids earlier signatures."""

    keys: Keys
    session: str = field(default_factory=lambda: secrets.token_hex(16))
    last: dict[str, int] = field(default_factory=dict)  # nonce, by key
    left: dict[str, tuple[float, float]] = field(default_factory=dict)  # requests that a key may make, and since when
    lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, method: str, path: str, header: str) -> tuple[str, Signed]:
        """Return the user whose device signed a request, and what it signed. Raises `RequestRefused`."""
        signed = self._read(header)
        user = self.keys.user_of(signed.key)
        if user is None:
            raise RequestRefused(
                FORBIDDEN, "this key is not enrolled here, was replaced or is revoked; enrol the device"
            )
        self._check(signed, method, path)
        with self.lock:
            last = self.last.get(signed.key, -1)
            if signed.nonce <= last:
                raise RequestRefused(UNSIGNED, "this request was seen before, or a later one was", {NONCE: str(last)})
            self.last[signed.key] = signed.nonce
            self._count(signed.key, time.monotonic())
        return user, signed

    def stranger(self, method: str, path: str, header: str) -> Signed:
        """Return what a device without enrolment has signed, as proof of its key. Raises `RequestRefused`."""
        signed = self._read(header)
        self._check(signed, method, path)
        return signed

    def _read(self, header: str) -> Signed:
        signed = Signed.of(header)
        if signed is None:
            raise RequestRefused(UNSIGNED, "requests are signed by a device's key; enrol it with `edgefr device enrol`")
        return signed

    def _check(self, signed: Signed, method: str, path: str) -> None:
        if signed.session != self.session:
            raise RequestRefused(UNSIGNED, "sign for the session of this server", {SESSION: self.session})
        apart = signed.time - time.time()
        if abs(apart) > CLOCK_S:
            raise RequestRefused(BAD, f"the device's clock is {apart:+.0f} s off the server's; set it")
        if not signed.holds(method, path):
            raise RequestRefused(FORBIDDEN, "the signature is not of this key and request")

    def _count(self, key: str, now: float) -> None:
        left, since = self.left.get(key, (float(BURST), now))
        left = min(BURST, left + (now - since) * PER_MINUTE / 60)
        self.left[key] = (max(left - 1, 0.0), now)
        if left < 1:
            raise RequestRefused(TOO_MANY, f"more than {PER_MINUTE} requests a minute; wait")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Refuse the peer where reading its bytes raises anything; `what` names what they should be.

    Every message uses it, since a list of possible errors would be incomplete.
    """
    try:
        yield
    except RequestRefused:
        raise
    except InputError as error:
        raise RequestRefused(BAD, str(error)) from error
    except Exception as error:
        raise RequestRefused(BAD, f"{what}: {reason(error)}") from error


def check_body(signed: Signed, body: bytes) -> None:
    """Raise `RequestRefused` for a body that is not the one whose digest was signed."""
    if hashlib.sha256(body).hexdigest() != signed.digest:
        raise RequestRefused(BAD, "the body is not the one that was signed")
