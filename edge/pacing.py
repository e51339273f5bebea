"""A device asks a server no faster than makes sense, no more often in a day than an honest one has it, nor for ever.

    asked.json      beside the device's state: requests of the day, of which some are written down before they are made

Only requests on an open connection count. After each answer without work a device waits longer than after the one
before. A process that is started again goes on counting, and a clock that is set back begins no new day.
"""

from __future__ import annotations

import io
import socket
import time
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from pydantic import Field

from edge.records import Record
from edge.verified_files import short
from privacy.errors import InputError
from privacy.files import write_atomic

NAME = "asked.json"
DAY = 86_400
A_DAY = 20_000
"""Requests that a device makes in a day of its clock: one that waits all day makes 4,320."""
AHEAD = 100  # of which so many at once are written down as made
LIMIT = 1 << 10  # bytes of the file


class RequestCount(Record):
    """`asked.json` says how many requests were made in a day."""

    day: int = Field(ge=0, description="days since 1970, by the device's clock")
    requests: int = Field(ge=0, description="made that day, to the next hundred")

    @classmethod
    def of(cls, folder: Path) -> RequestCount | None:
        """Return what is written down; None for nothing, or for what is damaged."""
        try:
            return cls.model_validate_json(short(folder / NAME, LIMIT))
        except (OSError, ValueError):
            return None


@dataclass
class Pace:
    """This says when a device may ask its server again. `empty`: answers in a row that had nothing for it."""

    empty: int = 0
    last: float = float("-inf")
    day: int = -1
    made: int = 0
    written: int = 0

    def wait(self, pause_s: float, longest_s: float) -> None:
        """Wait until it may ask: `pause_s` after the last request, twice as long each time, up to `longest_s`."""
        pause = min(pause_s * 2 ** min(self.empty - 1, 30), longest_s) if self.empty else 0.0
        time.sleep(max(self.last + pause - time.monotonic(), 0.0))
        self.last = time.monotonic()

    def count(self, folder: Path) -> None:
        """Count a request of the device whose state is in a folder. Raises `InputError` after those of a day."""
        today = int(time.time() // DAY)
        if self.day < 0 and (before := RequestCount.of(folder)) is not None:
            self.day, self.made, self.written = before.day, before.requests, before.requests
        if today > self.day:
            self.day, self.made, self.written = today, 0, 0
        if self.made >= A_DAY:
            raise InputError(
                f"this device has asked {A_DAY:,} times in a day, as no server that is in order has it do; see what is "
                "wrong there, and join again tomorrow"
            )
        self.made += 1
        if self.made > self.written:
            self.written = self.made + AHEAD - 1
            said = RequestCount(day=self.day, requests=self.written).model_dump_json()
            write_atomic(folder / NAME, f"{said}\n".encode(), mode=0o600)


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
