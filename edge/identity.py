"""A device's identity is an Ed25519 key that was made on it; every request to its server is signed with it.

    identity.json    beside the device's state, for its owner alone: the key, and what enrolment told
    Authorization: Edgefr KEY SESSION NONCE TIME DIGEST SIGNATURE

The signature is of method, path with its query (where the round is), session, nonce, time and the body's digest, under
a heading of its own, so that it is none of anything else. SESSION is what a server drew when it started: what was
signed for an earlier one is nothing to it. NONCE grows from request to request, TIME is in unix seconds.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from edge.records import Record
from edge.verified_files import short
from privacy.errors import InputError
from privacy.files import write_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME = "identity.json"
SCHEMA: Literal["edgefr.identity/1"] = "edgefr.identity/1"
HEADING = "edgefr.request/1"
LIMIT = 4096  # bytes of an identity file
HEX32, HEX64 = "[0-9a-f]{64}", "[0-9a-f]{128}"
SIGNED = re.compile(
    rf"Edgefr (?P<key>{HEX32}) (?P<session>[0-9a-f]{{0,32}}) (?P<nonce>[0-9]{{1,20}}) (?P<time>[0-9]{{1,12}}) "
    rf"(?P<digest>{HEX32}) (?P<signature>{HEX64})"
)
PRIME = (1 << 255) - 19
SMALL_ORDER = frozenset(
    [0, 1, PRIME - 1, PRIME, PRIME + 1]
    + [
        int.from_bytes(bytes.fromhex(y), "little")
        for y in (
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        )
    ]
)
"""Of a public key the coordinate y, as keys bring it, for which one signature holds for almost any bytes."""
CODE = re.compile(rf"(?P<secret>[0-9a-f]{{32}})(\.(?P<pin>{HEX32}))?")
"""What enrols a device once: 128 random bits, and the digest of the server's public TLS key where it has one."""


@dataclass(frozen=True)
class Signed:
    """This is what the header of a signed request says; `digest` is the sha256 of the body."""

    key: str
    session: str
    nonce: int
    time: int
    digest: str
    signature: str = ""

    @classmethod
    def of(cls, header: str) -> Signed | None:
        """Read a header; None where it is none."""
        found = SIGNED.fullmatch(header)
        if found is None:
            return None
        text = found.groupdict()
        return cls(**{**text, "nonce": int(text["nonce"]), "time": int(text["time"])})  # type: ignore[arg-type]

    @property
    def header(self) -> str:
        return f"Edgefr {self.key} {self.session} {self.nonce} {self.time} {self.digest} {self.signature}"

    def content(self, method: str, path: str) -> bytes:
        """Return the bytes that are signed, for a request of this method and path."""
        lines = (HEADING, method, path, self.session, str(self.nonce), str(self.time), self.digest)
        return "\n".join(lines).encode()

    def holds(self, method: str, path: str) -> bool:
        """Say whether the signature is the key's, over a request of this method and path.

        A key without a private one, whose signatures anybody can make, has none.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if int.from_bytes(bytes.fromhex(self.key), "little") % (1 << 255) in SMALL_ORDER:
            return False
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key))
            public.verify(bytes.fromhex(self.signature), self.content(method, path))
        except (InvalidSignature, ValueError):
            return False
        return True


class IdentityRecord(Record):
    """`identity.json` has the private key, and what enrolment told: the user's name and the key of the server."""

    schema_: Literal["edgefr.identity/1"] = Field(SCHEMA, alias="schema", description="format of this file")
    private: Annotated[str, Field(pattern=f"^{HEX32}$")] = Field(description="raw private key, hex")
    user: str | None = Field(None, description="name that the server knows it by; null: not enrolled yet")
    pin: Annotated[str, Field(pattern=f"^{HEX32}$")] | None = Field(
        None, description="sha256 of the server's public TLS key; null: whichever an authority vouches for"
    )


@dataclass(frozen=True)
class Identity:
    """This is who a device is to its server.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = Identity.made(Path(folder)), Identity.made(Path(folder))
    >>> first.key == second.key
    True
    """

    folder: Path
    record: IdentityRecord

    @classmethod
    def made(cls, folder: Path) -> Self:
        """Return the identity in the folder of a device's state; where there is none, a new key is drawn and kept."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if (folder / NAME).exists():
            return cls.of(folder)
        return cls(folder, IdentityRecord(private=Ed25519PrivateKey.generate().private_bytes_raw().hex()))._kept()

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Read it. Raises `InputError` where there is none, and for a file that is no identity."""
        path = folder / NAME
        try:
            return cls(folder, IdentityRecord.model_validate_json(short(path, LIMIT)))
        except FileNotFoundError:
            raise InputError(
                f"{folder} has no key for a server yet; enrol it with `edgefr device enrol` and a code"
            ) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is not a device's identity; enrol again with another --state") from error

    def enrolled(self, user: str, pin: str | None) -> Self:
        """Keep what enrolment told."""
        record = self.record.model_copy(update={"user": user, "pin": pin})
        return replace(self, record=record)._kept()

    @property
    def key(self) -> str:
        return self._private.public_key().public_bytes_raw().hex()

    def signed(self, method: str, path: str, body: bytes, session: str, nonce: int, now: int) -> Signed:
        said = Signed(self.key, session, nonce, now, hashlib.sha256(body).hexdigest())
        return replace(said, signature=self._private.sign(said.content(method, path)).hex())

    @property
    def _private(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self.record.private))

    def _kept(self) -> Self:
        write_json(self.folder / NAME, self.record.model_dump(by_alias=True), mode=0o600)
        return self


def opened_code(code: str) -> tuple[str, str | None]:
    """Return the secret of a one-time code, and the server's key that it names. Raises `InputError` for none.

    >>> opened_code("00112233445566778899aabbccddeeff")[1] is None
    True
    """
    found = CODE.fullmatch(code.strip())
    if found is None:
        raise InputError("that is no one-time code; give one that `edgefr enrol` printed, all of it")
    return found["secret"], found["pin"]
