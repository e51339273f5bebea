"""Text encoders as a choice: what each learns of which texts, and that a run's devices read as the run did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import edgefr
from edge import Recommender
from edge.word_vectors import WordEncoder, numbers_of
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.text_encoder import ENCODERS
from edgefr.simulation.encoders.words import learn, opened
from edgefr.simulation.prepare import prepare
from edgefr.simulation.program import build_program
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
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
    table, directions = learn(texts, 4, False, 3)
    assert set(table.numbers.tolist()) == {numbers_of(word)[0] for word in ("red", "wool", "jar")}
    assert table.numbers.tolist() == sorted(table.numbers.tolist())
    assert directions == 3
    pairs, _ = learn(texts, 4, True, 100)
    assert set(pairs.numbers.tolist()) >= set(numbers_of("red jar", pairs=True).tolist())


def test_nothing_is_learned_of_texts_without_words() -> None:
    with pytest.raises(InputError, match="at least two texts and two words"):
        learn(["", "...", "!"], 4, False, 3)


def test_hashed_words_learn_of_no_text() -> None:
    """An item's vector is of its own text alone."""
    _, given = prepared("encoder.kind=hash")
    assert given.text is not None
    assert given.text.folder is None
    texts = given.dataset.catalogue.text
    np.testing.assert_array_equal(given.text.vectors[5], WordEncoder(32).encode([texts[5]])[0])


def test_tfidf_learns_of_the_domain_that_it_is_told() -> None:
    (_, source), (_, whole) = (
        prepared("encoder.kind=tfidf", *ACROSS, f"encoder.fit={fit}") for fit in ("source", "all")
    )
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
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, figures=False)
    again, first = open_model(run).model.program.init_shared(0), first_adapter(experiment, given)
    assert all(torch.equal(again[name], value) for name, value in first.items())


@pytest.mark.parametrize("kind", WORDS)
def test_devices_of_a_run_read_as_the_run_did(kind: str, tmp_path: Path) -> None:
    asked = [f"encoder.kind={kind}", *SMALL, "encoder.pairs=true", "export.learning=false"]
    asked += ["fleet.share={speaker_512: 0.5, laptop_x86: 0.5}"]
    run = edgefr.simulate(edgefr.load_experiment(overrides=asked), out=tmp_path / "run", figures=False)
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
    assert set(written) == {"kind", "width", "pairs"} | ({"words"} if kind == "tfidf" else set())
