"""A device fetches a bundle from its server: the manifest first, then the files that it lacks, piece by piece.

Nothing of a file is asked for before the manifest is one that the device would open. Files lie under their digests in a
hidden folder beside the target, where a fetch that was cut off goes on; all are checked as any bundle is, and renamed
into place.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edge import publisher
from edge import rollback as seen
from edge.bundle import Bundle, open_on
from edge.connection import Server
from edge.manifest import MANIFEST, SIGNATURE, File, canonical
from edge.manifest_check import MANIFEST_LIMIT, AdmissionTerms, admit
from edge.policy import Policy
from edge.signature import LIMIT as SIGNATURE_LIMIT
from edge.signature import Trusted, opened_seal
from edge.state import Store
from privacy.errors import InputError
from privacy.files import beside, settle, sha256_of, write_atomic

MOST = 512 << 20  # bytes of a bundle that is fetched
PIECE = 1 << 20  # bytes of one answer: what is lost when a connection breaks


@dataclass(frozen=True)
class Fetched:
    """This is what a fetch came to: the bundle, and the bytes of its files that came over the network."""

    bundle: Bundle
    received: int


def fetch(
    server: Server,
    target: str | Path,
    *,
    earlier: Bundle | None = None,
    trusted: Trusted = None,
    now: datetime | None = None,
) -> Fetched | None:
    """Fetch the bundle that a server has for this device to the new folder `target`; None: it is `earlier`.

    Files of `earlier` that the bundle has too are taken from there. The bundle must be on the terms of the device whose
    identity the server is asked with. Called again after it was cut off, it goes on. Raises `InputError` for a bundle
    that the device would not open, other bytes than the manifest says, and a folder that holds something else.
    """
    target, store, where = Path(target), Store(server.identity.folder), f"the bundle of {server.url}"
    terms = seen.terms(store, trusted, now)
    raw, signature = opened_seal(server.manifest(MANIFEST_LIMIT + 2 * SIGNATURE_LIMIT))
    manifest, signed_by = admit(where, raw, signature, terms)
    publisher.check_key(where, signed_by, store, Policy.of(store.folder))
    if earlier is not None and earlier.manifest.bundle_id == manifest.bundle_id:
        return None
    size = sum(one.size for one in manifest.files)
    if size > MOST:
        raise InputError(
            f"the bundle of {server.url} has {size:,} bytes, and no more than {MOST:,} are fetched; copy it here by "
            "other means if it is wanted"
        )
    if target.exists():
        found = open_on(target, terms)
        if found.manifest.bundle_id != manifest.bundle_id:
            raise InputError(f"{target} holds another bundle than the server has now; give another folder")
        return Fetched(found, 0)
    parts = target.with_name(f".{target.name}.fetched")
    try:
        if parts.is_symlink():
            raise InputError(f"{parts} is a symbolic link, which nobody here made; remove it, and fetch again")
        parts.mkdir(mode=0o700, parents=True, exist_ok=True)
        had = {} if earlier is None else {one.sha256: earlier.root / one.path for one in earlier.manifest.files}
        received = sum(_part(server, entry, parts, had) for entry in manifest.files)
        with beside(target) as folder:
            _laid_out(manifest.files, parts, folder)
            write_atomic(folder / MANIFEST, canonical(manifest))
            if signature is not None:
                write_atomic(folder / SIGNATURE, signature)
            bundle = _opened(folder, where, terms)
            settle(folder, target)
        shutil.rmtree(parts, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}; fetch again to go on") from error
    return Fetched(Bundle(target, bundle.manifest, bundle.config, bundle.signed_by), received)


def _part(server: Server, entry: File, parts: Path, had: dict[str, Path]) -> int:
    """Fetch a file whole into `parts`, under its digest; return how many bytes came over the network."""
    part, received = parts / entry.sha256, 0
    if part.is_symlink():
        raise InputError(f"{part} is a symbolic link, which nobody here made; remove it, and fetch again")
    if not part.exists() and entry.sha256 in had:
        shutil.copyfile(had[entry.sha256], part)
    with open(part, "ab") as file:
        if file.tell() > entry.size:
            file.truncate(0)
        while (start := file.tell()) < entry.size:
            piece = server.piece(entry.sha256, start, min(start + PIECE, entry.size))
            file.write(piece)
            file.flush()
            received += len(piece)
    if sha256_of(part) != entry.sha256:
        part.unlink()
        raise InputError(f"{server.url} sent other bytes of {entry.path} than its manifest says; nothing was changed")
    return received


def _laid_out(files: list[File], parts: Path, folder: Path) -> None:
    for entry in files:
        place = folder / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(parts / entry.sha256, place)
        except OSError:  # a file system without links
            shutil.copyfile(parts / entry.sha256, place)


def _opened(folder: Path, where: str, terms: AdmissionTerms) -> Bundle:
    try:
        return open_on(folder, terms)
    except InputError as error:
        raise InputError(str(error).replace(f"bundle {folder}", where)) from error
