"""A run knows the keys of its devices, which codes were given out, which key each enrolled, and which are revoked.

RUN/private/keys.jsonl only grows, a line for whatever happens: `Issued`, `Enrolled`, `Revoked`. A served run reads what
`edgefr enrol` adds while it is at work. Codes are kept as digests. A client has one key at a time, and what it has
released is counted by client (`edgefr.lineage`): a new key goes on with the ledger of the one before.

Owns: that file. Does not own: signatures (`edge.identity`), which requests are refused (`gate`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from edge.records import Record
from privacy.errors import InputError
from privacy.machine import hold

FILE, LOCK = "private/keys.jsonl", "private/keys.lock"
SECRET = 16  # bytes of a code's secret
DAY = 86_400
WAIT_S = 10.0  # for another process that writes

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Issued(Record):
    """A code was given out, with which a device can enrol as `user` until `until`, unix seconds."""

    kind: Literal["issued"] = "issued"
    code: Sha256 = Field(description="sha256 of the code's secret")
    user: str
    until: int


class Enrolled(Record):
    """A device came with a code: from now on its key stands for `user`, and no earlier one does."""

    kind: Literal["enrolled"] = "enrolled"
    code: Sha256
    user: str
    key: Sha256 = Field(description="raw public key, hex")
    at: int


class Revoked(Record):
    """Whatever key and open code a user had are nothing any more."""

    kind: Literal["revoked"] = "revoked"
    user: str
    at: int


Line = Issued | Enrolled | Revoked
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


@dataclass
class Keys:
    """These are the keys of a run's devices, as its file has them at every look.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as run:
    ...     keys = Keys(Path(run))
    ...     code = keys.issue(["ada"])["ada"]
    ...     keys.enrol(code, "00" * 32), keys.user_of("00" * 32)
    ('ada', 'ada')
    """

    run: Path
    users: dict[str, str] = field(default_factory=dict)  # by key
    keys: dict[str, str] = field(default_factory=dict)  # by user
    codes: dict[str, Issued] = field(default_factory=dict)  # that are open, by user
    used: dict[str, Enrolled] = field(default_factory=dict)  # by digest of their code
    size: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def path(self) -> Path:
        """Return where the lines are."""
        return self.run / FILE

    def user_of(self, key: str) -> str | None:
        """Return whom a key stands for; None for one that is unknown, was replaced or is revoked."""
        self.look()
        return self.users.get(key)

    def issue(self, users: Sequence[str], days: float = 7.0) -> dict[str, str]:
        """Give out a code for each of these users, good for so many days; an earlier one is good no more."""
        until, codes = int(time.time() + days * DAY), {user: secrets.token_hex(SECRET) for user in users}
        with self._writing() as append:
            append(*(Issued(code=_digest(code), user=user, until=until) for user, code in codes.items()))
        return codes

    def enrol(self, code: str, key: str) -> str:
        """Enrol a key; the user it stands for. The same key may come with its code again: its answer was lost.

        Raises `InputError` for a code that is unknown, used or too old, and a key that stands for somebody already.
        """
        digest = _digest(code)
        with self._writing() as append:
            before = self.used.get(digest)
            if before is not None and before.key == key and self.users.get(key) == before.user:
                return before.user
            issued = next((found for found in self.codes.values() if found.code == digest), None)
            if issued is None or issued.until < time.time():
                raise InputError("this code is unknown, used or too old; ask for another, which `edgefr enrol` prints")
            if key in self.users:
                raise InputError("this key is enrolled already; a device has one key, give another --state")
            append(Enrolled(code=digest, user=issued.user, key=key, at=int(time.time())))
            return issued.user

    def revoke(self, user: str) -> None:
        """Take a user's key and open code away. Raises `InputError` where there is neither."""
        with self._writing() as append:
            if user not in self.keys and user not in self.codes:
                raise InputError(f"{user} has no key and no open code, so there is nothing to revoke")
            append(Revoked(user=user, at=int(time.time())))

    def look(self) -> None:
        """Read the lines that are new. Raises `InputError` for a file that is damaged."""
        with self.lock:
            there = self.path.stat().st_size if self.path.exists() else 0
            if there == self.size:
                return
            if there < self.size:
                raise InputError(f"{self.path} was cut; put it back")
            with open(self.path, "rb") as file:
                file.seek(self.size)
                content = file.read()
            for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
                try:
                    self._take(_LINE.validate_json(line))
                except ValueError as error:
                    raise InputError(f"{self.path} is damaged after {self.size:,} bytes; put it back") from error
                self.size += len(line)

    def _take(self, line: Line) -> None:
        if isinstance(line, Issued):
            self.codes[line.user] = line
            return
        self.codes.pop(line.user, None)
        self.users.pop(self.keys.pop(line.user, ""), None)
        if isinstance(line, Enrolled):
            self.users[line.key], self.keys[line.user], self.used[line.code] = line.user, line.key, line

    @contextmanager
    def _writing(self) -> Iterator[Callable[..., None]]:
        """Hold the file against other processes and threads; what is appended inside is on the disk afterwards."""
        with self.lock:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = _held(self.run / LOCK)
            try:
                self.look()
                yield self._append
            finally:
                os.close(handle)

    def _append(self, *lines: Line) -> None:
        try:
            with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.truncate(self.size)  # what a kill left of a line
                file.seek(self.size)
                file.write(b"".join(line.model_dump_json().encode() + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}") from error
        self.look()


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _held(path: Path) -> int:
    """Hold a lock file, waiting a little for whoever has it."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return hold(path)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise InputError(f"{path} is held by another process; try again") from error
            time.sleep(0.01)
