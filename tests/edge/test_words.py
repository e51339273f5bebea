"""Texts read by their words alone: against a literal reading, on hostile texts, and from bundles that are damaged."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import Recommender
from edge.word_vectors import LONGEST, WordEncoder, WordTable, numbers_of, words_of
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.edge.folders import edit_json, resign
from tests.export import worlds


def number(word: str) -> int:
    """A word's number, as an unsigned one."""
    return int.from_bytes(hashlib.sha256(word.encode("utf-8")).digest()[:8], "little")


def normal(values: list[float]) -> list[float]:
    length = math.sqrt(sum(value**2 for value in values))
    return [value / length for value in values]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Lord of the Rings (2001)", ["the", "lord", "of", "the", "rings", "2001"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("e\u0301te\u0301 ｆｕｌｌ", ["été", "full"]),
        ("don't; rock'n'roll", ["don", "t", "rock", "n", "roll"]),
        ("图书", ["图书"]),
        (" ...!? ", []),
    ],
)
def test_words_are_runs_of_letters_in_one_case_and_form(text: str, words: list[str]) -> None:
    assert words_of(text) == words
    assert words_of(text, pairs=True)[len(words) :] == [f"{a} {b}" for a, b in pairwise(words)]


@pytest.mark.parametrize("pairs", [False, True])
@given(words=st.lists(st.sampled_from(["red", "wool", "jar", "blue", "7"]), min_size=1, max_size=9))
def test_hashed_words_by_hand(pairs: bool, words: list[str]) -> None:
    expected = [0.0] * 5
    said = words + ([f"{a} {b}" for a, b in pairwise(words)] if pairs else [])
    for word in said:
        expected[number(word) % 5] += -1.0 if number(word) >= 1 << 63 else 1.0
    found = WordEncoder(5, pairs).encode([" ".join(words).upper()])
    assert found.dtype == np.float32
    assert_same(found, [normal(expected) if any(expected) else expected])


@given(words=st.lists(st.sampled_from(["red", "wool", "jar", "blue", "unknown", "new"]), max_size=9))
def test_learned_words_by_hand(words: list[str]) -> None:
    rows = {"red": [1.0, 0.5], "wool": [0.25, 0.0], "jar": [-0.5, 0.125], "blue": [0.0, -1.0]}
    ordered = sorted(rows, key=lambda word: numbers_of(word)[0])
    table = WordTable(
        np.array([numbers_of(word)[0] for word in ordered]), np.array([rows[word] for word in ordered], np.float16)
    )
    expected = [0.0, 0.0]
    for word, count in Counter(words).items():
        expected = [a + count * b for a, b in zip(expected, rows.get(word, [0.0, 0.0]), strict=True)]
    found = WordEncoder(2, table=table).encode([" ".join(words)])
    assert_same(found, [normal(expected) if any(expected) else expected])


def test_parts_of_a_learned_row_by_hand() -> None:
    """Each part of a text's vector has the same length, whatever the scales of its words' rows."""
    numbers = np.sort(numbers_of("red wool"))
    red, wool = (int(np.searchsorted(numbers, numbers_of(word)[0])) for word in ("red", "wool"))
    weights, scale = np.zeros((2, 4), np.int8), np.zeros((2, 2), np.float32)
    weights[red], scale[red] = [3, 4, 127, 0], [0.5, 2.0]
    weights[wool], scale[wool] = [-3, 4, 0, 127], [0.25, 2.0]
    table = WordTable(numbers, weights, scale)
    half = math.sqrt(0.5)
    cold, both = WordEncoder(4, table=table).encode(["red", "wool red red"])
    assert_same(cold, [0.6 * half, 0.8 * half, half, 0.0])
    first = normal([2 * 1.5 - 0.75, 2 * 2.0 + 1.0])
    assert_same(both, [v * half for v in (*first, *normal([2.0, 1.0]))])


