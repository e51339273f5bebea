"""The server signs what devices verify: key pairs, signed bundles, signed files. Ed25519 (RFC 8032), keys as PEM.

Owns private keys and signing. Does not own verification (`edge.signature`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge.archive import is_archive, opened
from edge.manifest import SIGNATURE, canonical
from edge.signature import SCHEMA, Signature, key_id, place, read_pem
from export.archive import pack
from privacy.errors import InputError
from privacy.files import write_atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE, PUBLIC = "private.pem", "public.pem"


def generate(folder: str | Path) -> str:
    """Make a key pair in `folder`: private.pem (PKCS #8, for its owner alone) and public.pem; the key's id.

    Raises `InputError` when either is there already.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(generate(folder))
    64
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = Path(folder)
    for name in (PRIVATE, PUBLIC):
        if (folder / name).exists() or (folder / name).is_symlink():
            raise InputError(f"{folder / name} exists; choose another folder, keys are never written over")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    write_atomic(folder / PRIVATE, secret, mode=0o600)
    write_atomic(folder / PUBLIC, public)
    return key_id(key.public_key())


def sign_bundle(bundle: str | Path, key: str | Path) -> str:
    """Check a bundle, folder or zip, and sign its manifest, replacing a signature it has; the key's id.

    Raises `InputError` for a bundle that a device would refuse, and for a file that is not a private key.
    """
    private = load_private(key)
    with opened(bundle) as found:
        name = _sign(canonical(found.manifest), found.root / SIGNATURE, private)
        if is_archive(bundle):
            pack(found.root, bundle)
    return name


def sign_file(path: str | Path, key: str | Path) -> str:
    """Sign all bytes of a file, such as a delta, in <path>.sig.json; the key's id. Raises `InputError`."""
    path, private = Path(path), load_private(key)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    return _sign(content, place(path), private)


def load_private(path: str | Path) -> Ed25519PrivateKey:
    """Load an Ed25519 private key from a PEM file without password; `InputError` for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    raw = read_pem(path)
    if b"PUBLIC KEY" in raw:
        raise InputError(f"{path} is a public key; signing takes the private one")
    try:
        key = load_pem_private_key(raw, password=None)
    except TypeError as error:
        raise InputError(f"{path} has a password; give the key without one") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is not a private key in PEM; make a pair with `edgefr bundle keygen`") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} is a private key, but not of Ed25519; make a pair with `edgefr bundle keygen`")
    return key


def _sign(content: bytes, target: Path, key: Ed25519PrivateKey) -> str:
    name = key_id(key.public_key())
    record = Signature(schema_=SCHEMA, key=name, signature=key.sign(content).hex())
    write_atomic(target, record.model_dump_json(by_alias=True, indent=2) + "\n")
    return name
