"""Text encoders as a choice: what each learns of which texts, and that a run's devices read as the run did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import edgefr
from cloud.encode import encode
from cloud.settings import EncodeSettings
from cloud.static_words import fit
from cloud.tfidf import inverse_frequency
from edge import Recommender
from edge.word_vectors import WordEncoder, numbers_of
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.sections import STATIC, TABLES, EncoderSection
from edgefr.experiment.text_encoder import ENCODERS
from edgefr.simulation.encoders.words import Tabled, counted, opened
from edgefr.simulation.prepare import prepare
from edgefr.simulation.program import build_program
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from tests.export.worlds import student, titles
from tests.golden.cases import PROTOCOLS

SMALL = [
    *("method=transfr", "model.adapter=[12,6]", "model.head=[6]", "encoder.width=32", "local_epochs=1", "rounds=1"),
    *(
        "data_options={users: 60, items: 120, interactions: 30}",
        "engine.shard_size=30",
        "evaluation.k=[5]",
        "protocol.negatives=20",
    ),
]
ACROSS = ["protocol.name=cross-domain", *(f"{key}={value}" for key, value in PROTOCOLS["cross-domain"].items())]
WORDS = [name for name, encoder in ENCODERS.items() if not encoder.language_model]


def table_of(kind: str) -> Tabled:
    """The encoder of a kind that has a table."""
    encoder = ENCODERS[kind]
    assert isinstance(encoder, Tabled)
    return encoder


def asked_for(kind: str) -> list[str]:
    """A kind of encoder, with a small teacher where it has one."""
    return [f"encoder.kind={kind}", *([f"encoder.teacher={student()}"] if kind in STATIC else [])]


def prepared(*overrides: str) -> tuple[edgefr.Experiment, Prepared]:
    """An experiment, and what its training starts from."""
    asked = sorted(overrides, key=lambda text: not text.startswith(("protocol", "encoder.kind")))
    experiment = edgefr.load_experiment(overrides=[*asked, *SMALL])
    return experiment, prepare(experiment, None, "cpu")


def first_adapter(experiment: edgefr.Experiment, given: Prepared) -> dict[str, torch.Tensor]:
    """The adapter before round 1."""
    return build_program(experiment, given).init_shared(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path / "cache"))


def test_the_words_that_most_texts_have_are_learned() -> None:
    texts = ["red wool", "red red jar", "red jar", "blue wool", "", "wool"]
    found = counted(texts, False, 3)
    assert found.numbers.tolist() == sorted(numbers_of(word)[0] for word in ("red", "wool", "jar"))
    assert [numbers_of(word)[0] for word in found.words] == found.numbers.tolist()
    assert sorted(zip(found.words, found.counts.toarray().T.tolist(), strict=True)) == [
        ("jar", [0, 1, 1, 0, 0, 0]),
        ("red", [1, 2, 1, 0, 0, 0]),
        ("wool", [1, 0, 0, 1, 0, 1]),
    ]
    pairs = counted(texts, True, 100)
    assert {"red jar", "blue wool", "red red"} < set(pairs.words)
    assert [numbers_of(f"{word}")[0] for word in pairs.words if " " not in word] == [
        number for word, number in zip(pairs.words, pairs.numbers, strict=True) if " " not in word
    ]


def test_nothing_is_learned_of_texts_without_words() -> None:
    nothing, settings = counted(["", "...", "!"], False, 3), EncoderSection(kind="tfidf", width=4)
    for kind in TABLES:
        with pytest.raises(InputError, match=r"at least two (texts and two )?words"):
            table_of(kind).table(nothing, settings)


def test_hashed_words_learn_of_no_text() -> None:
    """An item's vector is of its own text alone."""
    _, given = prepared("encoder.kind=hash")
    assert given.text is not None
    assert given.text.folder is None
    texts = given.dataset.catalogue.text
    np.testing.assert_array_equal(given.text.vectors[5], WordEncoder(32).encode([texts[5]])[0])


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_learns_of_the_domain_that_it_is_told(kind: str) -> None:
    (_, source), (_, whole) = (prepared(*asked_for(kind), *ACROSS, f"encoder.fit={fit}") for fit in ("source", "all"))
    texts, items = source.dataset.catalogue.text, source.source_items
    assert source.text is not None
    assert whole.text is not None
    assert 0 < len(items) < len(texts)
    assert source.text.report["texts"] == len(items)
    assert whole.text.report["texts"] == len(texts)
    known = opened(source.text.folder).numbers  # type: ignore[arg-type]
    there = np.unique(np.concatenate([numbers_of(texts[item]) for item in items]))
    np.testing.assert_array_equal(known, there)
    assert len(opened(whole.text.folder).numbers) > len(known)  # type: ignore[arg-type]
    assert np.abs(source.text.vectors - whole.text.vectors).max() > 0.01


