"""Opening a bundle: everything is checked before a runtime parses any of it.

A bundle's digests find damage and accidental mixing. They are not a signature: who can rewrite the whole
folder can also rewrite the digests.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from edge.manifest import MANIFEST, SCHEMA, Config, File, Manifest, canonical, identify
from privacy.errors import InputError
from privacy.files import sha256_of

MANIFEST_LIMIT = 4 << 20  # bytes
TOTAL_LIMIT = 4 << 30  # bytes


@dataclass(frozen=True)
class Bundle:
    """A checked bundle: its folder, its manifest and its config."""

    root: Path
    manifest: Manifest
    config: Config

    def file(self, path: str) -> Path:
        """Where a listed file lies; `InputError` when the bundle does not have it."""
        if all(entry.path != path for entry in self.manifest.files):
            raise InputError(f"bundle {self.root}: {path} is missing, though config.json names it; export again")
        return self.root / path


def open_bundle(path: str | Path) -> Bundle:
    """Check a bundle folder and read its manifest and config.

    Checked, in order: the manifest's size, schema and own digest; names and total size; no links, special
    or unlisted files; every listed file's size and sha256. Raises `InputError` naming the file.

    >>> open_bundle("bundles/rpi_5_8gb").manifest.variant  # doctest: +SKIP
    'f32+encoder-f32'
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root} is not a bundle: no such folder; make one with `edgefr export`")
    try:
        manifest = _manifest(root)
        _check_names(root, manifest)
        for entry in manifest.files:
            _check_file(root, entry)
        config = _config(root, manifest)
    except OSError as error:
        raise InputError(f"bundle {root}: cannot read {error.filename}: {error.strerror}") from error
    return Bundle(root, manifest, config)


def reason(error: Exception) -> str:
    """The first thing a validation error complains of, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return (str(error) or type(error).__name__).splitlines()[0]


def _manifest(root: Path) -> Manifest:
    path = root / MANIFEST
    if not path.is_file() or path.is_symlink():
        raise InputError(f"{root} is not a bundle: it has no {MANIFEST}; give the folder of one device class")
    size = path.stat().st_size
    if size > MANIFEST_LIMIT:
        raise InputError(f"bundle {root}: {MANIFEST} has {size:,} bytes, more than {MANIFEST_LIMIT:,}; not a bundle")
    raw = path.read_bytes()
    try:
        manifest = Manifest.model_validate_json(raw)
        intact = canonical(manifest) == raw and identify(manifest) == manifest.bundle_id
    except (ValueError, RecursionError) as error:
        raise InputError(f"bundle {root}: {MANIFEST} is not a {SCHEMA} manifest ({reason(error)})") from error
    if not intact:
        raise InputError(f"bundle {root}: {MANIFEST} was changed after it was written; export or copy it again")
    return manifest


def _check_names(root: Path, manifest: Manifest) -> None:
    """Only listed regular files, each once, and not too much of them."""
    listed = [entry.path for entry in manifest.files]
    if len(set(listed)) != len(listed):
        twice = next(name for name in listed if listed.count(name) > 1)
        raise InputError(f"bundle {root}: {MANIFEST} lists {twice} twice; export again")
    total = sum(entry.size for entry in manifest.files)
    if total > TOTAL_LIMIT:
        raise InputError(f"bundle {root}: {MANIFEST} lists {total:,} bytes, more than {TOTAL_LIMIT:,} allowed")
    known = {*listed, MANIFEST}
    for entry in _walk(root):
        name = Path(entry.path).relative_to(root).as_posix()
        if entry.is_symlink():
            raise InputError(f"bundle {root}: {name} is a symbolic link; copy the file itself")
        if not entry.is_file(follow_symlinks=False):
            raise InputError(f"bundle {root}: {name} is not a regular file; remove it")
        if name not in known:
            raise InputError(f"bundle {root}: {name} is not listed in {MANIFEST}; remove it")


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below a folder that is not itself a real folder; links are not followed."""
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
    paths = [entry.path for entry in manifest.files if entry.role == "config"]
    if len(paths) != 1:
        raise InputError(f"bundle {root}: needs one file with role config, has {len(paths)}; export again")
    try:
        return Config.model_validate_json((root / paths[0]).read_bytes())
    except ValueError as error:
        raise InputError(f"bundle {root}: {paths[0]} is not a bundle config ({reason(error)})") from error
