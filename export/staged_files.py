"""Finished files wait here on their way into bundles: each with its size and digest, under the name it has there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from edge.manifest import File, Role
from privacy.files import sha256_of, write_atomic

TOKENIZER = "tokenizer.json"


@dataclass
class Staging:
    """This is a folder of finished files, each under the name it has in a bundle."""

    root: Path
    files: dict[str, File] = field(default_factory=dict)

    def add(self, path: str, role: Role, content: bytes | str | Callable[[BinaryIO], object]) -> File:
        """Write one file and note its size and digest."""
        where = write_atomic(self.root / path, content)
        self.files[path] = File(path=path, size=where.stat().st_size, sha256=sha256_of(where), role=role)
        return self.files[path]
