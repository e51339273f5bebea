"""An Ed25519 signature (RFC 8032) of exact bytes is a JSON file of its own beside what it signs. Verifying only.

It names the kind of thing that it signs, and the name is signed with the bytes (`statement`: the pre-authentication
encoding of DSSE, https://github.com/secure-systems-lab/dsse), so that no update ever passes for a bundle.

It brings its public key along, so that it can be checked by whoever sees the key for the first time. A wrong signature
is always refused; whoever opens the file says whether the key is to be trusted.

    <file>.sig.json                            beside a file
    content, signature, its length, TRAILER    behind the content, where both travel as one (`sealed`)
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edge.records import Record
from privacy.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SCHEMA: Literal["edgefr.signature/3"] = "edgefr.signature/3"
LIMIT = 4096  # bytes of a signature file or a key file
TRAILER = b"edgefr.signature"
END = struct.Struct(f"<I{len(TRAILER)}s")


class KeyId(str):
    """This is the id of a public key: a device remembers it, and asks for it in place of a key file."""


Kind = Literal["bundle", "delta", "keys"]
"""What can be signed: a bundle's manifest, a server's update, a set of a publisher's keys."""

NAMES: dict[Kind, str] = {"bundle": "a bundle", "delta": "an update", "keys": "a set of keys"}
Trusted = Sequence[str | Path | KeyId] | None  # public key files and ids; None: any key will do, and none


class Signature(Record):
    """`<file>.sig.json` says which key signed, and has the signature of all of the file's bytes."""

    schema_: Literal["edgefr.signature/3"] = Field(alias="schema", description="format of this file")
    kind: Kind = Field(description="what the signed bytes are; it is signed with them")
    public: str = Field(pattern="^[0-9a-f]{64}$", description="raw public key, hex")
    signature: str = Field(pattern="^[0-9a-f]{128}$", description="Ed25519 signature of `statement(kind, bytes)`, hex")

    @property
    def key(self) -> KeyId:
        """Return the key's id: the sha256 of the raw public key."""
        return KeyId(hashlib.sha256(bytes.fromhex(self.public)).hexdigest())


def place(path: Path) -> Path:
    """Return where the signature of a file lies.

    >>> place(Path("update.safetensors")).name
    'update.safetensors.sig.json'
    """
    return path.with_name(path.name + ".sig.json")


def statement(kind: Kind, content: bytes) -> bytes:
    """Return the bytes that are signed for `content`: nothing of one kind has the statement of another.

    >>> statement("delta", b"hello world")
    b'DSSEv1 28 application/vnd.edgefr.delta 11 hello world'
    """
    name = f"application/vnd.edgefr.{kind}".encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(content), content)


def parse(where: str, raw: bytes) -> Signature:
    """Return a signature file's content; `InputError` when it is not one."""
    try:
        if len(raw) > LIMIT:
            raise ValueError(f"more than {LIMIT:,} bytes")
        if not _is_older(raw):
            return Signature.model_validate_json(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: its signature is not an {SCHEMA} file; sign it again") from error
    raise InputError(
        f"{where} has a signature of an older edgefr, which does not say what it signs; sign a bundle again with "
        "`edgefr bundle sign`, an update with `export.sign.sign_delta`"
    )


def _is_older(raw: bytes) -> bool:
    record = json.loads(raw)
    return isinstance(record, dict) and record.get("schema") in ("edgefr.signature/1", "edgefr.signature/2")


def check(kind: Kind, where: str, content: bytes, raw: bytes | None, trusted: Trusted) -> KeyId | None:
    """Return the id of the key that signed `content` as a thing of this kind; None for what is not signed.

    `raw` is the signature file (None: there is none), `trusted` the keys of which one must have signed (None: whichever
    did). Raises `InputError` for a signature that is malformed or wrong, and, with `trusted`, for one that is missing
    or of another key.
    """
    signature = None if raw is None else parse(where, raw)
    if signature is not None and signature.kind != kind:
        raise InputError(
            f"{where} has a signature of {NAMES[signature.kind]}, not of {NAMES[kind]}; get what was signed as such"
        )
    if signature is not None:
        verify(where, statement(kind, content), signature)
    if trusted is None:
        return None if signature is None else signature.key
    keys = keys_in(trusted)
    if signature is None:
        raise InputError(f"{where} is not signed; get a signed one, or sign it with `edgefr bundle sign`")
    if signature.key not in keys:
        raise InputError(f"{where} is signed by key {signature.key[:16]}..., which is not trusted; give its public key")
    return signature.key


def keys_in(trusted: Sequence[str | Path | KeyId]) -> set[KeyId]:
    """Return the ids of keys that are given as ids or as files."""
    return {entry if isinstance(entry, KeyId) else key_id(load_public(entry)) for entry in trusted}


def with_seal(content: bytes, signature: bytes) -> bytes:
    """Return content with its signature file behind it, as `opened_seal` takes them apart."""
    return content + signature + END.pack(len(signature), TRAILER)


def opened_seal(content: bytes) -> tuple[bytes, bytes | None]:
    """Return what was sealed and its signature; bytes that nobody sealed come back as they are, with None.

    >>> opened_seal(b"plain")
    (b'plain', None)
    """
    if not content.endswith(TRAILER):
        return content, None
    length = END.unpack(content[-END.size :])[0] if len(content) >= END.size else LIMIT + 1
    start = len(content) - END.size - length
    if length > LIMIT or start < 0:
        raise InputError("what came is cut off, or its signature is too long; fetch it again")
    return content[:start], content[start : start + length]


def verify(where: str, said: bytes, signature: Signature) -> None:
    """Raise `InputError` unless this signature is of exactly these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public))
        public.verify(bytes.fromhex(signature.signature), said)
    except (InvalidSignature, ValueError):
        raise InputError(f"{where}: the signature is wrong, it was changed after it was signed; get it again") from None


def load_public(path: str | Path) -> Ed25519PublicKey:
    """Load an Ed25519 public key from a PEM file; `InputError` for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    raw = read_pem(path)
    if b"PRIVATE KEY" in raw:
        raise InputError(f"{path} is a private key, which never leaves who signs; give the public one")
    try:
        key = load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is not a public key in PEM; make a pair with `edgefr bundle keygen`") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path} is a public key, but not of Ed25519; make a pair with `edgefr bundle keygen`")
    return key


def read_pem(path: str | Path) -> bytes:
    """A key file's bytes; `InputError` when it cannot be read or is too large to be one."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LIMIT + 1)
    except OSError as error:
        raise InputError(f"cannot read key {path}: {error.strerror or error}; check the path") from error
    if len(raw) > LIMIT:
        raise InputError(f"{path} is too large for a key file; make a pair with `edgefr bundle keygen`")
    return raw


def key_id(key: Ed25519PublicKey) -> KeyId:
    """Return the hex sha256 of the raw public key."""
    return KeyId(hashlib.sha256(key.public_bytes_raw()).hexdigest())
