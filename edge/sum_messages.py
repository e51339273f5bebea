"""These are the messages of a secure sum between a device and its server, JSON with bytes in hex.

    step       what a device sends (POST /sum/STEP?round=N)   what it is answered when the step has ended (GET)
    keys       its public keys                                its neighbours' keys, and the threshold
    shares     a sealed share for each neighbour              the sealed shares that neighbours sent it
    vector     its vector, masked: uint32, little-endian      who sent shares, and whose vectors arrived
    agree      its signature under what it was told           the signatures of those that were told the same
    opening    the shares that it is asked for                nothing: the sum is open, or never will be

A task of a round whose uploads are summed so comes with a `Seat` in its header `Edgefr-Sum`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from edge.manifest_check import reason
from edge.records import MOST_ROUNDS, Record
from edge.secure_sum import SEALED
from privacy.agreement import SIGNATURE
from privacy.errors import InputError
from privacy.masks import KEY, Keys, Revealed, Words
from privacy.secret_sharing import SHARE

Step = Literal["keys", "shares", "vector", "agree", "opening"]
STEPS: tuple[Step, ...] = ("keys", "shares", "vector", "agree", "opening")
SALT = 16  # bytes
MOST = 1 << 16  # devices that a message can name
LIMIT = 1 << 24  # bytes of a message that is no vector
HEADING = "edgefr.sum/1"
SEAT = re.compile(rf"(?P<number>[1-9][0-9]{{0,8}}) (?P<salt>[0-9a-f]{{{2 * SALT}}})( (?P<base>[0-9a-f]{{64}}))?")

Message = TypeVar("Message", bound=Record)
Number = Annotated[int, Field(ge=1, lt=1 << 31)]
PublicKey = Annotated[str, Field(pattern=f"^[0-9a-f]{{{2 * KEY}}}$")]
Sealed = Annotated[str, Field(pattern=f"^[0-9a-f]{{{2 * SEALED}}}$")]
Share = Annotated[str, Field(pattern=f"^[0-9a-f]{{{2 * SHARE}}}$")]
Signature = Annotated[str, Field(pattern=f"^[0-9a-f]{{{2 * SIGNATURE}}}$")]


@dataclass(frozen=True)
class Seat:
    """This is a device's place in the sum of a round: its number there, and what tells this sum from every other.

    `base`: what stands for the bundle where devices of several bundles are in the sum; None: all hold the same.

    >>> Seat.of(Seat(7, bytes(16)).header).number
    7
    """

    number: int
    salt: bytes
    base: str | None = None

    @property
    def header(self) -> str:
        return f"{self.number} {self.salt.hex()}" + ("" if self.base is None else f" {self.base}")

    @classmethod
    def of(cls, header: str) -> Self:
        """Read a header. Raises `InputError` for one that is none: nothing leaves in the clear for want of a seat."""
        found = SEAT.fullmatch(header)
        if found is None:
            raise InputError("the server names a secure sum, and no place in it; nothing was sent")
        return cls(int(found["number"]), bytes.fromhex(found["salt"]), found["base"])

    def session(self, bundle: str, number: int) -> bytes:
        """Return what keys and shares are bound to: the bundle, or what stands for several, the round, this sum."""
        assert 0 <= number <= MOST_ROUNDS
        return hashlib.sha256(f"{HEADING}\n{self.base or bundle}\n{number}\n{self.salt.hex()}".encode()).digest()


class KeysMessage(Record):
    """These are the public keys of one sum that a device announces."""

    mask: PublicKey = Field(description="X25519, for masks in pairs")
    share: PublicKey = Field(description="X25519, for shares that are sent to it")
    sign: PublicKey = Field(description="Ed25519, for what it agrees to")

    @classmethod
    def of(cls, keys: Keys) -> Self:
        return cls(mask=keys.mask.hex(), share=keys.share.hex(), sign=keys.sign.hex())

    @property
    def keys(self) -> Keys:
        return Keys(*map(bytes.fromhex, (self.mask, self.share, self.sign)))


class Neighbours(Record):
    """A device is told who is in the sum, whom it has masks with, and how many shares open a secret of its own."""

    threshold: Number = Field(description="shares that open a secret, as the device works it out by itself")
    keys: dict[Number, KeysMessage] = Field(max_length=MOST, description="of each neighbour, by number")
    roster: dict[Number, PublicKey] = Field(max_length=MOST, description="what each device of the sum signs with")

    @classmethod
    def of(cls, threshold: int, keys: Mapping[int, Keys], roster: Mapping[int, bytes]) -> Self:
        near = {number: KeysMessage.of(found) for number, found in keys.items()}
        return cls(threshold=threshold, keys=near, roster=_written(roster))

    @property
    def near(self) -> dict[int, Keys]:
        return {number: found.keys for number, found in self.keys.items()}

    @property
    def signers(self) -> dict[int, bytes]:
        """Return what each device of the sum signs with."""
        return _read(self.roster)


class Shares(Record):
    """These are sealed shares, of or for a device: by the neighbour that they are for, or come from."""

    sealed: dict[Number, Sealed] = Field(max_length=MOST)

    @classmethod
    def of(cls, sealed: Mapping[int, bytes]) -> Self:
        return cls(sealed=_written(sealed))

    @property
    def contents(self) -> dict[int, bytes]:
        return _read(self.sealed)


class Asked(Record):
    """A device is asked to agree on who is in the sum."""

    sent: list[Number] = Field(max_length=MOST, description="the devices that sent shares")
    arrived: list[Number] = Field(max_length=MOST, description="those of them whose vectors arrived")

    @classmethod
    def of(cls, sent: Set[int], arrived: Set[int]) -> Self:
        return cls(sent=sorted(sent), arrived=sorted(arrived))


class Agreeing(Record):
    """This is a device's signature under what it was told."""

    signature: Signature


class Agreed(Record):
    """These are the signatures of the devices that were told the same, by number."""

    signatures: dict[Number, Signature] = Field(max_length=MOST)

    @classmethod
    def of(cls, signatures: Mapping[int, bytes]) -> Self:
        return cls(signatures=_written(signatures))

    @property
    def contents(self) -> dict[int, bytes]:
        return _read(self.signatures)


class Opening(Record):
    """These are the shares that a device reveals, by whose they are."""

    own: dict[Number, Share] = Field(max_length=MOST, description="of masks of vectors that arrived")
    pairs: dict[Number, Share] = Field(max_length=MOST, description="of keys of devices that went away")

    @classmethod
    def of(cls, shown: Revealed) -> Self:
        return cls(own=_written(shown.own), pairs=_written(shown.pairs))

    @property
    def revealed(self) -> Revealed:
        return Revealed(_read(self.own), _read(self.pairs))


def opened(kind: type[Message], content: bytes) -> Message:
    """Read a message. Raises `InputError` for anything else."""
    try:
        return kind.model_validate_json(content, strict=True)
    except (ValidationError, RecursionError) as error:
        raise InputError(f"not a message of a secure sum: {reason(error)}") from error


def vector_of(content: bytes, size: int) -> Words:
    """Read a masked vector of so many values. Raises `InputError` for another length."""
    if len(content) != 4 * size:
        raise InputError(f"a masked vector has {4 * size:,} bytes, not {len(content):,}")
    return np.frombuffer(content, "<u4").astype(np.uint32)


def _written(contents: Mapping[int, bytes]) -> dict[int, str]:
    return {number: content.hex() for number, content in contents.items()}


def _read(texts: Mapping[int, str]) -> dict[int, bytes]:
    return {number: bytes.fromhex(text) for number, text in texts.items()}
