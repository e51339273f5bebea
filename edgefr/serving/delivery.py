"""A server sends the bundles of its devices: the manifest with its signature, and files by their digest.

A user gets the bundle of the own device's class alone; a bundle with simulated users is sent to nobody. Files are sent
as they are, since a device checks all of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge.bundle import Bundle
from edge.connection import FORBIDDEN, NO_PART
from edge.manifest import SIGNATURE, canonical
from edge.signature import with_seal
from edgefr.serving.admission import RequestRefused

UNKNOWN = 404
READ = 1 << 16  # bytes that are read at once
RANGE = re.compile(r"bytes=(?P<first>[0-9]{1,15})-(?P<last>[0-9]{0,15})")


@dataclass(frozen=True)
class ByteRange:
    """This is what is sent of a file: from byte `start` up to `stop`, of `size` that it has."""

    path: Path
    start: int
    stop: int
    size: int

    @property
    def told(self) -> str:
        """Return what the header `Content-Range` says."""
        return f"bytes {self.start}-{self.stop - 1}/{self.size}"

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield its bytes as they are read; fewer where the file was cut on the disk."""
        at = self.start
        while at < self.stop and (piece := await asyncio.to_thread(self._read, at)):
            at += len(piece)
            yield piece

    def _read(self, at: int) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(at)
                return file.read(min(READ, self.stop - at))
        except OSError:
            return b""


@dataclass(frozen=True)
class Parcel:
    """This is a bundle as it is sent: manifest and signature as one, and where each file lies, with its size."""

    device_class: str
    manifest: bytes
    files: Mapping[str, tuple[Path, int]]
    carries: bool

    @classmethod
    def of(cls, bundle: Bundle) -> Parcel:
        content, signature = canonical(bundle.manifest), bundle.root / SIGNATURE
        if signature.exists():
            content = with_seal(content, signature.read_bytes())
        files = {one.sha256: (bundle.root / one.path, one.size) for one in bundle.manifest.files}
        return cls(bundle.manifest.device_class, content, files, bundle.manifest.model.users > 0)


@dataclass(frozen=True)
class Delivery:
    """These are the bundles of a server's devices, by their users' names; of nobody else's."""

    parcels: Mapping[str, Parcel] = field(default_factory=dict)

    @classmethod
    def of(cls, bundles: Iterable[tuple[Bundle, Iterable[str]]]) -> Delivery:
        return cls({user: parcel for bundle, users in bundles for parcel in [Parcel.of(bundle)] for user in users})

    def manifest(self, user: str) -> bytes:
        """Return the manifest of a user's bundle with its signature behind it. Raises `RequestRefused`."""
        return self._parcel(user).manifest

    def part(self, user: str, digest: str, asked: str | None) -> ByteRange:
        """Return the part of a bundle's file for a header `Range` (None: all).

        Raises `RequestRefused` for unknown files and ranges.
        """
        found = self._parcel(user).files.get(digest)
        if found is None:
            raise RequestRefused(UNKNOWN, "the bundle of this device has no such file; ask for its manifest again")
        path, size = found
        if asked is None:
            return ByteRange(path, 0, size, size)
        said = RANGE.fullmatch(asked)
        first, last = (0, "") if said is None else (int(said["first"]), said["last"])
        stop = min(int(last) + 1, size) if last else size
        if said is None or not first < stop:
            raise RequestRefused(
                NO_PART, "ask for one range of bytes that the file has", {"Content-Range": f"bytes */{size}"}
            )
        return ByteRange(path, first, stop, size)

    @property
    def _said(self) -> str:
        classes = sorted({parcel.device_class for parcel in self.parcels.values()})
        return f"this server has no bundle for this device: it has those of {', '.join(classes) or 'no class'}"

    def _parcel(self, user: str) -> Parcel:
        found = self.parcels.get(user)
        if found is None:
            raise RequestRefused(
                UNKNOWN, f"{self._said}, and its user has a device of another class or none; ask its operator"
            )
        if found.carries:
            raise RequestRefused(
                FORBIDDEN, "this bundle carries users, and is given to nobody; the operator exports another"
            )
        return found
