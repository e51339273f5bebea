"""A file of text comes in blocks of whole rows: as UTF-8, with one separator character, every line counted.

Owns: encodings, separators of several characters, ends of rows. Does not own: columns (`delimited`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgefr.data.files.streams import BLOCK, stream
from privacy.errors import InputError

INSTEAD = "\x1f"
"""The sign that stands for a separator of several signs."""


@dataclass(frozen=True)
class Text:
    """This is a file's encoding (None: UTF-8) and separator; are fields quoted, and quotes `escaped`?"""

    path: Path
    encoding: str | None
    separator: str
    quoted: bool
    escaped: bool = False

    @property
    def sign(self) -> str:
        return self.separator if len(self.separator) == 1 else INSTEAD

    def blocks(self) -> Iterator[bytes]:
        """Yield the file's rows, whole ones. Raises `InputError` for a row that does not end, or another encoding."""
        held = b""
        with stream(self.path) as file:
            for piece in self._pieces(file):
                held += piece
                end = _end(held, self.sign.encode(), self.escaped) if self.quoted else _last_line(held)
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


def _last_line(held: bytes) -> int:
    return held.rfind(b"\n" if b"\n" in held else b"\r") + 1


def _end(held: bytes, sign: bytes, escaped: bool) -> int:
    """Return where the last whole row ends; 0 where none does. A quote that begins no field encloses nothing.

    >>> _end(b'5" nail,1\\n"two\\nlines",2\\n"open', b",", False)
    24
    """
    if b'"' not in held:
        return _last_line(held)
    signs = np.frombuffer(held, np.uint8)
    quotes = signs == ord('"')
    edges = np.isin(signs, np.frombuffer(sign + b"\r\n", np.uint8))
    before, after = np.r_[True, edges[:-1]], np.r_[edges[1:], True]
    doubled = np.r_[False, quotes[:-1]] | np.r_[quotes[1:], False]
    if (quotes & ~before & ~after & ~doubled).any():
        return _end_with_strays(held, sign, escaped)
    outside = np.cumsum(quotes, dtype=np.int64) % 2 == 0
    (ends,) = ((signs == (ord("\n") if b"\n" in held else ord("\r"))) & outside).nonzero()
    return int(ends[-1]) + 1 if len(ends) else 0


def _end_with_strays(held: bytes, sign: bytes, escaped: bool) -> int:
    """Return the same, quote by quote, where some stand within fields."""
    newline = b"\n" if b"\n" in held else b"\r"
    edges, end, at, outside_from = sign + b"\r\n", 0, 0, 0
    while (opening := held.find(b'"', at)) >= 0:
        if opening and held[opening - 1] not in edges:
            at = opening + 1
            continue
        end = max(end, held.rfind(newline, outside_from, opening) + 1)
        closing = held.find(b'"', opening + 1)
        while closing >= 0:
            if escaped and held[closing - 1] == ord("\\"):
                closing = held.find(b'"', closing + 1)
            elif held[closing + 1 : closing + 2] == b'"':
                closing = held.find(b'"', closing + 2)
            else:
                break
        if closing < 0:
            return end
        at = outside_from = closing + 1
    return max(end, held.rfind(newline, outside_from) + 1)


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
