"""A bundle as one zip file: opened and unpacked without trusting anything the file says of itself.

Only a plain zip is taken: one disk, no comment, nothing before or behind it, no zip64, no encryption, and members that
are ordinary files, stored or deflated. The manifest is read first, with the same checks as in a folder; then only what
it lists is unpacked, each file to exactly the listed size, counted while it is inflated. Links, devices, odd names and
bombs never reach the disk.
"""

from __future__ import annotations

import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from edge.bundle import Bundle, open_on
from edge.manifest import MANIFEST, MOST_FILES, SIGNATURE
from edge.manifest_check import MANIFEST_LIMIT, AdmissionTerms, admit
from edge.records import inside
from edge.signature import LIMIT as SIGNATURE_LIMIT
from edge.signature import Trusted
from privacy.errors import InputError
from privacy.files import beside, settle, sha256_of, write_atomic

ANYBODY = AdmissionTerms()
UNPACKED = "bundle"  # folder beside a device's state, for the bundle of a zip
ENTRIES_LIMIT = MOST_FILES + 2  # and the manifest with its signature
DIRECTORY_LIMIT = 1 << 17  # bytes of the list of entries
BLOCK = 1 << 20  # bytes inflated at a time
FLAGS = 0x080E  # deflate's level, sizes behind the data, names in UTF-8
FAULTS = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError)


@contextmanager
def opened(
    path: str | Path, *, trusted: Trusted = None, now: datetime | None = None, newest: int | None = None
) -> Iterator[Bundle]:
    """Open and check a bundle, folder or zip, as `open_bundle`; a zip lies in a temporary folder until the end."""
    terms = AdmissionTerms(trusted, now, newest)
    if not Path(path).is_file():
        yield open_on(path, terms)
        return
    with tempfile.TemporaryDirectory(prefix="edgefr-bundle-") as scratch:
        yield _into(Path(path), Path(scratch), terms)


def kept(path: str | Path, folder: Path, terms: AdmissionTerms) -> Bundle:
    """Open and check a bundle, folder or zip; a zip is unpacked once into a folder of its own in `folder`.

    It is checked again whenever it is opened, and replaces what another zip left there.
    """
    if not Path(path).is_file():
        return open_on(path, terms)
    unpacked = folder / UNPACKED
    try:
        place = unpacked / sha256_of(Path(path))[:32]
        if not place.is_dir():
            shutil.rmtree(unpacked, ignore_errors=True)
            unpacked.mkdir(mode=0o700, parents=True)
            unpack(Path(path), place, terms)
        return open_on(place, terms)
    except OSError as error:
        raise InputError(f"bundle {path}: cannot unpack: {error.strerror or error}; nothing was changed") from error
    finally:
        for empty in (unpacked, folder):  # it was refused, and nothing else is there
            with suppress(OSError):
                empty.rmdir()


def unpack(archive: Path, target: Path, terms: AdmissionTerms = ANYBODY) -> Bundle:
    """Unpack a zip into the new folder `target`, wholly or not at all, and open it.

    Raises `InputError` for whatever is wrong with the archive, and when `target` exists.
    """
    if target.exists() or target.is_symlink():
        raise InputError(f"{target} exists; choose another folder")
    with beside(target) as folder:
        bundle = _into(archive, folder, terms)
        settle(folder, target)
    return Bundle(target, bundle.manifest, bundle.config, bundle.signed_by)


def _into(archive: Path, folder: Path, terms: AdmissionTerms) -> Bundle:
    where = f"bundle {archive}"
    try:
        with archive.open("rb") as file:
            _check_plain(where, file)
            with zipfile.ZipFile(file) as packed:
                _unpack(where, packed, folder, terms)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{where}: cannot unpack: {error.strerror or error}; nothing was changed") from error
    except FAULTS as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{where} is a damaged zip ({why}); get it again") from error
    try:
        return open_on(folder, terms)
    except InputError as error:
        raise InputError(str(error).replace(str(folder), str(archive))) from error


