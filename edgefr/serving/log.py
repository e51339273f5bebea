"""A server writes events, one JSON object a line: `at` (unix seconds), `event`, and what an event tells.

listening    url, rounds                 enrolled     user
opened       round, asked, sat_out       taken        user, round, bytes
closed       round, charged, burnt       refused      status, method, path, why
stopped

It has no device data, address, key, code or query; users have the operator's names. Refusals are limited to
`MOST_REFUSALS` a minute and a line with the rest, so strangers cannot fill the disk. Lines are written singly, so the
file may be moved at any time; writers hold its lock, so that removing a user's lines loses none.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.simulation.runs.lineage import Closed, Line, Opened
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.machine import hold

FILE = "private/serve.log"
MOST_REFUSALS = 60
WAIT_S = 2.0  # for another process that writes


@dataclass
class Log:
    """This writes lines to a file (None: nowhere), from any number of threads.

    >>> Log(None).write("stopped")
    """

    path: Path | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    minute: int = 0
    refusals: int = 0

    def write(self, event: str, **told: Any) -> None:
        """Add a line; it is lost if the disk is full."""
        with self.lock:
            self._add(event, told)

    def refused(self, **told: Any) -> None:
        """Add a refusal, unless this minute has had many."""
        with self.lock:
            minute = int(time.time() // 60)
            if minute != self.minute:
                more, self.minute, self.refusals = self.refusals - MOST_REFUSALS, minute, 0
                if more > 0:
                    self._add("refused", {"more": more})
            self.refusals += 1
            if self.refusals <= MOST_REFUSALS:
                self._add("refused", told)

    def round(self, line: Line) -> None:
        """Add a line of a lineage."""
        if isinstance(line, Opened):
            self.write("opened", round=line.round, asked=len(line.clients), sat_out=len(line.refused))
        elif isinstance(line, Closed):
            self.write("closed", round=line.round, charged=len(line.clients), burnt=line.burnt)

    def _add(self, event: str, told: dict[str, Any]) -> None:
        if self.path is None:
            return
        line = json.dumps({"at": round(time.time(), 3), "event": event, **told}) + "\n"
        try:
            with _held(self.path):
                handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(handle, line.encode())
                finally:
                    os.close(handle)
        except OSError:
            return


def without(path: Path, user: str) -> None:
    """Remove a user's lines from a log, also while a server writes it. Raises `InputError` if it cannot."""
    if not path.exists():
        return
    try:
        with _held(path):
            lines = path.read_bytes().splitlines(keepends=True)
            left = [line for line in lines if _user_of(line) != user]
            if len(left) < len(lines):
                write_atomic(path, b"".join(left), mode=0o600)
    except BlockingIOError as error:
        raise InputError(f"{path} is held by another process; try again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; fix that and try again") from error


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock a log by a separate file, since the log itself is replaced."""
    handle = hold(path.with_name(f"{path.name}.lock"), WAIT_S)
    try:
        yield
    finally:
        os.close(handle)


def _user_of(line: bytes) -> str | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found.get("user") if isinstance(found, dict) else None
