from pathlib import Path

import numpy as np
import pytest
import torch

from cloud import encode as module
from cloud.encode import encode
from cloud.model_folder import open_model, open_tokenizer
from cloud.settings import EncodeSettings
from privacy.errors import InputError


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_equal_one_text_at_a_time(
    teacher: Path, texts: list[str], pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    with_gaps = [texts[0], "", *texts[1:20], "  "]
    found = encode(teacher, with_gaps, EncodeSettings(pooling=pooling, max_tokens=9))
    assert found.dtype == np.float32
    assert found.shape == (22, 48)
    model, tokenizer = open_model(teacher), open_tokenizer(teacher)
    for vector, text in zip(found, with_gaps, strict=True):
        if not text.strip():
            assert not vector.any()
            continue
        ids = tokenizer([text], truncation=True, max_length=9, return_tensors="pt")
        with torch.no_grad():
            states = model(**ids).last_hidden_state[0].numpy()
        assert len(states) <= 9
        np.testing.assert_allclose(vector, states[0] if pooling == "cls" else states.mean(0), atol=2e-6)


def test_vectors_are_kept_by_content(teacher: Path, texts: list[str], tmp_path: Path) -> None:
    calls: list[int] = []

    def run(chosen: list[str], settings: EncodeSettings) -> np.ndarray:
        return encode(teacher, chosen, settings, cache_dir=tmp_path, progress=lambda s, d, n, note: calls.append(d))

    how = EncodeSettings(max_tokens=16)
    first = run(texts, how)
    assert calls
    calls.clear()
    assert run(list(texts), how).tobytes() == first.tobytes()
    assert not calls
    assert run(texts[1:], how).shape == (59, 48)
    assert (run(texts, EncodeSettings(pooling="cls", max_tokens=16)) != first).any()
    assert len(list(tmp_path.iterdir())) == 3
    for path in tmp_path.iterdir():
        path.write_bytes(b"broken")
    with pytest.raises(InputError, match="are damaged; delete the file"):
        run(texts, how)


def test_no_texts_and_only_empty_texts(teacher: Path) -> None:
    how = EncodeSettings(max_tokens=16)
    assert encode(teacher, [], how).shape == (0, 48)
    assert not encode(teacher, ["", ""], how).any()


def test_bad_input(teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="text 0 is None, not a string"):
        encode(teacher, [None], EncodeSettings(max_tokens=16))  # type: ignore[list-item]
    with pytest.raises(InputError, match="max_tokens 128 is more than the 32 positions"):
        encode(teacher, ["a"], EncodeSettings())
    with pytest.raises(InputError, match="is not a transformers folder"):
        encode(tmp_path, ["a"], EncodeSettings())
    with pytest.raises(InputError, match="device 'gpu7' cannot be used"):
        encode(teacher, ["a"], EncodeSettings(max_tokens=16), device="gpu7")
