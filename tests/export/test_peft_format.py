"""LoRA in peft's own format: peft opens it and computes what the program computes; what is not one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from edgefr.methods.transfr.lora import LoRATransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One
from export.peft_format import CONFIG, WEIGHTS, write_peft
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


def test_a_program_without_lora_has_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no LoRA matrices"):
        write_peft(tmp_path / "lora", {"adapter.0.weight": torch.ones(2, 2)}, alpha=16, base="encoder")
    assert not (tmp_path / "lora").exists()
