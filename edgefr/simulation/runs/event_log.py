"""The virtual clock's log is a file that grows while a run goes on, and is cut back where one goes on again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from privacy.errors import InputError


class EventLog:
    """This is the virtual clock's log: one JSON object per line, written as it happens."""

    def __init__(self, path: Path):
        self.path = path
        self._file: FileIO | None = None

    def append(self, events: str) -> None:
        """Add lines of events at the end."""
        with self._told():
            if self._file is None:
                self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - open for as long as the run
            lines = events.encode()
            while lines:  # unbuffered, so that a full disk is noticed here and not at the end of the program
                lines = lines[self._file.write(lines) :]

    def flush(self) -> int:
        """Everything so far is on the disk; returns its length, bytes."""
        if self._file is None:
            return self.path.stat().st_size if self.path.exists() else 0
        with self._told():
            os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, length: int) -> None:
        """Forget what was written after the first `length` bytes. Raises `InputError` if there are fewer."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with self._told(), open(self.path, "ab") as file:
            if file.tell() < length:
                raise InputError(
                    f"{self.path} is shorter than the run's checkpoint remembers; put it back as it was, or start "
                    "again with another --out"
                )
            file.truncate(length)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A full disk or a file that may not be written is said in one line."""
        try:
            yield
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}; fix that first") from error
