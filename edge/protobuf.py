"""Protocol buffers are read here as far as a check needs them: fields by number, counted while they are read.

A parser makes an object of some hundred bytes of every two-byte field, so their number is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

MOST_FIELDS = 400_000
"""Fields of a file, at most; the largest graph that is shipped has under 20,000."""
MOST_NUMBERS = 4096  # of one list
Span = tuple[int, int]
Fields = dict[int, list[int | Span]]


class Wire:
    """This reads one file's bytes. `allowed`: by kind of message, the fields that it may have; other kinds: any."""

    def __init__(self, content: bytes, allowed: Mapping[str, frozenset[int]]) -> None:
        self.content, self._allowed, self._read = content, allowed, 0

    def message(self, kind: str, span: int | Span) -> Fields:
        """Return the fields of a message by number: whole numbers, and where the bytes of others begin and end.

        Raises ValueError for a field that such a message may not have, for too many, and for bytes that are no message.
        """
        found: Fields = {}
        allowed = self._allowed.get(kind)
        for number, value in self._fields(*spanned(span)):
            self._read += 1
            if allowed is not None and number not in allowed:
                raise ValueError(f"its {kind} has the field {number}, which no graph of a device has")
            if self._read > MOST_FIELDS:
                raise ValueError(f"it has more than {MOST_FIELDS:,} fields")
            found.setdefault(number, []).append(value)
        return found

    def text(self, message: Fields, number: int) -> str:
        """Return a text field, empty where there is none; ValueError for two."""
        found = message.get(number, [])
        if len(found) > 1 or (found and isinstance(found[0], int)):
            raise ValueError(f"a text is given {len(found)} times")
        return self.string(found[0]) if found else ""

    def string(self, span: int | Span) -> str:
        """Return the text in these bytes."""
        start, stop = spanned(span)
        return self.content[start:stop].decode("utf-8")

    def numbers(self, message: Fields, number: int) -> list[int]:
        """Return a list of whole numbers, packed or not; ValueError for a long one."""
        found: list[int] = []
        for entry in message.get(number, []):
            if isinstance(entry, int):
                found.append(entry)
                continue
            at = entry[0]
            while at < entry[1] and len(found) <= MOST_NUMBERS:
                value, at = self._varint(at)
                found.append(value)
        if len(found) > MOST_NUMBERS:
            raise ValueError(f"it has a list of more than {MOST_NUMBERS:,} numbers")
        return found

    def _fields(self, at: int, stop: int) -> Iterator[tuple[int, int | Span]]:
        while at < stop:
            key, at = self._varint(at)
            number, wire = key >> 3, key & 7
            if key >> 32:  # parsers differ on what such a field is
                raise ValueError("a field's number is too large")
            if wire == 0:
                value, at = self._varint(at)
                yield number, value
                continue
            if wire == 2:
                size, at = self._varint(at)
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
            else:
                raise ValueError(f"wire type {wire}")
            if at + size > stop:
                raise ValueError("a field is longer than its message")
            yield number, (at, at + size)
            at += size
        if at != stop:
            raise ValueError("a field is longer than its message")

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while shift < 70:
            byte = self.content[at]
            value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
            if byte < 128:
                return value, at
        raise ValueError("a number has too many bytes")


def spanned(value: int | Span) -> Span:
    """Return where bytes begin and end; ValueError for a number in their place."""
    if isinstance(value, int):
        raise ValueError("a number stands where bytes should")
    return value


def signed(value: int) -> int:
    """Return a whole number of 64 bits that may be below 0."""
    return value - (1 << 64) if value >> 63 else value
