"""A smaller vocabulary keeps the catalogue's pieces, every character, and the most frequent rest.

WordPiece takes the longest piece that fits, again and again. When all pieces that it takes (and those it takes before
it gives a word up) stay, taking any others away changes nothing: so the catalogue's texts keep their pieces exactly.
Any other word can still be spelt, since single characters stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError

Ints = npt.NDArray[np.int64]


def prune(tokenizer: bytes, texts: Sequence[str], size: int) -> tuple[bytes, Ints]:
    """Return a tokenizer.json with about `size` pieces, and the old number of each new one.

    Numbers ascend, int64 [pieces].

    Kept: special tokens, the pieces of `texts`, every single character with and without "##"; then, up to `size`, the
    lowest numbers, which are the most frequent pieces of a BERT vocabulary. A tokenizer that is no WordPiece, or has
    no more than `size` pieces, comes back as it is.
    """
    record = json.loads(tokenizer)
    model = record.get("model", {})
    vocabulary = model.get("vocab")
    if model.get("type") != "WordPiece" or not isinstance(vocabulary, dict) or len(vocabulary) <= size:
        count = len(vocabulary) if isinstance(vocabulary, dict | list) else 0
        return tokenizer, np.arange(max(count, 1 + max(_added(record), default=0)), dtype=np.int64)
    needed = set(_added(record)) | _characters(vocabulary, model) | _pieces(tokenizer, texts, vocabulary, model)
    frequent = (n for piece, n in sorted(vocabulary.items(), key=lambda p: p[1]) if not piece.startswith("[unused"))
    spare = (n for n in frequent if n not in needed)
    kept = np.array(sorted({*needed, *(n for _, n in zip(range(size - len(needed)), spare, strict=False))}), np.int64)
    smaller = _renumbered(record, {int(old): new for new, old in enumerate(kept)})
    _same(tokenizer, smaller, kept, texts)
    return smaller, kept


def _added(record: Mapping[str, Any]) -> list[int]:
    return [token["id"] for token in record.get("added_tokens", [])]


def _characters(vocabulary: Mapping[str, int], model: Mapping[str, Any]) -> set[int]:
    """Return single characters, alone and inside a word; and what stands for an unknown word."""
    inner = model["continuing_subword_prefix"]
    return {n for piece, n in vocabulary.items() if len(piece.removeprefix(inner)) == 1 or piece == model["unk_token"]}


def _pieces(
    tokenizer: bytes, texts: Iterable[str], vocabulary: Mapping[str, int], model: Mapping[str, Any]
) -> set[int]:
    """Return the numbers of all pieces that the texts' words are cut into, up to where a word is given up."""
    from tokenizers import Tokenizer

    whole = Tokenizer.from_str(tokenizer.decode())
    words = {word for text in texts for word in _words(whole, text)}
    return {n for word in words for n in greedy(word, vocabulary, model["continuing_subword_prefix"])}


def _words(tokenizer: Any, text: str) -> list[str]:
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    if tokenizer.pre_tokenizer is None:
        return [normal]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]


def greedy(word: str, vocabulary: Mapping[str, int], inner: str = "##") -> Iterator[int]:
    """Numbers of the pieces WordPiece takes of a word, from its start until none fits.

    >>> list(greedy("unsure", {"un": 0, "##s": 1, "##sure": 2, "unsu": 3, "##re": 4}))
    [3, 4]
    """
    start = 0
    while start < len(word):
        prefix = inner if start else ""
        ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in vocabulary)
        end = next(ends, None)
        if end is None:
            return
        yield vocabulary[prefix + word[start:end]]
        start = end


def _renumbered(record: dict[str, Any], new: Mapping[int, int]) -> bytes:
    vocabulary = record["model"]["vocab"]
    pieces = sorted((new[old], piece) for piece, old in vocabulary.items() if old in new)
    record["model"]["vocab"] = {piece: number for number, piece in pieces}
    for token in record["added_tokens"]:
        token["id"] = new[token["id"]]
    ends = record.get("post_processor") or {}
    if ends.get("type") == "TemplateProcessing":
        for special in ends["special_tokens"].values():
            special["ids"] = [new[number] for number in special["ids"]]
    for side in ("sep", "cls"):  # BertProcessing and RobertaProcessing: [token, number]
        if isinstance(ends.get(side), list):
            ends[side][1] = new[ends[side][1]]
    if record.get("padding"):
        record["padding"]["pad_id"] = new.get(record["padding"]["pad_id"], 0)
    return json.dumps(record, ensure_ascii=False).encode()


def _same(whole: bytes, smaller: bytes, kept: Ints, texts: Sequence[str]) -> None:
    """Raise `InputError` unless both cut every text into the same pieces."""
    from tokenizers import Tokenizer

    try:
        before, after = (Tokenizer.from_str(raw.decode()) for raw in (whole, smaller))
    except Exception as error:  # the library raises plain Exception
        raise InputError(f"the tokenizer cannot be cut down ({error}); set export.vocabulary=null") from error
    for tokenizer in (before, after):
        tokenizer.no_padding()
        tokenizer.no_truncation()
    for text in texts:
        if [int(kept[n]) for n in after.encode(text).ids] != before.encode(text).ids:
            raise InputError(f"a smaller vocabulary reads {text!r:.60} differently; set export.vocabulary=null")


def lengths(tokenizer: bytes, texts: Sequence[str]) -> Ints:
    """Count the tokens of every text, special ones included, uncut, int64 [texts]."""
    from tokenizers import Tokenizer

    whole = Tokenizer.from_str(tokenizer.decode())
    whole.no_padding()
    whole.no_truncation()
    return np.array([len(encoding.ids) for encoding in whole.encode_batch(list(texts))], np.int64)


def cap(counts: Ints, longest: int, share: float = 0.995) -> int:
    """Return the smallest of 16, 32, 64, 128 and `longest` that holds `share` of the texts of these lengths.

    >>> cap(np.array([9] * 995 + [40] * 5), 128), cap(np.array([9] * 994 + [40] * 6), 128), cap(np.array([9]), 12)
    (16, 64, 12)
    """
    enough = float(np.quantile(counts, share, method="inverted_cdf")) if len(counts) else 0.0
    return next((c for c in (16, 32, 64, 128) if enough <= c < longest), longest)
