"""Every form of an encoder: cut to what is needed, held to torch, mapped to the items' space."""

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import save_file

from cloud.pooling import POOLINGS
from export.encoders import StagedEncoder, TextEncoders, encoder_of, stage_encoders, torch_vectors
from export.staged_files import Staging
from export.torch_encoder import load_encoder
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.export import worlds

TEXTS = [*worlds.titles(), ""]


def staged(root: Path, **students: Path) -> tuple[Staging, dict[str, StagedEncoder]]:
    """Stage the world's encoder, and students by name, with 60 pieces."""
    stage, smaller = Staging(root), {name[1:]: folder for name, folder in students.items()}
    return stage, stage_encoders(stage, TextEncoders(worlds.student(), POOLINGS["mean"], 32, smaller, 60), TEXTS)


@cache
def small() -> tuple[Staging, dict[str, StagedEncoder]]:
    """Forms of the world's encoder with 60 pieces and 16 tokens at most."""
    return staged(worlds.folder("encoders"))


def expected(texts: list[str], max_tokens: int) -> np.ndarray:
    return torch_vectors(load_encoder(worlds.student(), POOLINGS["mean"].pool), worlds.student(), texts, max_tokens)


def test_vectors_are_those_of_the_whole_model() -> None:
    stage, forms = small()
    assert list(forms) == ["f32", "f16", "i8", "i4"]
    texts = [*worlds.titles(), "bar " * 20]
    for label, worst in (("f32", 1e-5), ("f16", 5e-3), ("i8", 0.1), ("i4", 1.5)):
        error = np.abs(encoder_of(stage, forms[label].record).encode(texts) - expected(texts, 16)).max()
        assert error < worst
        assert label == "f32" or error > 1e-6
    assert forms["f32"].cosine == pytest.approx(1, abs=1e-6)
    assert forms["f16"].cosine > forms["i8"].cosine > forms["i4"].cosine > 0.9
    assert all(form.unfit is None for form in forms.values())


def test_vocabulary_positions_and_length_are_cut_to_what_texts_need() -> None:
    stage, forms = small()
    words = set(" ".join(TEXTS).split())
    vocabulary = json.loads((stage.root / "tokenizer.json").read_text())["model"]["vocab"]
    assert vocabulary.keys() >= words
    # 5 special tokens, 72 characters, the words that titles have
    assert len(vocabulary) == forms["f32"].record.vocabulary == 77 + len(words)
    graph = onnx.load(stage.root / forms["f32"].record.path)
    tables = {tuple(t.dims) for t in graph.graph.initializer if len(t.dims) == 2}
    assert (len(vocabulary), worlds.WIDTH) in tables
    assert (16, worlds.WIDTH) in tables
    assert not {(2000, worlds.WIDTH), (32, worlds.WIDTH)} & tables
    assert forms["f32"].record.max_tokens == 16


@cache
def narrow(width: int = worlds.WIDTH) -> Path:
    """A student of 24 values, and the projection of them to `width`."""
    from transformers import BertConfig, BertModel

    folder = worlds.folder("narrow")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(worlds.student() / name, folder / name)
    config = BertConfig(
        vocab_size=2000,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    model = BertModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(worlds.weights(f"narrow {name}", tuple(weight.shape)) * 0.2)
    model.save_pretrained(folder)
    weight, bias = worlds.weights("projection", (24, width)), worlds.weights("bias", (width,))
    save_file({"weight": weight.numpy(), "bias": bias.numpy()}, folder / "projection.safetensors")
    return folder


def test_a_narrow_student_gives_vectors_of_the_items_width(tmp_path: Path) -> None:
    stage, forms = staged(tmp_path, _1x24=narrow())
    assert list(forms)[4:] == ["1x24-f32", "1x24-f16", "1x24-i8", "1x24-i4"]
    record = forms["1x24-f32"].record
    assert (record.hidden, record.layers, record.width) == (24, 1, worlds.WIDTH)
    plain = torch_vectors(load_encoder(narrow(), POOLINGS["mean"].pool), worlds.student(), worlds.titles(), 16)
    mapped = plain @ worlds.weights("projection", (24, worlds.WIDTH)).numpy()
    mapped += worlds.weights("bias", (worlds.WIDTH,)).numpy()
    assert_same(encoder_of(stage, record).encode(worlds.titles()), mapped)
    assert forms["1x24-f32"].cosine < 0.9  # another model altogether: the cosine is to the run's own encoder


def test_students_that_do_not_belong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gives vectors of 20 values instead of 48"):
        staged(tmp_path / "a", _1x24=narrow(20))
    damaged = shutil.copytree(narrow(), tmp_path / "damaged")
    (damaged / "projection.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"projection\.safetensors is damaged; distil the student again"):
        staged(tmp_path / "b", _1x24=damaged)


def test_a_model_with_fewer_pieces_than_its_tokenizer_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    folder = shutil.copytree(worlds.student(), tmp_path / "student")
    config = BertConfig(vocab_size=50, hidden_size=48, num_hidden_layers=1, num_attention_heads=4)
    BertModel(config).save_pretrained(folder)
    with pytest.raises(InputError, match="knows 50 pieces, the tokenizer has more"):
        stage_encoders(Staging(tmp_path / "stage"), TextEncoders(folder, POOLINGS["mean"], 32), TEXTS)


def test_a_form_far_from_torch_is_named_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import export.encoders

    true = export.encoders.stored_as

    def spoilt(form, graph, scratch):
        made = true(form, graph, scratch)
        if form == "i4":
            for tensor in made.graph.initializer:
                if tensor.name.endswith(".i4"):
                    tensor.raw_data = bytes(len(tensor.raw_data))
        return made

    monkeypatch.setattr(export.encoders, "stored_as", spoilt)
    _, forms = staged(tmp_path)
    assert forms["i8"].unfit is None
    assert "to torch" in forms["i4"].unfit
