"""The Python device passes the kit; a kit, an answer or a refusal that is changed is seen."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.bundle import open_bundle
from edge.conformance import ANSWERS, answer, packed
from edgefr.serving import conformance as kits
from edgefr.serving.conformance import Question, check, judged, questions
from privacy.errors import InputError
from tests.cli.commands import edgefr
from tests.conformance import make

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "conformance"
LIMIT = 1_200_000  # bytes
PYTHON = f"{sys.executable} -m edge.conformance"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One case of the kit in a folder of its own."""
    out = tmp_path_factory.mktemp("kit")
    shutil.copytree(KIT / "fedmf", out / "fedmf")
    shutil.copytree(KIT / "updates", out / "updates")
    write(out, lambda kit: [one for one in kit if one["case"] in ("draws", "fedmf")])
    return out


def write(folder: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], source: Path = KIT) -> Path:
    kit = json.loads((source / "kit.json").read_text(encoding="utf-8"))
    (folder / "kit.json").write_text(json.dumps({**kit, "questions": change(kit["questions"])}))
    return folder


def test_this_device_passes_the_whole_kit(tmp_path: Path) -> None:
    done = edgefr("conformance", PYTHON, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_kit_asks_all_that_there_is_and_is_small() -> None:
    asked = questions(KIT)
    assert {one.asked["ask"] for one in asked} == set(ANSWERS)
    assert {one.case for one in asked} == {"draws", *(path.parent.name for path in KIT.glob("*/manifest.json"))}
    assert sum(path.stat().st_size for path in KIT.rglob("*") if path.is_file()) < LIMIT
    assert max(len(one.asked["items"]) for one in asked if "items" in one.asked) >= 12
    begun = {one.case: one.expected["loss"] for one in asked if one.what == "first step" and one.expected}
    assert min(begun.values()) > 0.1, "nothing left to learn"
    assert {one.expected["steps"] for one in asked if one.what == "50 steps" and one.expected} == {50}


def test_a_kit_that_was_changed_is_seen(small: Path, tmp_path: Path) -> None:
    """An expected answer, a bundle's byte, and an update's."""
    for name in ("fedmf", "updates"):
        shutil.copytree(small / name, tmp_path / name)

    def moved(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for one in asked:
            if one["what"] == "list":
                one["expected"]["top"][:2] = one["expected"]["top"][1::-1]
        return asked

    failed = [one for one in check(PYTHON, write(tmp_path, moved, small)) if one.fault is not None]
    assert {one.question.what for one in failed} == {"list"}
    assert all("top is" in str(one.fault) for one in failed)
    kits._flip(tmp_path / "fedmf" / "onnx" / "step.0.onnx")
    failed = [one for one in check(PYTHON, tmp_path) if one.fault is not None]
    assert {"open", "round", "release"} <= {one.question.what for one in failed}
    assert any("was changed" in str(one.fault) for one in failed)


def change(found: dict[str, Any], name: str, by: float) -> dict[str, Any]:
    array = kits.unpacked(found[name]).copy()
    array.flat[0] += array.dtype.type(by)
    return {**found, name: packed(array)}


@pytest.mark.parametrize(
    ("what", "name", "by", "passes"),
    [
        ("50 steps", "dense.user", 2e-6, True),
        ("50 steps", "dense.user", 1e-4, False),
        ("examples", "federated/1/items", 1, False),
        ("examples", "federated/1/weight", 1e-6, False),
        ("list", "scores", 1e-3, False),
        ("release", "rows.item.values", 1e-3, False),
        ("draws", "normal", 1e-9, False),
        ("draws", "bits", 1, False),
    ],
)
def test_answers_are_compared_as_the_page_says(what: str, name: str, by: float, passes: bool, small: Path) -> None:
    question = next(one for one in questions(small) if one.what == what)
    assert question.expected is not None
    found = {"id": 0, "answer": change(dict(question.expected), name, by)}
    assert (judged(question, found).fault is None) is passes
    assert judged(question, {"id": 0, "answer": dict(question.expected)}).fault is None


def test_what_is_missing_refused_unknown_or_taken_is_a_fault(small: Path) -> None:
    question = next(one for one in questions(small) if one.what == "release")
    assert question.expected is not None
    less = {name: value for name, value in question.expected.items() if name != "update"}
    odd = {**question.expected, "update": {**question.expected["update"], "data": "?"}}
    for found in ({"answer": less}, {"answer": odd}, {"answer": None}, {"refused": "no"}, {"unknown": "release"}):
        assert judged(question, {"id": 0, **found}).fault is not None
    wrong = replace(question, expected=None)
    assert judged(wrong, {"id": 0, "answer": dict(question.expected)}).fault is not None
    assert judged(wrong, {"id": 0, "refused": "why"}).fault is None


def test_a_release_on_a_grid_may_be_one_step_off() -> None:
    question = next(one for one in questions(KIT) if (one.case, one.what) == ("fedmf-noised", "release"))
    assert question.expected is not None
    assert kits.unpacked(question.expected["update"]).dtype == np.int32
    assert judged(question, {"answer": change(dict(question.expected), "update", 1)}).fault is None
    assert judged(question, {"answer": change(dict(question.expected), "update", 2)}).fault is not None


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        ("", "empty command"),
        ("no-such-command-here", "cannot start"),
        (f"{sys.executable} -c 'print(1)'", "no JSON of its id"),
        (f"{sys.executable} -c 'import sys; sys.exit(3)'", "ended with code 3"),
    ],
)
def test_what_is_no_runner_is_told_in_a_line(runner: str, words: str, small: Path) -> None:
    with pytest.raises(InputError, match=words):
        check(runner, small)


def test_a_runner_that_hangs_is_ended(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "ANSWER_S", 0.5)
    with pytest.raises(InputError, match=r"the runner has not answered \w+ \(question 0\) in 0\.5 s"):
        check(f"{sys.executable} -c 'import time; time.sleep(600)'", small)


def test_a_case_of_the_kit_can_be_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "KIT", tmp_path / "kit")
    make.ship("fedmf", tmp_path)
    bundle = open_bundle(tmp_path / "kit" / "fedmf")
    made = [make.asked_and_answered("fedmf", *one) for one in make.questions("fedmf", bundle)]
    kept = json.loads((KIT / "kit.json").read_text(encoding="utf-8"))["questions"]
    assert [one["what"] for one in made] == [one["what"] for one in kept if one["case"] == "fedmf"]
    (draws,) = (one["expected"] for one in made if one["what"] == "examples" and one["asked"]["number"] == "7")
    assert draws in [one["expected"] for one in kept], "draws follow from the key alone, not from the bundle's maker"


def test_a_folder_without_a_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no kit\.json"):
        kits.kit_at(tmp_path)
    (tmp_path / "kit.json").write_text('{"schema": "edgefr.conformance/9", "questions": []}')
    with pytest.raises(InputError, match=r"instead of edgefr\.conformance/1"):
        questions(tmp_path)


def test_a_question_that_nobody_knows_is_said_to_be_unknown() -> None:
    assert answer({"id": 3, "ask": "tea"}) == {"id": 3, "unknown": "tea"}
    assert Question("case", "what", {}, None).expected is None
