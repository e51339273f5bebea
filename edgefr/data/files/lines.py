"""A file of text comes in blocks of whole rows: as UTF-8, with one sign between columns, every physical line counted.

Owns: encodings, separators of several signs, where a row ends. Does not own: what stands in a row (`delimited`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgefr.data.files.opened import BLOCK, stream
from privacy.errors import InputError

INSTEAD = "\x1f"
"""The sign that stands for a separator of several signs."""


@dataclass(frozen=True)
class Text:
    """This is how a file's text is written: encoding (None: UTF-8), separator, and whether quotes enclose fields."""

    path: Path
    encoding: str | None
    separator: str
    quoted: bool

    @property
    def sign(self) -> str:
        """Return what stands between columns of the blocks."""
        return self.separator if len(self.separator) == 1 else INSTEAD

    def blocks(self) -> Iterator[bytes]:
        """Yield the file's rows, whole ones. Raises `InputError` for a row that does not end, or another encoding."""
        held = b""
        with stream(self.path) as file:
            for piece in self._pieces(file):
                held += piece
                end = _end(held, self.quoted)
                if end:
                    yield held[:end]
                    held = held[end:]
                elif len(held) > BLOCK:
                    quote = "; if a quote is a sign like another, set data_options.quote=no" if self.quoted else ""
                    raise InputError(f"{self.path}: a row is longer than {BLOCK:,} bytes{quote}")
        if held:
            yield held

    def _pieces(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the file as UTF-8, cut anywhere."""
        if self.encoding is None and len(self.separator) == 1:
            first = True
            while piece := file.read(BLOCK):
                yield piece.removeprefix(b"\xef\xbb\xbf") if first else piece
                first = False
            return
        text, held = io.TextIOWrapper(file, self.encoding or "utf-8-sig", newline=""), ""
        try:
            while more := text.read(BLOCK):
                held += more
                end = held.rfind("\n") + 1  # no separator goes over the end of a line
                yield self._recoded(held[:end])
                held = held[end:]
            yield self._recoded(held.removeprefix("\ufeff"))
        except UnicodeError as error:
            raise wrong_encoding(self.path, self.encoding) from error
        finally:
            text.detach()

    def _recoded(self, text: str) -> bytes:
        return (text if len(self.separator) == 1 else text.replace(self.separator, INSTEAD)).encode()


def wrong_encoding(path: Path | str, encoding: str | None) -> InputError:
    """Return the error for bytes that are no text in this encoding."""
    if encoding is None:
        return InputError(f"{path}: it is not UTF-8; name its encoding by data_options.encoding, as latin-1 or utf-16")
    return InputError(f"{path}: it is not {encoding} (data_options.encoding)")


def _end(held: bytes, quoted: bool) -> int:
    """Return where the last whole row ends; 0 where none does."""
    newline = b"\n" if b"\n" in held else b"\r"
    if not quoted or b'"' not in held:
        return held.rfind(newline) + 1
    signs = np.frombuffer(held, np.uint8)
    outside = np.cumsum(signs == ord('"'), dtype=np.int64) % 2 == 0
    (ends,) = ((signs == newline[0]) & outside).nonzero()
    return int(ends[-1]) + 1 if len(ends) else 0


def lines_of(block: bytes) -> int:
    """Return how many lines a block has that are not empty.

    >>> lines_of(b"a,b\\r\\n\\r\\n\\nc,d\\n")
    2
    """
    signs = np.frombuffer(block, np.uint8)
    breaks = (signs == ord("\n")) | (signs == ord("\r"))
    starts = ~breaks
    starts[1:] &= breaks[:-1]
    return int(starts.sum())