def _check_plain(where: str, file: BinaryIO) -> None:
    """Check that the file is one directory of entries behind their data, and nothing else.

    The end of a zip: PK 5 6, four counts (disks, entries), size and offset of the directory, length of the comment. A
    zip64 locator, PK 6 7, would lie right before it.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - 42))
    tail = file.read()
    end = struct.unpack("<4s4H2LH", tail[-22:]) if len(tail) >= 22 else (b"",)
    if end[0] != b"PK\x05\x06":
        raise InputError(f"{where} is not a plain zip; pack it with `edgefr export --zip`")
    _, disk, first, here, entries, length, offset, comment = end
    if (disk, first, comment) != (0, 0, 0) or here != entries or offset + length + 22 != size:
        raise InputError(f"{where} has something beside its files; pack it with `edgefr export --zip`")
    if tail[-42:-38] == b"PK\x06\x07" or entries > ENTRIES_LIMIT or length > DIRECTORY_LIMIT:
        raise InputError(f"{where} lists more files than a bundle has; pack it with `edgefr export --zip`")


def _unpack(where: str, packed: zipfile.ZipFile, folder: Path, terms: AdmissionTerms) -> None:
    entries = _entries(where, packed)
    if MANIFEST not in entries:
        raise InputError(f"{where} is not a bundle: it has no {MANIFEST}; give the zip of one device class")
    raw = _small(where, packed, entries.pop(MANIFEST), MANIFEST_LIMIT)
    signed = SIGNATURE in entries
    signature = _small(where, packed, entries.pop(SIGNATURE), SIGNATURE_LIMIT) if signed else None
    manifest, _ = admit(where, raw, signature, terms)
    listed = {entry.path: entry.size for entry in manifest.files}
    for name in [*entries, *listed]:
        if name not in listed:
            raise InputError(f"{where}: {name} is not listed in {MANIFEST}; pack it again")
        if name not in entries:
            raise InputError(f"{where}: {name} is missing; pack or copy it again")
        if entries[name].file_size != listed[name]:
            raise InputError(f"{where}: {name} has {entries[name].file_size:,} bytes instead of {listed[name]:,}")
    for name, size in listed.items():
        write_atomic(folder / name, partial(_pour, where, packed, entries[name], size))
    write_atomic(folder / MANIFEST, raw)
    if signature is not None:
        write_atomic(folder / SIGNATURE, signature)


def _entries(where: str, packed: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in packed.infolist():
        name = info.orig_filename
        mode = info.external_attr >> 16
        if name not in (MANIFEST, SIGNATURE):
            try:
                inside(name)
            except ValueError as error:
                raise InputError(f"{where}: {error}; pack it with `edgefr export --zip`") from error
        if name in entries or name != info.filename:
            raise InputError(f"{where} holds {name} twice; pack it with `edgefr export --zip`")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or info.external_attr & 0x18:
            raise InputError(f"{where}: {name} is a link, folder or device, not a file; pack the file itself")
        if info.flag_bits & ~FLAGS or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{where}: {name} is encrypted or packed in an unusual way; use deflate without password")
        entries[name] = info
    return entries


def _small(where: str, packed: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    """Return a small member's bytes; `InputError` when it inflates to more than `limit`."""
    with packed.open(info) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise InputError(f"{where}: {info.filename} has more than {limit:,} bytes; not a bundle")
    return raw


def _pour(where: str, packed: zipfile.ZipFile, info: zipfile.ZipInfo, size: int, into: BinaryIO) -> None:
    """Inflate a member of exactly `size` bytes, and stop as soon as it is more."""
    done = 0
    with packed.open(info) as file:
        while block := file.read(BLOCK):
            done += len(block)
            if done > size:
                break
            into.write(block)
    if done != size:
        raise InputError(f"{where}: {info.filename} does not inflate to {size:,} bytes; get it again")
