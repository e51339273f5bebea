"""All records of a bundle's JSON files are strict and unchangeable, and have no odd file names."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig.json"


def inside(path: str) -> str:
    """`path` if it names a file inside the bundle plainly; `ValueError` for '..', absolute or odd names."""
    parts = path.split("/")
    odd = any(part == "" or part.endswith((".", " ")) for part in parts) or any(c in path for c in '\\:*?"<>|')
    if odd or not path.isprintable() or path.casefold() in (MANIFEST, SIGNATURE):
        raise ValueError(f"file name {path!r} is not a plain relative path inside the bundle")
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


class Record(BaseModel):
    """This is a part of a JSON file: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
