"""LoRA in peft's own format: peft opens it and computes what the program computes; what is not one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgefr.methods.transfr.lora import LoRATransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One
from export.peft_format import CONFIG, WEIGHTS, read_peft, write_peft
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.methods import berts

ITEMS = 12


def program(**values: object) -> LoRATransFR:
    settings = TransFRSettings.model_validate({"client": "lora", "adapter": [8], "head": [8], "lora_rank": 3, **values})
    return LoRATransFR(settings, berts.reader(ITEMS), berts.numbers("text", (ITEMS, berts.WIDTH)), 1)


def trained(made: LoRATransFR) -> dict[str, torch.Tensor]:
    """Shared tensors with B away from zero."""
    return {n: v + 0.3 * berts.numbers(n, tuple(v.shape)) for n, v in made.init_shared(0).items()}


def everything(made: LoRATransFR, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Text vectors of the whole catalogue."""
    items = torch.arange(ITEMS)
    with torch.no_grad():
        return made.read(tensors, One(items, items, torch.ones(ITEMS), torch.ones(ITEMS)))


@pytest.mark.parametrize("targets", [["query", "value"], ["query", "key", "value"], ["value"]])
def test_peft_opens_it_and_gives_the_same_vectors(tmp_path: Path, targets: list[str]) -> None:
    from peft import PeftModel
    from transformers import AutoModel

    made = program(lora_targets=targets, lora_alpha=7)
    shared = trained(made)
    berts.model().save_pretrained(tmp_path / "base")  # type: ignore[operator]
    write_peft(tmp_path / "lora", shared, alpha=7, base="encoder")
    base = AutoModel.from_pretrained(tmp_path / "base", attn_implementation="eager").eval()
    plain = everything(made, made.init_shared(0))
    model = PeftModel.from_pretrained(base, tmp_path / "lora").eval()
    tokens = berts.titles(ITEMS).long()
    mask = (tokens != 0).long()
    filled = mask.sum(1) > 0
    with torch.no_grad():
        states = model(input_ids=tokens[filled], attention_mask=mask[filled]).last_hidden_state
    weight = mask[filled].unsqueeze(-1).float()
    expected = (states * weight).sum(1) / weight.sum(1)
    found = everything(made, shared)
    assert_same(found[filled], expected)
    assert float((found - plain)[filled].abs().max()) > 0.01, "the matrices changed nothing, so nothing was compared"


def test_what_is_written_reads_back_to_the_bit(tmp_path: Path) -> None:
    made = program(lora_alpha=2.5)
    shared = trained(made)
    write_peft(tmp_path, shared, alpha=2.5, base="encoder")
    found = read_peft(tmp_path)
    assert (found.rank, found.alpha, found.targets) == (3, 2.5, ("query", "value"))
    assert set(found.tensors) == set(made.lora)  # the adapter on top is no part of it
    assert all(torch.equal(found.tensors[name], shared[name]) for name in made.lora)


def test_names_and_shapes_are_those_of_peft(tmp_path: Path) -> None:
    write_peft(tmp_path, trained(program()), alpha=16, base="encoder")
    at = "base_model.model.encoder.layer.{}.attention.self.{}.lora_{}.weight"
    wanted = {
        at.format(k, m, half): (3, 16) if half == "A" else (16, 3)
        for k in (0, 1)
        for m in ("query", "value")
        for half in "AB"
    }
    assert {n: tuple(v.shape) for n, v in load_file(tmp_path / WEIGHTS).items()} == wanted
    config = json.loads((tmp_path / CONFIG).read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (3, 16, ["query", "value"])
    assert (config["peft_type"], config["task_type"]) == ("LORA", "FEATURE_EXTRACTION")


def test_peft_saves_what_we_read(tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION")
    model = get_peft_model(BertModel(config), lora)
    model.save_pretrained(str(tmp_path))
    found = read_peft(tmp_path)
    assert (found.rank, found.alpha, len(found.tensors)) == (4, 8.0, 8)
    theirs = model.base_model.model.encoder.layer[1].attention.self.value.lora_A["default"].weight
    assert torch.equal(found.tensors["lora.1.value.a"], theirs.T)


def change_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | values))


def change_weights(folder: Path, name: str, value: torch.Tensor | None) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors.pop(name, None)
    save_file(tensors if value is None else tensors | {name: value}, folder / WEIGHTS)


FIRST = "base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"
SPOILT = {
    "no weights": lambda f: (f / WEIGHTS).unlink(),
    "no configuration": lambda f: (f / CONFIG).unlink(),
    "cut off": lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:200]),
    "header beyond the file": lambda f: (f / WEIGHTS).write_bytes(b"\xff" * 16),
    "no JSON": lambda f: (f / CONFIG).write_text("{"),
    "a list": lambda f: (f / CONFIG).write_text("[]"),
    "deep JSON": lambda f: (f / CONFIG).write_text("[" * 100_000),
    "another method": lambda f: change_config(f, peft_type="IA3"),
    "dora": lambda f: change_config(f, use_dora=True),
    "bias": lambda f: change_config(f, bias="all"),
    "another rank": lambda f: change_config(f, r=4),
    "no rank": lambda f: change_config(f, r="3"),
    "infinite alpha": lambda f: change_config(f, lora_alpha=float("inf")),
    "a pattern": lambda f: change_config(f, target_modules=".*"),
    "other targets": lambda f: change_config(f, target_modules=["query"]),
    "one missing": lambda f: change_weights(f, FIRST, None),
    "not finite": lambda f: change_weights(f, FIRST, torch.full((3, 16), torch.nan)),
    "whole numbers": lambda f: change_weights(f, FIRST, torch.ones(3, 16, dtype=torch.int32)),
    "a vector": lambda f: change_weights(f, FIRST, torch.ones(3)),
    "another width": lambda f: change_weights(f, FIRST, torch.ones(5, 16)),
    "a stranger": lambda f: change_weights(f, "pooler.weight", torch.ones(2, 2)),
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_no_adapter_is_refused_in_one_line(tmp_path: Path, how: str) -> None:
    write_peft(tmp_path, trained(program()), alpha=16, base="encoder")
    SPOILT[how](tmp_path)
    with pytest.raises(InputError) as error:
        read_peft(tmp_path)
    assert "\n" not in str(error.value)


def test_a_program_without_lora_has_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no LoRA matrices"):
        write_peft(tmp_path / "lora", {"adapter.0.weight": torch.ones(2, 2)}, alpha=16, base="encoder")
    assert not (tmp_path / "lora").exists()
