"""An Ed25519 signature (RFC 8032) of exact bytes is a JSON file of its own beside what it signs. Verifying only.

It names the kind of thing that it signs, and the name is signed with the bytes (`statement`: the pre-authentication
encoding of DSSE, https://github.com/secure-systems-lab/dsse), so that no update ever passes for a bundle.

It brings its public key along. A wrong signature is always refused; whoever opens the file says whether the key is to
be trusted.

    <file>.sig.json                            beside a file
    content, signature, its length, TRAILER    behind the content, where both travel as one (`sealed`)
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from edge.records import Record
from edge.verified_files import short
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
        return Signature.model_validate_json(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: its signature is not an {SCHEMA} file; sign it again") from error


def check(kind: Kind, where: str, content: bytes, raw: bytes | None, trusted: Trusted) -> KeyId | None:
    """Return the id of the key that signed `content` as a thing of this kind; None for what is not signed.

    `raw` is the signature file (None: there is none), `trusted` the keys of which one must have signed (None: whichever
    did). Raises `InputError` for a signature that is malformed, wrong, missing or of another key.
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
        return short(path, LIMIT)
    except OSError as error:
        raise InputError(f"cannot read key {path}: {error.strerror or error}; check the path") from error
    except ValueError:
        raise InputError(f"{path} is too large for a key file; make a pair with `edgefr bundle keygen`") from None


def key_id(key: Ed25519PublicKey) -> KeyId:
    """Return the hex sha256 of the raw public key."""
    return KeyId(hashlib.sha256(key.public_bytes_raw()).hexdigest())


SETS: Literal["edgefr.keys/1"] = "edgefr.keys/1"
SETS_LIMIT = 1 << 20  # bytes
MOST = 32  # keys of a set
Public = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class KeySet(Record):
    """This is one set of a publisher's keys, any of which signs bundles and updates; who is left out is revoked.

    A set replaces the one before it when as many keys of that one have signed it as it asks for, and as many of its
    own: the root role of The Update Framework (https://theupdateframework.io).
    """

    version: int = Field(ge=1, lt=1 << 31, description="one more than that of the set before")
    threshold: int = Field(ge=1, le=MOST, description="how many of these keys must sign the next set")
    keys: list[Public] = Field(min_length=1, max_length=MOST, description="raw Ed25519 public keys, hex")
    before: str | None = Field(
        pattern="^[0-9a-f]{64}$", description="digest of the set before; null: this is the first"
    )

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("a key is named twice")
        if self.threshold > len(self.keys):
            raise ValueError(f"{self.threshold} of {len(self.keys)} keys cannot sign")
        if (self.version == 1) != (self.before is None):
            raise ValueError("the first set, and no other, follows none")
        return self

    @property
    def ids(self) -> list[KeyId]:
        return [KeyId(hashlib.sha256(bytes.fromhex(key)).hexdigest()) for key in self.keys]

    @property
    def content(self) -> bytes:
        """Return the bytes that are signed."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Link(Record):
    """This is a set and who signed it."""

    set: KeySet
    signatures: list[Signature] = Field(max_length=2 * MOST)

    def signed_by(self, keys: Collection[KeyId]) -> int:
        """Return how many of these keys have signed it. Raises `InputError` for a signature that is wrong."""
        found = set()
        for signature in self.signatures:
            if signature.kind != "keys":
                raise InputError(f"set {self.set.version} of keys has a signature of something else; get it again")
            verify(f"set {self.set.version} of keys", statement("keys", self.set.content), signature)
            found.add(signature.key)
        return len(found & set(keys))


class KeyChain(Record):
    """This is `keys.json`: all sets of a publisher, oldest first."""

    schema_: Literal["edgefr.keys/1"] = Field(alias="schema", description="format of this file")
    links: list[Link] = Field(min_length=1, max_length=1000)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file of keys. Raises `InputError` for anything else."""
        try:
            return cls.model_validate_json(short(path, SETS_LIMIT))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not an {SETS} file; make one with `edgefr bundle keys`") from error

    def newest(self, known: KeySet | None, trusted: Collection[KeyId] | None) -> KeySet:
        """Return the last set, which follows from what a device knows through all sets between.

        `known`: the set that it has; None: it has none, and `trusted` are the keys of which one must have signed the
        set to begin with (None: whichever is first). Raises `InputError` where one does not follow from the other.
        """
        links = self.links[self._first(known, trusted) :]
        for before, link in zip([None, *links], links, strict=False):
            _check_link(link, None if before is None else before.set)
        return links[-1].set

    def _first(self, known: KeySet | None, trusted: Collection[KeyId] | None) -> int:
        for place, link in enumerate(self.links):
            if known is not None:
                if link.set == known:
                    return place
            elif trusted is None or link.signed_by(trusted):
                return place
        if known is None:
            raise InputError("no set of keys is signed by a key that this device trusts; get the publisher's own")
        newest = self.links[-1].set.version
        why = "they are older" if newest < known.version else "they are another publisher's"
        raise InputError(f"these keys do not follow from set {known.version}, which this device has: {why}")


def _check_link(link: Link, before: KeySet | None) -> None:
    found, own = link.set, link.signed_by(link.set.ids)
    if own < found.threshold:
        raise InputError(f"set {found.version} of keys is signed by {own} of its own, not by {found.threshold}")
    if before is None:
        return
    if (found.version, found.before) != (before.version + 1, before.digest):
        raise InputError(f"set {found.version} of keys does not follow set {before.version}; get all sets, in order")
    handed = link.signed_by(before.ids)
    if handed < before.threshold:
        raise InputError(
            f"set {found.version} of keys is signed by {handed} of set {before.version}, not by {before.threshold}; "
            "have it signed with `edgefr bundle keys`"
        )
