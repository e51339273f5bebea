"""Opening a bundle: everything is checked before a runtime parses any of it.

Digests find damage and accidental mixing. Only a signature by a trusted key says who made a bundle: whoever can rewrite
the folder can rewrite the digests too.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edge import verified_files as loaded
from edge.manifest import MANIFEST, SIGNATURE, Config, File, Manifest
from edge.manifest_check import CONFIG_LIMIT, MANIFEST_LIMIT, AdmissionTerms, admit, reason
from edge.signature import LIMIT as SIGNATURE_LIMIT
from edge.signature import KeyId, Trusted
from privacy.errors import InputError
from privacy.files import sha256_of


@dataclass(frozen=True)
class Bundle:
    """A bundle that was checked has a folder, a manifest and a config.

    `signed_by`: id of the key whose signature holds, a trusted one where any were given; None: it is not signed.
    """

    root: Path
    manifest: Manifest
    config: Config
    signed_by: KeyId | None = None

    def file(self, path: str) -> Path:
        """Return where a listed file lies; `InputError` when the bundle does not have it."""
        self._listed(path)
        return self.root / path

    def entry(self, path: Path) -> File:
        """Return what the manifest says of a file by where it lies, as `edge.verified_files` compares it."""
        return self._listed(path.relative_to(self.root).as_posix())

    def read(self, path: str, most: int) -> bytes:
        """Return a listed file of at most so many bytes. Raises `InputError` for a larger or a changed one."""
        return loaded.read(self.file(path), self._listed(path), most)

    def _listed(self, path: str) -> File:
        for entry in self.manifest.files:
            if entry.path == path:
                return entry
        raise InputError(f"bundle {self.root}: {path} is missing, though config.json names it; export again")


def open_bundle(
    path: str | Path, *, trusted: Trusted = None, now: datetime | None = None, newest: int | None = None
) -> Bundle:
    """Check a bundle folder and read its manifest and config.

    `trusted`: public keys, one of which must have signed the bundle; with None a signature must be right where there is
    one. `now`: decides on expiry (None: the clock's). `newest`: highest serial the device has seen.

    Checked, in order: the manifest's size, signature, schema, own digest, listed names and total size, serial, expiry
    and needed onnxruntime; no links, special or unlisted files; every listed file's size and sha256. Raises
    `InputError` naming the file.

    >>> open_bundle("bundles/rpi_5_8gb", trusted=["public.pem"]).signed_by  # doctest: +SKIP
    '2f1d8e0c...'
    """
    return open_on(path, AdmissionTerms(trusted, now, newest))


def open_on(path: str | Path, terms: AdmissionTerms) -> Bundle:
    """Check a bundle folder as `open_bundle` does, on terms of one's own."""
    root = Path(path)
    where = f"bundle {root}"
    try:
        if not root.is_dir():
            raise InputError(f"{root} is not a bundle: no such folder; make one with `edgefr export`")
        raw = _read(root, MANIFEST, MANIFEST_LIMIT)
        if raw is None:
            raise InputError(f"{root} is not a bundle: it has no {MANIFEST}; give the folder of one device class")
        signature = _read(root, SIGNATURE, SIGNATURE_LIMIT)
        manifest, signed_by = admit(where, raw, signature, terms)
        _check_names(root, manifest)
        for entry in manifest.files:
            _check_file(root, entry)
        config = _config(root, manifest)
    except OSError as error:
        raise InputError(f"{where}: cannot read {error.filename}: {error.strerror}") from error
    except RecursionError:
        raise InputError(f"{where}: its folders are nested too deeply; export again") from None
    return Bundle(root, manifest, config, signed_by)


def _read(root: Path, name: str, limit: int) -> bytes | None:
    """Read a small file of the bundle; None when it is not there, `InputError` when it is too large for what it is."""
    path = root / name
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return loaded.short(path, limit)
    except ValueError as error:
        raise InputError(f"bundle {root}: {name} has {error}; not a bundle") from None


def _check_names(root: Path, manifest: Manifest) -> None:
    known = {*(entry.path for entry in manifest.files), MANIFEST, SIGNATURE}
    for entry in _walk(root):
        name = Path(entry.path).relative_to(root).as_posix()
        if entry.is_symlink():
            raise InputError(f"bundle {root}: {name} is a symbolic link; copy the file itself")
        if not entry.is_file(follow_symlinks=False):
            raise InputError(f"bundle {root}: {name} is not a regular file; remove it")
        if name not in known:
            raise InputError(f"bundle {root}: {name} is not listed in {MANIFEST}; remove it")


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield every entry below a folder that is not itself a real folder; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))
            else:
                yield entry


def _check_file(root: Path, entry: File) -> None:
    path = root / entry.path
    if not path.exists():
        raise InputError(f"bundle {root}: {entry.path} is missing; copy or export the bundle again")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
        raise InputError(f"bundle {root}: {entry.path} has {status.st_size:,} bytes instead of {entry.size:,}")
    if sha256_of(path) != entry.sha256:
        raise InputError(f"bundle {root}: {entry.path} was changed (its sha256 differs from {MANIFEST})")


def _config(root: Path, manifest: Manifest) -> Config:
    found = [entry for entry in manifest.files if entry.role == "config"]
    if len(found) != 1:
        raise InputError(f"bundle {root}: needs one file with role config, has {len(found)}; export again")
    content = loaded.read(root / found[0].path, found[0], CONFIG_LIMIT)
    try:
        return Config.model_validate_json(content)
    except ValueError as error:
        raise InputError(f"bundle {root}: {found[0].path} is not a bundle config ({reason(error)})") from error
