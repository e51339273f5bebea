"""A text becomes a vector by its words alone, with numpy and no language model: on devices as in simulation.

Words are hashed with signs (Weinberger et al., ICML 2009), or looked up by their numbers in a table that was learned.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

RULE = "words/1"  # another rule of what a word is, or of its number, is another name
LONGEST = 8192  # characters of a text; the rest is not read
WORD = re.compile(r"\w+")


def words_of(text: str, pairs: bool = False) -> list[str]:
    """Return the words of a text's beginning, folded to one case and one form; with `pairs` neighbours too.

    A word is a run of letters, digits and underscores, so text that is written without spaces is one long word.

    >>> words_of("The CAFE\\u0301, the cat", pairs=True)
    ['the', 'café', 'the', 'cat', 'the café', 'café the', 'the cat']
    """
    words = WORD.findall(unicodedata.normalize("NFKC", text[:LONGEST]).casefold())
    return words + [f"{a} {b}" for a, b in pairwise(words)] if pairs else words


def numbers_of(text: str, pairs: bool = False) -> Ints:
    """Return each word's number, int64 [n]: 8 bytes of its SHA-256, low first. Raises `InputError` for no string."""
    if not isinstance(text, str):
        raise InputError(f"a text must be a string, got {type(text).__name__}")
    digests = (hashlib.sha256(word.encode()).digest()[:8] for word in words_of(text, pairs))
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64)


@dataclass(frozen=True)
class WordTable:
    """This is what was learned of words: their `numbers` int64 [n], ascending, and a row of `weights` [n, width] each.

    Weights are float16; or int8, times a `scale` float32 [n, parts] for each of the equal parts of a row.
    """

    numbers: Ints
    weights: npt.NDArray[np.float16] | npt.NDArray[np.int8]
    scale: Floats | None = None

    @property
    def parts(self) -> int:
        """Return how many vectors lie side by side in a row."""
        return 1 if self.scale is None else self.scale.shape[1]

    def rows(self, places: Ints) -> npt.NDArray[np.float64]:
        """Return the rows at these places, float64 [n, width]."""
        rows = self.weights[places].astype(np.float64)
        if self.scale is None:
            return rows
        each = rows.shape[1] // self.parts
        return rows * np.repeat(self.scale[places].astype(np.float64), each, axis=1)


class WordEncoder:
    """This encoder reads words: their hashes alone, or the rows of a `table` where one was learned.

    Vectors have length 1, and so has each part of one before they are joined; a text without a word, or without one
    that the table knows, is a row of zeros.

    >>> WordEncoder(4).encode(["", "red wool wool"]).astype(float).round(2).tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, -0.45, -0.89, 0.0]]
    """

    def __init__(self, width: int, pairs: bool = False, table: WordTable | None = None) -> None:
        self._width, self._pairs, self._table = width, pairs, table

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return vectors of the texts, float32 [n, width]. Raises `InputError` for a table whose weights are none."""
        out = np.zeros((len(texts), self._width), np.float32)
        for row, text in enumerate(texts):
            numbers = numbers_of(text, self._pairs)
            whole = _hashed(numbers, self._width) if self._table is None else _looked_up(numbers, self._table)
            parts = whole.reshape(1 if self._table is None else self._table.parts, -1)
            lengths = np.sqrt([part @ part for part in parts])
            if not np.isfinite(lengths).all():
                raise InputError("the weights of the words are no finite numbers; export again")
            there = np.count_nonzero(lengths)
            if there:
                unit = parts / np.where(lengths > 0, lengths, 1.0)[:, None]
                out[row] = (unit / np.sqrt(there)).reshape(-1)
        return out

    def tokens(self, text: str) -> int:
        """Return how many words, and pairs of them, are read of a text."""
        return len(numbers_of(text, self._pairs))


def _hashed(numbers: Ints, width: int) -> npt.NDArray[np.float64]:
    unsigned = numbers.view(np.uint64)
    out = np.zeros(width)
    np.add.at(out, (unsigned % np.uint64(width)).astype(np.int64), np.where(numbers < 0, -1.0, 1.0))
    return out


def _looked_up(numbers: Ints, table: WordTable) -> npt.NDArray[np.float64]:
    found, count = np.unique(numbers, return_counts=True)
    places = np.searchsorted(table.numbers, found)
    known = places < len(table.numbers)
    known[known] = table.numbers[places[known]] == found[known]
    whole: npt.NDArray[np.float64] = count[known].astype(np.float64) @ table.rows(places[known])
    return whole
