"""The device turns texts into vectors by the bundle's tokenizer and ONNX encoder."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge.graph import Graph
from edge.manifest import Encoder
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


def open_encoder(record: Encoder, file: Callable[[str], Path]) -> TextEncoder:
    """Return the encoder of a config; `file` says where a listed file lies."""
    data = None if record.data is None else file(record.data)
    return TextEncoder(file(record.tokenizer), file(record.path), record.width, record.max_tokens, data)
