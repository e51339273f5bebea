"""A smaller vocabulary reads the catalogue exactly as the whole one does."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from export.prune import lengths, prune
from privacy.errors import InputError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def wordpiece(pieces: list[str], unused: int = 2) -> bytes:
    """A BERT tokenizer.json of these pieces: special tokens, unused ones, then the pieces in order."""
    names = [SPECIAL[0], *(f"[unused{n}]" for n in range(unused)), *SPECIAL[1:], *pieces]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(names))}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ends = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    ends.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    record = {
        "version": "1.0",
        "truncation": None,
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [{"id": vocabulary[name], "content": name, **plain} for name in SPECIAL],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": ends,
            "pair": ends,
            "special_tokens": {
                name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }
    return json.dumps(record).encode()


def vocabulary(tokenizer: bytes) -> dict[str, int]:
    return json.loads(tokenizer)["model"]["vocab"]


def pieces(tokenizer: bytes, text: str) -> list[str]:
    return Tokenizer.from_str(tokenizer.decode()).encode(text).tokens


LETTERS = [f"{mark}{letter}" for letter in "abcd" for mark in ("", "##")]
words = st.text("abcde", min_size=1, max_size=6)


@given(
    st.lists(words, max_size=12),
    st.lists(words, max_size=12),
    st.lists(st.lists(words, max_size=4).map(" ".join), max_size=5),
    st.integers(1, 40),
)
def test_texts_keep_their_pieces_and_everything_needed_stays(
    starts: list[str], inner: list[str], texts: list[str], size: int
) -> None:
    whole = wordpiece([*LETTERS, *starts, *(f"##{word}" for word in inner)])
    smaller, kept = prune(whole, texts, size)
    before, after = vocabulary(whole), vocabulary(smaller)
    assert [before[piece] for piece in sorted(after, key=after.get)] == kept.tolist() == sorted(set(kept.tolist()))
    assert after.keys() >= {*SPECIAL, *LETTERS}
    for text in texts:
        assert pieces(smaller, text) == pieces(whole, text)
    single = {p for p in before if len(p.removeprefix("##")) == 1}
    required = {*SPECIAL, *single, *(p for text in texts for word in text.split() for p in taken(word, before))}
    if len(before) <= size:
        assert after == before
    else:
        unused = {"[unused0]", "[unused1]"}
        assert len(after) == max(len(required), min(size, len(before) - len(unused)))
        assert after.keys() >= required
        assert not unused & after.keys()


def taken(word: str, known: dict[str, int]) -> list[str]:
    """Pieces that WordPiece takes of a word, one at a time, by trying every end."""
    out, rest, mark = [], word, ""
    while rest:
        fitting = [mark + rest[:end] for end in range(len(rest) + 1) if rest[:end] and mark + rest[:end] in known]
        if not fitting:
            break
        out.append(fitting[-1])
        rest, mark = rest[len(fitting[-1]) - len(mark) :], "##"
    return out


def test_pieces_of_a_word_that_is_given_up_stay() -> None:
    # "abe" is "ab" + nothing: [UNK]. Without "ab" it would be "a", "##be".
    whole = wordpiece([*LETTERS, "##be", "ab"])
    assert pieces(whole, "abe be") == ["[CLS]", "[UNK]", "[UNK]", "[SEP]"]
    smaller, _ = prune(whole, ["abe"], 1)
    assert "ab" in vocabulary(smaller)
    assert pieces(smaller, "abe") == ["[CLS]", "[UNK]", "[SEP]"]


def test_the_most_frequent_pieces_fill_up_but_unused_ones_do_not() -> None:
    whole = wordpiece([*LETTERS, "the", "of", "and", "zebra"])
    smaller, kept = prune(whole, ["zebra"], len(SPECIAL) + len(LETTERS) + 3)
    assert [p for p in vocabulary(smaller) if p not in (*SPECIAL, *LETTERS)] == ["the", "of", "zebra"]
    assert kept[:2].tolist() == [0, 3]
    record = json.loads(smaller)
    assert {t["content"]: t["id"] for t in record["added_tokens"]} == dict(zip(SPECIAL, range(5), strict=True))
    assert record["post_processor"]["special_tokens"]["[SEP]"]["ids"] == [3]


def test_what_is_small_already_or_no_wordpiece_stays_as_it_is() -> None:
    whole = wordpiece(LETTERS)
    same, kept = prune(whole, ["abc"], 100)
    assert same == whole
    assert kept.tolist() == list(range(len(vocabulary(whole))))
    other = json.loads(whole)
    other["model"] |= {"type": "WordLevel"}
    raw = json.dumps(other).encode()
    assert prune(raw, ["abc"], 3)[0] == raw


def test_a_tokenizer_that_reads_differently_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.prune._pieces", lambda *arguments: set())
    with pytest.raises(InputError, match=r"reads 'dodo' differently; set export\.vocabulary=null"):
        prune(wordpiece([*LETTERS, "##o", "dodo"]), ["dodo"], 1)


def test_lengths_count_special_tokens_and_nothing_is_cut() -> None:
    assert lengths(wordpiece(LETTERS), ["", "a", "abc dab", "a" * 30]).tolist() == [2, 3, 8, 32]


@pytest.mark.parametrize("name", ["demo", "ml-100k", "ml-latest-small"])
def test_whole_catalogues_are_read_as_before(name: str) -> None:
    from cloud.model_folder import resolve
    from edgefr.data import datasets as data

    folder = os.environ.get("EDGEFR_DATA")
    if name != "demo" and not (folder and (Path(folder) / f"{name}.zip").exists()):
        pytest.skip(f"{name} is not here")
    try:
        whole = (resolve("package") / "tokenizer.json").read_bytes()
    except InputError as error:
        pytest.skip(str(error))
    texts = data.load(name, Path(folder) if folder else None, 0, {}, None).catalogue.text
    smaller, kept = prune(whole, texts, 8192)
    before, after = (Tokenizer.from_str(raw.decode()) for raw in (whole, smaller))
    assert [e.tokens for e in after.encode_batch(texts)] == [e.tokens for e in before.encode_batch(texts)]
    assert 8192 <= len(kept) <= 16_384
    assert len(kept) == len(vocabulary(smaller))
