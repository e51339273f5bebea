"""A publisher has a set of keys, and one set follows another.

    keys.json       sets in their order: each names the keys, and how many of them must sign the next one

Any key of the newest set signs bundles and updates. A set replaces the one before it when as many keys of that one have
signed it as it asks for, and as many of its own. A key that is left out is revoked. This is the root role of The Update
Framework (https://theupdateframework.io).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge.records import Record
from edge.signature import KeyId, Signature, statement, verify
from privacy.errors import InputError

SCHEMA: Literal["edgefr.keys/1"] = "edgefr.keys/1"
LIMIT = 1 << 20  # bytes
MOST = 32  # keys of a set
Public = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class KeySet(Record):
    """This is one set of a publisher's keys."""

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
            with open(path, "rb") as file:
                raw = file.read(LIMIT + 1)
            if len(raw) > LIMIT:
                raise ValueError(f"more than {LIMIT:,} bytes")
            return cls.model_validate_json(raw)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}; check the path") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not an {SCHEMA} file; make one with `edgefr bundle keys`") from error

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
