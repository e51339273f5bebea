"""A device reads a server's answer until a deadline, however slowly it comes.

A socket's own timeout is one of silence: a server that sends a byte now and then keeps a reader waiting. Here the
socket is told before every recv how much time is left, for the head of an answer and its body alike.
"""

from __future__ import annotations

import io
import socket
import time
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from typing import Any

SILENCE_S = 60.0
"""Longest that a server may say nothing."""


@dataclass(frozen=True)
class Deadline:
    """This is the moment until which a request may take, `seconds` from when it was made."""

    until: float
    seconds: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds, seconds)

    def left(self) -> float:
        """Return the seconds that a socket may wait now, above 0. Raises `TimeoutError` where no time is left."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"an answer took more than {self.seconds:g} s")
        return min(left, SILENCE_S)

    def bind(self, connection: HTTPConnection) -> None:
        """Have an open connection send and answer until then."""
        connection.sock.settimeout(self.left())
        connection.response_class = partial(_Answer, deadline=self)  # type: ignore[assignment]


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *given: Any, deadline: Deadline, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, deadline))  # type: ignore[attr-defined]


class _Timed(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._deadline.left())
        try:
            return self._raw.readinto(buffer)  # type: ignore[attr-defined,no-any-return]
        except TimeoutError:
            self._deadline.left()  # says so where it has passed
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()
