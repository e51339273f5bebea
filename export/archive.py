"""A bundle folder as one zip file: the same bundle gives the same bytes."""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from edge.bundle import Bundle, open_bundle
from edge.manifest import MANIFEST, SIGNATURE
from edge.manifest_check import ALWAYS
from privacy.errors import InputError
from privacy.files import write_atomic

LARGEST = zipfile.ZIP64_LIMIT  # bytes: what a zip without extensions holds


def pack(bundle: str | Path, archive: str | Path) -> Path:
    """Write a checked bundle folder to the zip `archive`, replacing one that is there.

    Manifest, signature, then the files by name, deflated; dates, owners and modes are the same everywhere. Raises
    `InputError` for a folder that is not a whole bundle, one too large for a plain zip (2 GiB), and a full disk.
    """
    opened = open_bundle(bundle, now=ALWAYS)
    total = sum(entry.size for entry in opened.manifest.files)
    if total > LARGEST - (8 << 20):
        raise InputError(f"bundle {bundle} has {total:,} bytes, too many for a plain zip; copy the folder")
    return write_atomic(archive, _writer(opened))


def _writer(bundle: Bundle) -> Callable[[BinaryIO], None]:
    names = [MANIFEST, SIGNATURE, *sorted(entry.path for entry in bundle.manifest.files)]

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", allowZip64=False) as packed:
            for name in names:
                source = bundle.root / name
                if name == SIGNATURE and not source.exists():
                    continue
                entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, source.stat().st_size
                with open(source, "rb") as whole, packed.open(entry, "w") as into:
                    shutil.copyfileobj(whole, into, 1 << 20)

    return write
