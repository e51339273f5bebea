"""Tokenizers that no encoder of ours has are refused before the library sees them; ours read as before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from edge import Recommender
from edge.encoder import checked
from privacy.errors import InputError
from tests.edge.folders import edit_json, resign
from tests.export import worlds

DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BACKTRACKING = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "26 times twice as long": lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [DOUBLED] * 26}),
    "a table that is none": lambda t: t.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA/w=="}),
    "an expression that goes back": lambda t: t.update(pre_tokenizer=BACKTRACKING),
    "a decoder": lambda t: t.update(decoder=DOUBLED),
    "another model": lambda t: t.update(model={"type": "BPE", "vocab": {"a": 0}, "merges": []}),
    "a model of no known kind": lambda t: t["model"].pop("type"),
    "words without end": lambda t: t["model"].update(max_input_chars_per_word=1 << 40),
    "a text a million times": lambda t: t["post_processor"]["single"].extend(
        [{"Sequence": {"id": "A", "type_id": 0}}] * 1000
    ),
    "many numbers of a mark": lambda t: t["post_processor"]["special_tokens"]["[CLS]"].update(ids=[2] * 1000),
    "no piece for unknown words": lambda t: t["model"].update(unk_token="[NONE]"),
    "a number of no piece": lambda t: t["model"]["vocab"].update(a=1 << 40),
    "more than there is": lambda t: t.update(more=1),
    "an expression as a piece": lambda t: t["added_tokens"][0].update(content="x" * 10_000),
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return shutil.copytree(worlds.exported("transfr")[0] / "laptop", tmp_path / "laptop")


@pytest.mark.parametrize("name", HOSTILE)
def test_other_parts_are_refused_before_the_library_sees_them(
    name: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_json(bundle / "tokenizer.json", HOSTILE[name])
    resign(bundle)
    device = Recommender(bundle)

    def seen(*arguments: object) -> None:
        raise AssertionError("the library was given the tokenizer")

    monkeypatch.setattr("edge.encoder.Tokenizer.model_dump_json", seen)
    with pytest.raises(InputError, match=r"tokenizer\.json is not a tokenizer of a device") as error:
        device.encode("a" * 40)
    assert "\n" not in str(error.value)


def test_a_key_that_is_given_twice_is_read_once(bundle: Path) -> None:
    """What the library would take of two, it is not asked: it is given what was checked."""
    plain = (bundle / "tokenizer.json").read_text()
    twice = plain.replace('"normalizer":', f'"normalizer": {json.dumps(DOUBLED)}, "normalizer":', 1)
    assert twice != plain
    assert checked(twice.encode()) == checked(plain.encode())
    with pytest.raises(ValueError, match="normalizer"):
        checked(plain.replace('"pre_tokenizer":', f'"normalizer": {json.dumps(DOUBLED)}, "pre_tokenizer":', 1).encode())


@pytest.mark.parametrize("text", ["Twelve Monkeys (1995)", "Amélie", "中文 abc", "[MASK] x", "ǅ\u0301", "a" * 300])
def test_ours_cut_texts_as_before(text: str, bundle: Path) -> None:
    content = (bundle / "tokenizer.json").read_bytes()
    before, after = Tokenizer.from_str(content.decode()), Tokenizer.from_str(checked(content))
    for one in (before, after):
        one.no_padding()
        one.no_truncation()
    assert after.encode(text).ids == before.encode(text).ids
