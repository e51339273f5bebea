"""Texts become token numbers, in batches of similar length.

Tokens of all texts lie in one ragged column (`values`, `offsets`). Batches hold neighbours in length, so
little is padded; which texts share a batch never changes, only the order of batches does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from privacy import keyed
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """These are the token numbers of n texts: text i is `values[offsets[i]:offsets[i + 1]]`; `pad` fills short rows."""

    values: Ints
    offsets: Ints
    pad: int

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)


def checked(texts: Sequence[str]) -> list[str]:
    """Return the texts without outer blanks and broken characters. Raises `InputError` for what is no string."""
    out = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"text {number} is {text!r:.40}, not a string; give an empty string where there is no text"
            )
        out.append(text.encode("utf-8", "replace").decode().strip())
    return out


def corpus(texts: Sequence[str]) -> list[str]:
    """The distinct texts to learn from, in order. Raises `InputError` when there are none."""
    distinct = list(dict.fromkeys(text for text in checked(texts) if text))
    if not distinct:
        raise InputError(
            "there is no text to learn from: " + ("every text is empty" if len(texts) else "no texts given")
        )
    return distinct


def digest_of(texts: Sequence[str]) -> str:
    """Return the hex digest of texts in their order."""
    total = hashlib.sha256()
    for text in texts:
        raw = text.encode()
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()


def tokenise(tokenizer: Any, texts: Sequence[str], max_tokens: int) -> Tokens:
    """Return the token numbers of `texts`, special tokens included, each cut off at `max_tokens`."""
    rows = tokenizer(list(texts), truncation=True, max_length=max_tokens)["input_ids"] if texts else []
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    values = np.fromiter((token for row in rows for token in row), dtype=np.int64, count=int(offsets[-1]))
    return Tokens(values, offsets, int(tokenizer.pad_token_id))


def by_length(lengths: Ints, size: int) -> list[Ints]:
    """Return batches of at most `size` texts of similar length, shortest first; equal lengths keep their order."""
    order = np.argsort(lengths, kind="stable")
    return [order[start : start + size] for start in range(0, len(order), size)]


def visit(count: int, number: int, seed: int, purpose: str) -> int:
    """Say which of `count` batches comes `number`-th, when every pass over them has a keyed order of its own."""
    epoch, place = divmod(number, count)
    draws = keyed.bits(np.uint64(keyed.key(seed, purpose, epoch)), np.arange(count))
    return int(np.argsort(draws, kind="stable")[place])


def padded(tokens: Tokens, rows: Ints, device: str) -> tuple[Tensor, Tensor]:
    """Return token numbers and mask of some texts, both int64 [rows, longest]; 0 in the mask is padding."""
    lengths = tokens.lengths[rows]
    column = np.arange(int(lengths.max()))
    mask = column < lengths[:, None]
    at = np.minimum(tokens.offsets[rows][:, None] + column, len(tokens.values) - 1)
    ids = np.where(mask, tokens.values[at], tokens.pad)
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask.astype(np.int64)).to(device)
