"""The device in TypeScript cuts texts as the library of tokenizers does, and refuses what the Python device refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from edge.encoder import checked
from tests.edge.folders import edit_json
from tests.edge.test_tokenizer_check import HOSTILE
from tests.edge_js import code_points
from tests.edge_js.test_corpus import Corpus
from tests.export import worlds

pytestmark = pytest.mark.xdist_group("edge_js")
LETTERS = "ab0Zéß"
TEXTS = [
    *(
        "",
        " ",
        "Twelve Monkeys (1995)",
        "Amélie",
        "AMÉLIE",
        "A\u0301me\u0301lie",
        "Strasse, Straße, ΟΔΟΣ",
        "Ǆǅǆ",
        "İstanbul",
    ),
    *(
        "中文 abc",
        "日本語のタイトル",
        "한국어 제목",
        "ไทย ภาษา",
        "हिन्दी में",
        "עִבְרִית",
        "اَلْعَرَبِيَّةُ",
        "\U00020000\U0002b820\U0002f800",
    ),
    *(
        "👩‍👩‍👧‍👦 🇩🇪 ✌🏽",
        "a\x00b\x07c\x7fd\x85e\xadf\u200bg\ufeffh\ufffdi",
        "tab\tline\nreturn\rpage\x0cend\x1fx",
        "\u2028\u2029\u3000x\u1680y",
    ),
    *(
        "\u0378\u0e5d\U0001ffff\U000e0080\U000e0001\U000e0041",
        "\ue000\U000f0000\U0010fffd",
        "[MASK] x",
        "x[CLS][SEP]y[UNK]",
        "[[MASK]]",
        "[mask]",
        "[PAD",
        "＂full～width＂",
    ),
    *("a" * 100, "a" * 101, "é" * 100, "\U0001f600" * 101, "a b " * 5000, "\u0301" * 5000, "x" * 100_000, "." * 3000),
    *("don't_stop-now…", "¿Qué?", "$100 ^_^ `code` ~|~ <b>", "a\u0300\u0323\u0345b", "ｶﾞ", "ﬁne ﬀ", "𝔘𝔫𝔦", "ᾀ Ω Å ≠ ≮"),
    *(
        "\U00011938\U0001134b\U000113c5\U000105c9",
        "\u1e9e\u017f\u212a\u2126",
        "a\u180eb\u2066c\u061cd",
        "\u00b2\u00bd\u2160\u24d0",
    ),
]
"""Accents, other scripts, controls, code points that nobody assigned, emoji, special tokens, very long texts."""

READ_BY_BOTH = "a model of no known kind"
"""A model that does not say its kind is one of word pieces."""


def every(texts: Sequence[str], path: Path, most: int) -> list[list[int]]:
    """Return the numbers of each text's pieces, as `edge.encoder.TextEncoder` has them."""
    tokenizer = Tokenizer.from_str(checked(path.read_bytes()))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=most)
    return [tokenizer.encode(text).ids for text in texts]


@pytest.fixture
def corpus(tmp_path: Path, built: Path) -> Corpus:
    return Corpus(tmp_path, built)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tokenizer of pieces of Latin letters, with a vocabulary of the kit's kind."""
    path = tmp_path / "small.json"
    path.write_bytes((worlds.exported("transfr")[0] / "laptop" / "tokenizer.json").read_bytes())
    edit_json(
        path,
        lambda t: t["model"]["vocab"].update({piece: 3000 + n for n, piece in enumerate([*LETTERS, "中", ".", "("])}),
    )
    return path


def whole(path: Path, below: int) -> list[str]:
    """Give a tokenizer one piece for every code point below a bound, so that its numbers tell a text wholly."""
    points = [chr(point) for point in code_points.POINTS if point < below]

    def pieces(said: dict) -> None:  # type: ignore[type-arg]
        vocabulary = said["model"]["vocab"]
        for piece in (*points, *(f"##{point}" for point in points)):
            vocabulary.setdefault(piece, 5000 + len(vocabulary))

    edit_json(path, pieces)
    return points


def test_texts_are_cut_as_the_library_does(corpus: Corpus, small: Path) -> None:
    """By a plain tokenizer, by its other settings, and every code point of two planes by one that tells all."""
    large = small.with_name("large.json")
    large.write_bytes(small.read_bytes())
    points = whole(large, 0x20000)
    rows = [f"{'a'.join(points[at : at + 90])}" for at in range(0, len(points), 90)]
    asked = {"titles": (small, [*TEXTS, *worlds.titles()], 32), "code points": (large, rows, 512)}
    for name, more in {
        "kept accents": {"strip_accents": False},
        "kept capitals": {"lowercase": False},
        "capitals without accents": {"lowercase": False, "strip_accents": True},
        "kept controls": {"clean_text": False, "handle_chinese_chars": False},
    }.items():
        other = small.with_name(f"{len(asked)}.json")
        other.write_bytes(small.read_bytes())
        whole(other, 0x500)
        edit_json(other, lambda t, more=more: t["normalizer"].update(more))
        asked[name] = other, TEXTS, 64
    ends = small.with_name("ends.json")
    ends.write_bytes(small.read_bytes())
    edit_json(
        ends, lambda t: t.update(post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})
    )
    asked["other ends"] = ends, TEXTS, 3
    plain = small.with_name("plain.json")
    plain.write_bytes(small.read_bytes())
    edit_json(plain, lambda t: t.update(post_processor=None, normalizer=None, pre_tokenizer=None, added_tokens=[]))
    asked["nothing but pieces"] = plain, TEXTS, 64
    for name, (path, texts, most) in asked.items():
        corpus.file(name, "tokens", path.read_bytes(), items=texts, most=most)
    found = corpus.answers()
    for name, (path, texts, most) in asked.items():
        got, wanted = found[name].get("top", found[name]), every(texts, path, most)
        odd = [(text[:40], a, b) for text, a, b in zip(texts, got, wanted, strict=True) if a != b]
        assert odd[:3] == [], name


def test_tokenizers_that_no_encoder_of_ours_has(corpus: Corpus) -> None:
    source = worlds.exported("transfr")[0] / "laptop"
    more = {
        "a token of no piece": lambda t: t["added_tokens"].append({**t["added_tokens"][0], "content": "[NEW]"}),
        "a token within words": lambda t: t["added_tokens"][0].update(single_word=True, lstrip=True),
        "an empty token": lambda t: t["added_tokens"][0].update(content=""),
        "two texts in one": lambda t: t["post_processor"]["single"].append({"Sequence": {"id": "A", "type_id": 0}}),
        "a mark that is not there": lambda t: t["post_processor"]["special_tokens"].pop("[CLS]"),
        "a piece below nothing": lambda t: t["model"]["vocab"].update(a=-1),
        "a piece that the graph has not": lambda t: t["model"]["vocab"].update(a=1 << 30),
        "a list of pieces": lambda t: t["model"].update(vocab=["a"]),
    }
    for name, change in {**HOSTILE, **more}.items():
        if name == READ_BY_BOTH:
            continue
        corpus.bundle(name, source, lambda path, c=change: edit_json(path / "tokenizer.json", c))
    for one in corpus.asked:
        one["what"] = "encoder"
    corpus.refused(20)
