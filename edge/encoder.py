"""The device turns texts into vectors by what its bundle has: a tokenizer and an ONNX encoder, or words alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from edge.graph import Entry, Graph, unlisted
from edge.manifest import Encoder, LearnedWords, Words
from edge.manifest_check import reason
from edge.records import Record
from edge.verified_files import exactly, read
from edge.word_vectors import WordEncoder, WordTable
from privacy.errors import InputError
from privacy.extras import needed

Floats = npt.NDArray[np.float32]


class TextEncoder:
    """This is a tokenizer and an encoder graph, loaded. Texts run one at a time, so vectors do not depend on company.

    `width` is the vectors' length, `max_tokens` what longer texts are cut to, `data` the graph's large tensors beside
    it; `entry` as `Graph` takes it. Raises `InputError` for a file that does not load, or is no encoder of ours.
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
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise needed("text") from error
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
    numbers = exactly(at, str(at), np.int64, (record.count,), entry(at))
    if not (numbers[1:] > numbers[:-1]).all():
        raise InputError(f"{at} has numbers of words that do not ascend; export again")
    stored = np.float16 if record.scale is None else np.int8
    rows = exactly(weights, str(weights), stored, (record.count, width), entry(weights))
    if record.scale is None:
        return WordTable(numbers, rows)
    scale = file(record.scale)
    shape = (record.count, record.parts)
    return WordTable(numbers, rows, exactly(scale, str(scale), np.float32, shape, entry(scale)))


MOST_BYTES = 16 << 20
Number = Annotated[int, Field(ge=0, lt=1 << 31)]
Text = Annotated[str, Field(max_length=200)]


class AddedToken(Record):
    id: Number
    content: Text
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


class Normalizer(Record):
    type: Literal["BertNormalizer"]
    clean_text: bool
    handle_chinese_chars: bool
    strip_accents: bool | None = None
    lowercase: bool


class PreTokenizer(Record):
    type: Literal["BertPreTokenizer"]


class Piece(Record):
    id: Text
    type_id: Number


class Sequence(Record):
    """This is the text in a template."""

    Sequence: Piece


class SpecialToken(Record):
    """This is what stands beside the text in a template."""

    SpecialToken: Piece


class Special(Record):
    id: Text
    ids: Annotated[list[Number], Field(max_length=8)]
    tokens: Annotated[list[Text], Field(max_length=8)]


Places = Annotated[list[Sequence | SpecialToken], Field(max_length=8)]


class Template(Record):
    type: Literal["TemplateProcessing"]
    single: Places
    pair: Places
    special_tokens: Annotated[dict[Text, Special], Field(max_length=100)]


class BertEnds(Record):
    type: Literal["BertProcessing"]
    sep: tuple[Text, Number]
    cls: tuple[Text, Number]


class Decoder(Record):
    type: Literal["WordPiece"]
    prefix: Text
    cleanup: bool


class WordPiece(Record):
    """This is the vocabulary, and how words are cut by it: in a time that grows with the cube of their length."""

    type: Literal["WordPiece"] = "WordPiece"
    unk_token: Text
    continuing_subword_prefix: Text
    max_input_chars_per_word: int = Field(ge=1, le=200)
    vocab: Annotated[dict[Text, Number], Field(max_length=1 << 20)]

    @model_validator(mode="after")
    def _unknown_words_have_a_piece(self) -> Self:
        if self.unk_token not in self.vocab:
            raise ValueError(f"its vocabulary lacks {self.unk_token!r}")
        return self


class Tokenizer(Record):
    """This is `tokenizer.json`. How texts are cut and filled up is said by who uses it, so that is left out."""

    version: Literal["1.0"]
    truncation: Any = Field(None, exclude=True)
    padding: Any = Field(None, exclude=True)
    added_tokens: Annotated[list[AddedToken], Field(max_length=10_000)]
    normalizer: Normalizer | None
    pre_tokenizer: PreTokenizer | None
    post_processor: Annotated[Template | BertEnds, Field(discriminator="type")] | None
    decoder: Decoder | None = None
    model: WordPiece


def checked(content: bytes) -> str:
    """Return a tokenizer as the library may read it. Raises ValueError, in one line, for any but a BERT's.

    >>> checked(b"{}")
    Traceback (most recent call last):
    ValueError: version: Field required
    """
    try:
        return Tokenizer.model_validate_json(content).model_dump_json()
    except ValidationError as error:
        raise ValueError(reason(error)) from None
