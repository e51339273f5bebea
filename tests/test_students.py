"""Smaller encoders of a run: distilled from its own on the catalogue's texts, mapped to its vectors."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from cloud.encode import encode
from cloud.pooling import POOLINGS
from cloud.settings import EncodeSettings
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.sections import StudentSection
from edgefr.simulation.encoders.student import least_squares, spread, students_of
from export.encoders import TextEncoders, stage_encoders
from export.quantise import cosine
from export.staged_files import Staging
from privacy.errors import InputError
from tests.export import worlds

HOW = EncodeSettings(pooling="mean", max_tokens=16)
TEXTS = [*worlds.titles(), ""]


@given(st.integers(1, 12), st.integers(1, 12))
def test_layers_are_spread_evenly_and_end_with_the_last(layers: int, teacher: int) -> None:
    chosen = spread(layers, teacher)
    assert len(chosen) == layers
    assert chosen == sorted(chosen)
    assert (chosen[0] >= 1, chosen[-1]) == (True, teacher)


def test_least_squares_finds_a_map_that_is_there_and_leaves_empty_texts_out() -> None:
    given_ = np.asarray(worlds.weights("x", (50, 4)))
    weight, bias = np.asarray(worlds.weights("w", (4, 7))), np.asarray(worlds.weights("b", (7,)))
    wanted = given_ @ weight + bias
    given_[3], wanted[3] = 100.0, 0.0
    found, level = least_squares(given_, wanted)
    np.testing.assert_allclose(found, weight, atol=0.01)
    np.testing.assert_allclose(level, bias, atol=0.01)


def test_a_student_is_distilled_mapped_and_shippable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))
    wanted = [StudentSection(layers=1, hidden=24, steps=3)]
    made = students_of(worlds.student(), TEXTS, wanted, HOW, 0, tmp_path / "students")
    assert made == {"1x24": tmp_path / "students" / "1x24"}
    whole = encode(worlds.student(), TEXTS, HOW)
    mapping = load_file(made["1x24"] / "projection.safetensors")
    mapped = encode(made["1x24"], TEXTS, HOW) @ mapping["weight"] + mapping["bias"]
    level = np.broadcast_to(whole[:-1].mean(axis=0), whole[:-1].shape)
    assert np.square(mapped[:-1] - whole[:-1]).sum() < 0.9 * np.square(level - whole[:-1]).sum()
    again = students_of(worlds.student(), TEXTS, wanted, HOW, 0, tmp_path / "students")
    assert again == made
    forms = stage_encoders(
        Staging(tmp_path / "stage"), TextEncoders(worlds.student(), POOLINGS["mean"], 16, made), TEXTS
    )
    assert forms["1x24-f32"].record.width == worlds.WIDTH
    assert forms["1x24-f32"].cosine == pytest.approx(cosine(mapped[:32], whole[:32]).mean(), abs=0.02)


def test_a_student_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))
    for layers, hidden, message in ((3, 24, "needs a teacher of as many"), (1, 25, "not a multiple of the 4 heads")):
        wanted = [StudentSection(layers=layers, hidden=hidden, steps=1)]
        with pytest.raises(InputError, match=message):
            students_of(worlds.student(), TEXTS, wanted, HOW, 0, tmp_path / "students")


def test_the_experiment_asks_for_students_by_shape() -> None:
    made = Experiment.model_validate({"export": {"students": [{"layers": 2, "hidden": 156}], "vocabulary": None}})
    assert made.export.students == [StudentSection(layers=2, hidden=156, steps=200)]
    assert Experiment().export.students == []
    for wrong in ({"students": [{"layers": 2}]}, {"max_quality_loss": 1.0}, {"deadline_ms": 0}, {"min_overlap": 2}):
        with pytest.raises(ValueError, match="export"):
            Experiment.model_validate({"export": wrong})