def test_the_adapter_starts_from_the_texts_of_the_domain_that_it_is_told() -> None:
    whole, source = (prepared("encoder.kind=hash", *ACROSS, f"model.adapter_fit={fit}") for fit in ("all", "source"))
    first, other = first_adapter(*whole), first_adapter(*source)
    assert not torch.equal(first["adapter.0.weight"], other["adapter.0.weight"])
    assert source[1].text is not None
    outside = np.setdiff1d(np.arange(len(source[1].text.vectors)), source[1].source_items)
    source[1].text.vectors[outside] = 7.0  # no start that is of the source alone can tell
    for name, value in first_adapter(*source).items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0)
    whole[1].text.vectors[outside] = 7.0  # type: ignore[union-attr]
    assert not torch.equal(first["adapter.0.weight"], first_adapter(*whole)["adapter.0.weight"])


def test_a_saved_model_starts_as_the_run_did(tmp_path: Path) -> None:
    experiment, given = prepared("encoder.kind=hash", *ACROSS, "model.adapter_fit=source")
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False)
    again, first = open_model(run).model.program.init_shared(0), first_adapter(experiment, given)
    assert all(torch.equal(again[name], value) for name, value in first.items())


@pytest.mark.parametrize("kind", WORDS)
def test_devices_of_a_run_read_as_the_run_did(kind: str, tmp_path: Path) -> None:
    asked = [*asked_for(kind), *SMALL, "encoder.pairs=true", "export.learning=false"]
    asked += ["fleet.share={speaker_512: 0.5, laptop_x86: 0.5}"]
    run = edgefr.simulate(edgefr.load_experiment(overrides=asked), out=tmp_path / "run", page=False)
    saved = open_model(run).model
    for name in ("speaker_512", "laptop_x86"):
        device = Recommender(run.path / "bundles" / name)
        read = device.encode(list(saved.names.read))
        assert np.abs(read - saved.program.frozen["text"].numpy()).max() <= 1e-5
    table = None if kind == "hash" else opened(run.path / "encoder")
    title = "A wholly new book of cooking, with wool"
    assert np.abs(device.encode(title) - WordEncoder(32, True, table).encode([title])).max() <= 1e-5
    assert run.summary["encoder"]["width"] == 32
    written = yaml.safe_load((run.path / "experiment.yaml").read_text())["encoder"]
    own = [*(["words"] if kind in TABLES else []), *(["teacher"] if kind in STATIC else [])]
    assert set(written) == {"kind", "width", "pairs", *own}


def test_static_rows_are_what_the_teacher_says_of_a_word_alone() -> None:
    """Words that the teacher reads alike have rows in one direction, the rarer one the longer row."""
    texts = ["ast best", "ast gust", "gust best", "ast AST", "best"]
    found = counted(texts, False, 10)
    settings = EncoderSection(kind="static", width=2, teacher=str(student()))
    table, said = table_of("static").table(found, settings)
    assert said == {"teacher": str(student())}
    assert table.weights.dtype == np.int8
    vectors = encode(student(), found.words, EncodeSettings(max_tokens=32))
    expected = fit(vectors, inverse_frequency(found.counts), 2)
    assert np.abs(table.rows(np.arange(3)) - expected).max() <= np.abs(expected).max() / 254 + 1e-6


def test_halves_of_both_tables_weigh_the_same() -> None:
    found, vectors = counted(titles(), False, 100), {}
    for kind, width in (("static", 8), ("tfidf", 8), ("static+tfidf", 16)):
        teacher = {"teacher": str(student())} if kind in STATIC else {}
        settings = EncoderSection.model_validate({"kind": kind, "width": width, **teacher})
        vectors[kind] = WordEncoder(width, table=table_of(kind).table(found, settings)[0]).encode(titles())
    halves = np.hstack([vectors["static"], vectors["tfidf"]]) / np.sqrt(2)
    np.testing.assert_allclose(vectors["static+tfidf"][:, :8], halves[:, :8], atol=1e-6)
    np.testing.assert_allclose(vectors["static+tfidf"], halves, atol=0.02)  # TF-IDF alone is float16, here int8
    np.testing.assert_allclose(np.linalg.norm(vectors["static+tfidf"], axis=1), 1.0, atol=1e-6)
    with pytest.raises(InputError, match="half of tfidf: give an even number, not 33"):
        edgefr.load_experiment(overrides=["encoder.kind=static+tfidf", "encoder.width=33"])


def test_a_recipe_changes_its_reader_by_one_setting(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("encoder: {encode: {max_tokens: 32}, teacher: package, distill: null}\n", encoding="utf-8")
    changed = edgefr.load_experiment(recipe, ["encoder.kind=static"])
    assert changed.encoder.kind == "static"
    assert changed.encoder.encode.max_tokens == 128
    with pytest.raises(InputError, match="belongs to kind student, and kind is static"):
        edgefr.load_experiment(recipe, ["encoder.kind=static", "encoder.encode.max_tokens=32"])
    assert edgefr.load_experiment(recipe, ["encoder.kind=student"]).encoder.encode.max_tokens == 32
