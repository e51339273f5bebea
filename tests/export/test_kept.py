"""Encoders are staged once: the same files and forms come back, and nothing else takes their place."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloud.pooling import POOLINGS, Pooling
from edge.manifest import Encoder
from export import artifact_cache as kept
from export import encoders, identity
from export.encoders import StagedEncoder, TextEncoders, encoder_of
from export.staged_files import Staging
from export.variants import GraphCost
from privacy.errors import InputError
from tests.export import worlds

TEXTS = worlds.titles()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep encoders in a folder of the test's own, and note each that is staged anew."""
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(identity, "_check_nothing_is_replaced", dict)  # this test does
    notes: list[str] = []

    def noted(stage: Staging, how: TextEncoders, texts: list[str]) -> dict[str, StagedEncoder]:
        """Stage a file in place of an encoder: what is kept of it is asked here, and nothing of how it is made."""
        notes.append("made")
        stage.add("onnx/encoder.onnx", "encoder", f"{how.max_tokens} {texts}")
        return {"f32": StagedEncoder(RECORD, 3, 1.0, GraphCost(1.0, 2.0), None)}

    monkeypatch.setattr(encoders, "stage_encoders", noted)
    return notes


RECORD = Encoder(
    path="onnx/encoder.onnx",
    data=None,
    tokenizer="tokenizer.json",
    dtype="f32",
    layers=1,
    hidden=8,
    vocabulary=60,
    width=8,
    pooling="mean",
    max_tokens=16,
)


def read_by(folder: Path, **changes: Any) -> TextEncoders:
    return replace(TextEncoders(folder, POOLINGS["mean"], 16, {}, 60), **changes)


def staged(root: Path, how: TextEncoders, texts: list[str] = TEXTS) -> tuple[Staging, dict[str, StagedEncoder]]:
    stage = Staging(root)
    return stage, how.forms(stage, texts)


def test_the_same_files_and_forms_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))
    how = read_by(worlds.student())
    first, forms = staged(tmp_path / "a", how)
    monkeypatch.setattr(identity, "_check_nothing_is_replaced", dict)
    monkeypatch.setattr(encoders, "stage_encoders", lambda *given: pytest.fail("it is there"))
    second, again = staged(tmp_path / "b", how)
    assert forms == again
    assert list(forms) == ["f32", "f16", "i8", "i4"]
    assert first.files == second.files
    assert len(first.files) > 4
    for name in first.files:
        assert (first.root / name).read_bytes() == (second.root / name).read_bytes()
    assert (
        encoder_of(second, again["i8"].record).encode(TEXTS) == encoder_of(first, forms["i8"].record).encode(TEXTS)
    ).all()


def test_whatever_they_depend_on_is_another_one(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "encoder"
    shutil.copytree(worlds.student(), own)
    how = read_by(own)
    asked = [how, read_by(own, pooling=POOLINGS["cls"]), read_by(own, max_tokens=8), read_by(own, vocabulary=None)]
    for number, other in enumerate(asked):
        staged(tmp_path / str(number), other)
    staged(tmp_path / "texts", how, [*TEXTS, "a title more"])
    (own / "report.json").write_text('{"seconds": 3}')  # which says nothing of what it computes
    staged(tmp_path / "report", how)
    assert len(made) == 5
    (own / "tokenizer.json").write_bytes((own / "tokenizer.json").read_bytes() + b"\n")
    staged(tmp_path / "tokenizer", how)
    monkeypatch.setattr(identity, "version", partial(str.__add__, "another "))
    staged(tmp_path / "packages", how)
    monkeypatch.setattr(identity, "_code", partial(list, [("encoders.py", "another")]))
    staged(tmp_path / "code", how)
    assert len(made) == 8


def test_a_pooling_whose_code_does_not_say_all_is_never_kept(made: list[str], tmp_path: Path) -> None:
    pool, scale = POOLINGS["mean"].pool, 2.0
    how = read_by(worlds.student(), pooling=Pooling("twice", lambda states, mask: scale * pool(states, mask)))
    for name in "ab":
        staged(tmp_path / name, how)
    assert made == ["made", "made"]
    assert not (tmp_path / "cache" / "encoders").exists()


def test_a_planted_file_writes_nothing_outside_the_stage(made: list[str], tmp_path: Path) -> None:
    how = read_by(worlds.student())
    staged(tmp_path / "first", how)
    (file,) = (tmp_path / "cache" / "encoders").iterdir()
    kept.keep(file, kept._packed({}, [("../outside", "encoder", b"planted")]))
    with pytest.raises(InputError, match=r"names '\.\./outside'; remove it"):
        staged(tmp_path / "second", how)
    assert not (tmp_path / "outside").exists()


def test_what_was_used_least_recently_goes_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", 3 * (32 + 1000))
    paths = {name: tmp_path / "graphs" / name for name in "abcd"}
    for at, name in enumerate("abc"):
        kept.keep(paths[name], name.encode() * 1000)
        os.utime(paths[name], (at, at))
    assert kept.read(paths["a"]) == b"a" * 1000
    kept.keep(paths["d"], b"d" * 1000)
    assert {name for name, path in paths.items() if path.exists()} == {"a", "c", "d"}
    assert kept.read(paths["b"]) is None