def test_a_part_that_knows_nothing_of_a_text_leaves_the_other_its_length() -> None:
    table = WordTable(numbers_of("red"), np.array([[3, 4, 0, 0]], np.int8), np.array([[1.0, 0.0]], np.float32))
    assert_same(WordEncoder(4, table=table).encode(["red"]), [[0.6, 0.8, 0.0, 0.0]])


@pytest.mark.parametrize(
    "text",
    [
        "\ud800 lone \udfff",
        "a\x00b",
        "\u202ereversed",
        "\ufdfa" * 100_000,
        "a" + "\u0301\u0323" * 100_000,
        "x " * 10**6,
    ],
)
def test_hostile_texts_are_read_in_no_time(text: str) -> None:
    began = time.process_time()
    (found,) = WordEncoder(8, pairs=True).encode([text])
    assert np.isfinite(found).all()
    assert time.process_time() - began < 2.0


def test_a_text_is_read_up_to_a_bound() -> None:
    text = "ab " * LONGEST
    assert WordEncoder(8).tokens(text) == math.ceil(LONGEST / 3)
    assert_same(WordEncoder(8).encode([text + "other"]), WordEncoder(8).encode([text]))


@pytest.mark.parametrize("kind", worlds.READ)
def test_a_device_reads_the_catalogue_as_it_was_read(kind: str) -> None:
    device = Recommender(worlds.exported(kind)[0] / "phone")
    assert np.abs(device.encode(worlds.titles()) - worlds.words(kind).vectors).max() <= 1e-5
    assert device.bundle.manifest.variant.endswith(f"+encoder-{kind}")
    assert not any(entry.role in ("encoder", "tokenizer") for entry in device.bundle.manifest.files)
    assert not device.encode(["", "  "]).any()
    with pytest.raises(InputError, match="a text must be a string, got int"):
        device.encode([3])  # type: ignore[list-item]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of a bundle with a learned table of words."""
    return shutil.copytree(worlds.exported("tfidf")[0] / "laptop", tmp_path / "laptop")


def _weights(bundle: Path, value: float) -> None:
    weights = np.load(bundle / "words" / "weights.npy")
    weights[:] = value
    np.save(bundle / "words" / "weights.npy", weights)


def _numbers(bundle: Path) -> None:
    numbers = np.load(bundle / "words" / "numbers.npy")
    np.save(bundle / "words" / "numbers.npy", numbers[::-1])


def _config(bundle: Path, **changes: object) -> None:
    edit_json(bundle / "config.json", lambda config: config["encoder"].update(changes))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda b: _weights(b, np.inf), "weights of the words are no finite numbers"),
        (lambda b: _weights(b, np.nan), "weights of the words are no finite numbers"),
        (_numbers, "numbers of words that do not ascend"),
        (lambda b: _config(b, width=47), r"weights.npy is float16 \[40, 48\] instead of float16 \[40, 47\]"),
        (
            lambda b: _config(b, table={"count": 39, "numbers": "words/numbers.npy", "weights": "words/weights.npy"}),
            r"numbers.npy is int64 \[40\] instead of int64 \[39\]",
        ),
        (
            lambda b: _config(b, table={"count": 40, "numbers": "words/weights.npy", "weights": "words/weights.npy"}),
            r"weights.npy is float16 \[40, 48\] instead of int64 \[40\]",
        ),
        (lambda b: _config(b, table={"count": 40, "numbers": "x.npy", "weights": "words/weights.npy"}), "is missing"),
        (lambda b: (b / "words" / "numbers.npy").write_bytes(b"no"), "is not a .npy array"),
        (lambda b: _config(b, words="words/2"), r"encoder.words.words: Input should be 'words/1'"),
        (lambda b: _config(b, width=1 << 40), "encoder.words.width"),
        (lambda b: _config(b, path="onnx/encoder.onnx"), "encoder.words.path: Extra inputs"),
    ],
)
def test_a_damaged_bundle_is_refused_in_one_line(damage, says: str, bundle: Path) -> None:
    damage(bundle)
    resign(bundle)
    with pytest.raises(InputError, match=says) as caught:
        Recommender(bundle).encode(worlds.titles())
    assert "\n" not in str(caught.value)
