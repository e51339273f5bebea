"""The server signs what devices verify: key pairs, signed bundles, signed updates. Ed25519 (RFC 8032), keys as PEM."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edge.archive import opened
from edge.delta import read_delta
from edge.manifest import SIGNATURE, canonical
from edge.signature import (
    SCHEMA,
    SETS,
    KeyChain,
    KeyId,
    KeySet,
    Kind,
    Link,
    Signature,
    key_id,
    load_public,
    place,
    read_pem,
    statement,
    with_seal,
)
from export.archive import pack
from privacy.errors import InputError
from privacy.files import write_atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PRIVATE, PUBLIC = "private.pem", "public.pem"


def generate(folder: str | Path) -> KeyId:
    """Make a key pair in `folder`: private.pem (PKCS #8, for its owner alone) and public.pem; the key's id.

    Raises `InputError` when either is there already.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(generate(folder))
    64
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = Path(folder)
    for name in (PRIVATE, PUBLIC):
        if (folder / name).exists() or (folder / name).is_symlink():
            raise InputError(f"{folder / name} exists; choose another folder, keys are never written over")
    key = Ed25519PrivateKey.generate()
    write_atomic(folder / PRIVATE, _secret(key), mode=0o600)
    write_atomic(folder / PUBLIC, public_pem(key))
    return key_id(key.public_key())


def own_key(path: Path) -> Ed25519PrivateKey:
    """Load the private key at `path`, for its owner alone; it is made when it is not there, and never written over.

    Raises `InputError` for a file that is no private key, and a folder that cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".key-") as scratch:
            made = write_atomic(Path(scratch) / path.name, _secret(Ed25519PrivateKey.generate()), mode=0o600)
            with suppress(FileExistsError):  # somebody was quicker: that key it is
                os.link(made, path)
    return load_private(path)


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """Return the public key of a private one, as PEM."""
    from cryptography.hazmat.primitives import serialization as form

    return key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def _secret(key: Ed25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def signature_of(kind: Kind, content: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return the signature file of `content` as a thing of this kind.

    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> len(signature_of("bundle", b"x", Ed25519PrivateKey.generate())) < 400
    True
    """
    public = key.public_key().public_bytes_raw().hex()
    record = Signature(schema_=SCHEMA, kind=kind, public=public, signature=key.sign(statement(kind, content)).hex())
    return (record.model_dump_json(by_alias=True, indent=2) + "\n").encode()


def sealed(content: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return an update with its signature behind it, as `edge.signature.opened_seal` takes them apart."""
    return with_seal(content, signature_of("delta", content, key))


def sign_bundle(bundle: str | Path, key: str | Path) -> KeyId:
    """Check a bundle, folder or zip, and sign its manifest, replacing a signature it has; the key's id.

    Raises `InputError` for a bundle that a device would refuse, and for a file that is not a private key.
    """
    private = load_private(key)
    with opened(bundle) as found:
        name = _sign("bundle", canonical(found.manifest), found.root / SIGNATURE, private)
        if Path(bundle).is_file():
            pack(found.root, bundle)
    return name


def sign_delta(path: str | Path, key: str | Path) -> KeyId:
    """Check an update that lies in a file and sign it in <path>.sig.json, replacing a signature it has; the key's id.

    Raises `InputError` for what no device would take, and for a file that is not a private key.
    """
    path, private = Path(path), load_private(key)
    place(path).unlink(missing_ok=True)
    read_delta(path)
    return _sign("delta", path.read_bytes(), place(path), private)


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


def _sign(kind: Kind, content: bytes, target: Path, key: Ed25519PrivateKey) -> KeyId:
    write_atomic(target, signature_of(kind, content, key))
    return key_id(key.public_key())


def add_set(path: str | Path, keys: Sequence[str | Path], threshold: int) -> KeySet:
    """Add a set of public keys (PEM files) to the file of a publisher's keys, made when it is not there; the set.

    Nobody has signed it yet (`sign_set`). Raises `InputError` for keys that are none, and a set that cannot be met.
    """
    links = KeyChain.read(path).links if Path(path).exists() else []
    before = links[-1].set if links else None
    try:
        made = KeySet(
            version=1 if before is None else before.version + 1,
            threshold=threshold,
            keys=[load_public(key).public_bytes_raw().hex() for key in keys],
            before=None if before is None else before.digest,
        )
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"{len(keys)} keys, of which {threshold} sign, are no set; give each once, and fewer"
        ) from error
    _write(path, [*links, Link(set=made, signatures=[])])
    return made


def sign_set(path: str | Path, key: str | Path) -> str:
    """Sign the newest set of a file by a private key (PEM); return what it has and lacks. `InputError` for no file."""
    links = KeyChain.read(path).links
    last, private = links[-1], load_private(key)
    made = Signature.model_validate_json(signature_of("keys", last.set.content, private))
    others = [signature for signature in last.signatures if signature.public != made.public]
    signed = Link(set=last.set, signatures=[*others, made])
    _write(path, [*links[:-1], signed])
    lines = [f"{signed.signed_by(last.set.ids)} of {last.set.threshold} of its own"]
    if len(links) > 1:
        before = links[-2].set
        lines.append(f"{signed.signed_by(before.ids)} of {before.threshold} of set {before.version}")
    return f"set {last.set.version} is signed by " + " and ".join(lines)


def _write(path: str | Path, links: list[Link]) -> None:
    chain = KeyChain(schema_=SETS, links=links)
    write_atomic(path, chain.model_dump_json(by_alias=True, indent=2) + "\n")
