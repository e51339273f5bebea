"""Releases of the open round lie on the server's disk, so that a kill loses none.

A release is written before its device is told that it was taken, and deleted after the round; in asynchronous rounds
once it is in a sum or too old. Files are as devices sent them, noise included, in RUN/private with its rights.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from edgefr.simulation.runs.layout import PRIVATE
from privacy.files import write_atomic


class Answers:
    """These are the releases in RUN/private/answers, a folder per round, a file per device.

    >>> answers = Answers(Path("runs/demo"))
    >>> answers.of(3, ["u0000007"])
    {}
    """

    def __init__(self, run: Path):
        self.folder = run / PRIVATE / "answers"

    def keep(self, device: str, number: int, content: bytes) -> None:
        """Put a device's release of a round on the disk."""
        place = self.folder / str(number)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(place / _name(device), content, mode=0o600)

    def of(self, number: int, devices: Iterable[str]) -> dict[str, bytes]:
        """Return the releases of a round that are on the disk, by device."""
        places = {device: self.folder / str(number) / _name(device) for device in devices}
        return {device: place.read_bytes() for device, place in places.items() if place.is_file()}

    def drop(self, number: int, device: str) -> None:
        """Delete a device's release of a round."""
        (self.folder / str(number) / _name(device)).unlink(missing_ok=True)

    def leave(self, waiting: Iterable[tuple[int, str]]) -> None:
        """Delete all releases but those that wait, (round, device): a kill may have left others."""
        places = {self.folder / str(number) / _name(device) for number, device in waiting}
        for place in {*self.folder.glob("*/*")} - places:
            place.unlink(missing_ok=True)

    def count(self, number: int) -> int:
        """Count the releases of a round that are on the disk."""
        place = self.folder / str(number)
        return sum(1 for one in place.iterdir() if not one.name.startswith(".")) if place.is_dir() else 0

    def forget(self, device: str) -> None:
        """Delete a device's releases, of whichever round."""
        for place in self.folder.glob(f"*/{_name(device)}"):
            place.unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete all releases."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _name(device: str) -> str:
    """Return a file name for a device; a user's name may hold anything."""
    return hashlib.sha256(device.encode()).hexdigest()
