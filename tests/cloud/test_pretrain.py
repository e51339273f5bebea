from pathlib import Path

import pytest
import torch

import cloud.train
from cloud.encode import encode
from cloud.pretrain import pretrain
from cloud.settings import EncodeSettings, PretrainSettings
from privacy.errors import InputError

TINY = PretrainSettings(
    layers=1, hidden=24, heads=2, vocabulary=100, steps=12, batch_size=16, max_tokens=16, lr=3e-3, warmup=2
)


def test_what_it_writes_is_an_ordinary_folder(texts: list[str], tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    before, notes = torch.get_rng_state(), []
    out = pretrain(texts, TINY, tmp_path / "bert", progress=lambda s, d, n, note: notes.append(note))
    assert torch.equal(before, torch.get_rng_state())
    tokenizer = AutoTokenizer.from_pretrained(out)
    _, loading = AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True)
    assert not loading["missing_keys"]
    ids = tokenizer("Red WOOL")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "red", "wool", "[SEP]"]
    assert encode(out, texts[:3], EncodeSettings(max_tokens=16)).shape == (3, 24)
    assert len(notes) == 12
    assert notes[0].startswith("masked tokens ")
    assert not (out / "checkpoint.safetensors").exists()


def test_an_interrupted_run_resumes_to_the_same_bytes(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud.train, "CHECKPOINT_SECONDS", 0.0)

    def stop(stage: str, done: int, total: int, note: str) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(texts, TINY, tmp_path / "stopped", progress=stop)
    steps: list[int] = []
    resumed = pretrain(texts, TINY, tmp_path / "stopped", progress=lambda s, d, n, note: steps.append(d))
    assert steps == list(range(7, 13))
    whole = pretrain(texts, TINY, tmp_path / "whole")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()
    steps.clear()
    pretrain(texts, TINY, tmp_path / "stopped", progress=lambda s, d, n, note: steps.append(d))
    assert not steps


def test_it_does_not_write_over_something_else(texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else than this training run; choose another folder"):
        pretrain(texts, TINY, tmp_path / "notes")
    pretrain(texts, TINY.model_copy(update={"steps": 1}), tmp_path / "bert")
    with pytest.raises(InputError, match="holds something else"):
        pretrain(texts, TINY, tmp_path / "bert")
    with pytest.raises(InputError, match="no texts given"):
        pretrain([], TINY, tmp_path / "none")
