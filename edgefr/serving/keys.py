"""A run knows the keys of its devices, which codes were given out, which key each enrolled, and which are revoked.

RUN/private/keys.jsonl has a line per event: `Issued`, `Enrolled`, `Revoked`. It only grows, except for users who leave
(`edgefr forget`): their lines are replaced by one without their name. A served run reads new lines while it works.
Codes are kept as digests. A client has one key at a time, and releases are counted by client, so a new key continues
the ledger.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import Field, TypeAdapter

from edge.records import Record
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.machine import hold

FILE, LOCK = "private/keys.jsonl", "private/keys.lock"
SECRET = 16  # bytes of a code's secret
DAY = 86_400
WAIT_S = 10.0  # for another process that writes

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class CodeRefused(InputError):
    """A code enrols no key: it is unknown, used or too old, or the key stands for somebody already."""


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
    """A user's key and open code are void."""

    kind: Literal["revoked"] = "revoked"
    user: str
    at: int


class Forgotten(Record):
    """All lines on a user are gone, and nobody enrols under the pseudonym."""

    kind: Literal["forgotten"] = "forgotten"
    user: str = Field(description="pseudonym that stands in place of the user's name")
    at: int


Line = Issued | Enrolled | Revoked | Forgotten
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
    forgotten: set[str] = field(default_factory=set)
    size: int = 0
    file: BinaryIO | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)  # never held while anything is waited for
    turn: threading.Lock = field(default_factory=threading.Lock)  # who writes has it

    @property
    def path(self) -> Path:
        return self.run / FILE

    def user_of(self, key: str) -> str | None:
        """Return the user of a key; None for one that is unknown, replaced or revoked."""
        self.look()
        return self.users.get(key)

    def issue(self, users: Sequence[str], days: float = 7.0) -> dict[str, str]:
        """Issue a code for each of these users, valid for so many days; an earlier one is void."""
        until, codes = int(time.time() + days * DAY), {user: secrets.token_hex(SECRET) for user in users}
        with self._writing() as append:
            for user in self.forgotten.intersection(users):
                raise InputError(f"{user} stands for somebody who has left: nobody enrols under that name")
            append(*(Issued(code=_digest(code), user=user, until=until) for user, code in codes.items()))
        return codes

    def enrol(self, code: str, key: str, wait_s: float = WAIT_S) -> str:
        """Enrol a key; return its user. The same key may repeat its code, if its answer was lost.

        Raises `CodeRefused` for a code that is unknown, used or expired, and a key that is taken; `InputError` where
        another process writes for longer than `wait_s`.
        """
        digest = _digest(code)
        self.look()
        self._enrols(digest, key)  # before anything is waited for
        with self._writing(wait_s) as append:
            user, anew = self._enrols(digest, key)
            if anew:
                append(Enrolled(code=digest, user=user, key=key, at=int(time.time())))
            return user

    def _enrols(self, digest: str, key: str) -> tuple[str, bool]:
        """Return the user of a key by a code, and whether the enrolment is new."""
        with self.lock:
            before = self.used.get(digest)
            if before is not None and before.key == key and self.users.get(key) == before.user:
                return before.user, False
            issued = next((found for found in self.codes.values() if found.code == digest), None)
            if issued is None or issued.until < time.time():
                raise CodeRefused("this code is unknown, used or too old; ask for another, which `edgefr enrol` prints")
            if key in self.users:
                raise CodeRefused("this key is enrolled already; a device has one key, give another --state")
            return issued.user, True

    def revoke(self, user: str) -> None:
        """Take a user's key and open code away. Raises `InputError` where there is neither."""
        with self._writing() as append:
            if user not in self.keys and user not in self.codes:
                raise InputError(f"{user} has no key and no open code, so there is nothing to revoke")
            append(Revoked(user=user, at=int(time.time())))

    def forget(self, user: str, pseudonym: str) -> None:
        """Remove a user's lines and refuse the key from then on; `pseudonym` stays."""
        with self._writing():
            lines = [_LINE.validate_json(line) for line in self._read(0).splitlines()]
            left = [line for line in lines if line.user not in (user, pseudonym)]
            left.append(Forgotten(user=pseudonym, at=int(time.time())))
            write_atomic(self.path, _written(left), mode=0o600)
            self.look()

    def look(self) -> None:
        """Read the lines that are new. Raises `InputError` for a file that is damaged."""
        with self.lock:
            there = self.path.stat().st_size if self.path.exists() else 0
            if there and self._is_another():
                self._begin_anew()
            if there == self.size:
                return
            if there < self.size:
                raise InputError(f"{self.path} was cut; put it back")
            for line in self._read(self.size).splitlines(keepends=True):
                try:
                    self._take(_LINE.validate_json(line))
                except ValueError as error:
                    raise InputError(f"{self.path} is damaged after {self.size:,} bytes; put it back") from error
                self.size += len(line)

    def _read(self, start: int) -> bytes:
        """Return the whole lines from a byte on; what a kill left of one is none."""
        with self.lock:
            if not self.path.exists():
                return b""
            with open(self.path, "rb") as file:
                file.seek(start)
                content = file.read()
            return content[: content.rfind(b"\n") + 1]

    def _is_another(self) -> bool:
        """Say whether the file was replaced because somebody was forgotten."""
        return self.file is None or os.fstat(self.file.fileno()).st_ino != self.path.stat().st_ino

    def _begin_anew(self) -> None:
        """Forget what was read, and hold the present file open, so that its inode is not reused."""
        if self.file is not None:
            self.file.close()
        self.file, self.size = open(self.path, "rb"), 0  # noqa: SIM115 - held for as long as these keys are
        for kept in (self.users, self.keys, self.codes, self.used, self.forgotten):
            kept.clear()

    def _take(self, line: Line) -> None:
        if isinstance(line, Issued):
            self.codes[line.user] = line
            return
        if isinstance(line, Forgotten):
            self.forgotten.add(line.user)
            return
        self.codes.pop(line.user, None)
        self.users.pop(self.keys.pop(line.user, ""), None)
        if isinstance(line, Enrolled):
            self.users[line.key], self.keys[line.user], self.used[line.code] = line.user, line.key, line

    @contextmanager
    def _writing(self, wait_s: float = WAIT_S) -> Iterator[Callable[..., None]]:
        """Lock the file against other processes and threads; what is appended inside is on the disk afterwards."""
        with self.turn:
            handle = _held(self.run / LOCK, wait_s)
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
                file.write(_written(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}") from error
        self.look()


def _written(lines: Iterable[Line]) -> bytes:
    return b"".join(line.model_dump_json().encode() + b"\n" for line in lines)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _held(path: Path, wait_s: float) -> int:
    """Hold a lock file, waiting a little for whoever has it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return hold(path, wait_s)
    except BlockingIOError as error:
        raise InputError(f"{path} is held by another process; try again") from error
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; fix that and try again") from error
