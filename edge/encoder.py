"""The device turns texts into vectors by what its bundle has: a tokenizer and an ONNX encoder, or words alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge import npy
from edge.graph import Graph
from edge.manifest import Encoder, LearnedWords, Words
from edge.words import WordEncoder, WordTable
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]


class TextEncoder:
    """This is a tokenizer and an encoder graph, loaded. Texts run one at a time, so vectors do not depend on company.

    `width` is the vectors' length, `max_tokens` what longer texts are cut to, `data` the graph's large tensors when
    they lie beside it. Raises `InputError` naming the file that does not load.
    """

    def __init__(self, tokenizer: Path, graph: Path, width: int, max_tokens: int, data: Path | None = None) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # the library raises plain Exception
            raise InputError(f"{tokenizer} is not a tokenizer file; export again") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=max_tokens)
        self._graph = Graph(graph, data)
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


def open_encoder(record: Encoder | Words, file: Callable[[str], Path]) -> TextEncoder | WordEncoder:
    """Return the encoder of a config; `file` says where a listed file lies.

    Raises `InputError` naming the file that does not load, or is not what the config says.
    """
    if isinstance(record, Words):
        table = None if record.table is None else _table(record.table, record.width, file)
        return WordEncoder(record.width, record.pairs, table)
    data = None if record.data is None else file(record.data)
    return TextEncoder(file(record.tokenizer), file(record.path), record.width, record.max_tokens, data)


def _table(record: LearnedWords, width: int, file: Callable[[str], Path]) -> WordTable:
    """Map a table of words; its numbers must ascend, since words are looked up by halving."""
    at, weights = file(record.numbers), file(record.weights)
    numbers = npy.exactly(at, str(at), np.int64, (record.count,))
    if not (numbers[1:] > numbers[:-1]).all():
        raise InputError(f"{at} has numbers of words that do not ascend; export again")
    return WordTable(numbers, npy.exactly(weights, str(weights), np.float16, (record.count, width)))
