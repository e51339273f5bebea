"""What all records of a bundle's JSON files have in common: strict, unchangeable, and no odd file names."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

MANIFEST = "manifest.json"


def inside(path: str) -> str:
    """`path` if it names a file inside the bundle plainly; `ValueError` for '..', absolute or odd names."""
    parts = path.split("/")
    odd = any(part in ("", ".", "..") for part in parts) or any(c in path for c in '\\:*?"<>|')
    if odd or not path.isprintable() or path == MANIFEST:
        raise ValueError(f"file name {path!r} is not a plain relative path inside the bundle")
    return path


Inside = Annotated[str, AfterValidator(inside)]


class Record(BaseModel):
    """A part of a JSON file: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
