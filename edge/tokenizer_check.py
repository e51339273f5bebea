"""A tokenizer is looked at before the library sees it: parts of a BERT's, and nothing else.

Other parts cost what their author likes (replacements that double a text, regular expressions) or end the process
(tables that the library trusts). The library is given what was checked, written anew.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from edge.manifest_check import reason
from edge.records import Record

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
