"""All records of a bundle's JSON files are strict and unchangeable, and have no odd file names."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig.json"

PART = re.compile(r"[A-Za-z0-9._+-]{0,99}[A-Za-z0-9_+-]")
"""A name that every file system keeps as it is and tells from all others, but for capitals: plain ASCII."""

DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|clock\$|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""What Windows takes for a device in any folder, whatever follows the dot."""

DEEPEST = 16  # folders within folders
LONGEST = 240  # characters of a path


def inside(path: str) -> str:
    """`path` if it names a file inside the bundle plainly; `ValueError` for '..', absolute or odd names.

    >>> inside("onnx/score.onnx")
    'onnx/score.onnx'
    """
    parts = path.split("/")
    odd = not all(PART.fullmatch(part) and not DEVICES.fullmatch(part) for part in parts)
    if odd or len(parts) > DEEPEST or len(path) > LONGEST or path.casefold() in (MANIFEST, SIGNATURE):
        raise ValueError(f"file name {path[:LONGEST]!r} is not a plain relative path inside the bundle")
    return path


def plain(text: str) -> str:
    """`text` if a terminal can show it; `ValueError` for line breaks and control characters."""
    if not text.isprintable():
        raise ValueError(f"{text!r} has characters that cannot be shown")
    return text


def moment(text: str) -> str:
    """`text` if it is an ISO 8601 time with its offset from UTC; `ValueError` otherwise."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"time {text!r} does not say its offset from UTC, such as +00:00")
    return text


Inside = Annotated[str, AfterValidator(inside)]
Plain = Annotated[str, AfterValidator(plain)]
Moment = Annotated[str, AfterValidator(plain), AfterValidator(moment)]

MOST_ROUNDS = 10**9 - 1  # what a server's address has room for
Round = Annotated[int, Field(ge=0, le=MOST_ROUNDS)]
"""A number of federated rounds."""

Whole = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""A count of anything, as large as every JSON reader keeps it."""


class Record(BaseModel):
    """This is a part of a JSON file: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Grown(Record):
    """This is a record that has grown: where a field of `later` says what was always so, it is left out.

    A bundle that asks for nothing new reads as it did before, and older devices refuse the others by the field's name.
    """

    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        usual = {name: type(self).model_fields[name].default for name in self.later}
        return {name: value for name, value in found.items() if name not in usual or value != usual[name]}
