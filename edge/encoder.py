"""The device turns texts into vectors by what its bundle has: a tokenizer and an ONNX encoder, or words alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge import npy
from edge.graph import Entry, Graph, unlisted
from edge.manifest import Encoder, LearnedWords, Words
from edge.tokenizer_check import MOST_BYTES, checked
from edge.verified_files import read
from edge.word_vectors import WordEncoder, WordTable
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]


class TextEncoder:
    """This is a tokenizer and an encoder graph, loaded. Texts run one at a time, so vectors do not depend on company.

    `width` is the vectors' length, `max_tokens` what longer texts are cut to, `data` the graph's large tensors when
    they lie beside it; `entry` as `Graph` takes it. Raises `InputError` naming the file that does not load, or has
    what no encoder of ours has (`edge.tokenizer_check`).
    """

    def __init__(
        self,
        tokenizer: Path,
        graph: Path,
        width: int,
        max_tokens: int,
        data: Path | None = None,
        entry: Entry = unlisted,
    ) -> None:
        from tokenizers import Tokenizer

        content = read(tokenizer, entry(tokenizer), MOST_BYTES)
        try:
            self._tokenizer = Tokenizer.from_str(checked(content))
        except Exception as error:  # the library raises plain Exception
            why = f" ({error})" if isinstance(error, ValueError) else ""
            raise InputError(f"{tokenizer} is not a tokenizer of a device{why}; export again") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=max_tokens)
        self._graph = Graph(graph, data, entry)
        self._width = width

    def encode(self, texts: list[str]) -> Floats:
        """Return vectors of the texts, float32 [n, width]; an empty text is a row of zeros."""
        out = np.zeros((len(texts), self._width), np.float32)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"a text must be a string, got {type(text).__name__}")
            if text.strip():
                tokens = self._tokenizer.encode(text)
                ids = np.asarray([tokens.ids], np.int64)
                vector = self._graph.run({"ids": ids, "mask": np.ones_like(ids)})
                if vector.shape != (1, self._width):
                    raise InputError(f"{self._graph.path} gives {vector.shape} instead of (1, {self._width})")
                out[row] = vector[0]
        return out

    def tokens(self, text: str) -> int:
        """Return how many tokens are read of a text."""
        return len(self._tokenizer.encode(text).ids)


def open_encoder(
    record: Encoder | Words, file: Callable[[str], Path], entry: Entry = unlisted
) -> TextEncoder | WordEncoder:
    """Return the encoder of a config; `file` says where a listed file lies, `entry` what its manifest says of it.

    Raises `InputError` naming the file that does not load, or is not what the config says.
    """
    if isinstance(record, Words):
        table = None if record.table is None else _table(record.table, record.width, file, entry)
        return WordEncoder(record.width, record.pairs, table)
    data = None if record.data is None else file(record.data)
    return TextEncoder(file(record.tokenizer), file(record.path), record.width, record.max_tokens, data, entry)


def _table(record: LearnedWords, width: int, file: Callable[[str], Path], entry: Entry) -> WordTable:
    """Map a table of words; its numbers must ascend, since words are looked up by halving."""
    at, weights = file(record.numbers), file(record.weights)
    numbers = npy.exactly(at, str(at), np.int64, (record.count,), entry(at))
    if not (numbers[1:] > numbers[:-1]).all():
        raise InputError(f"{at} has numbers of words that do not ascend; export again")
    rows = npy.exactly(weights, str(weights), np.float16, (record.count, width), entry(weights))
    return WordTable(numbers, rows)
