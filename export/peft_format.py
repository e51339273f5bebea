"""LoRA matrices in peft's own format: `adapter_config.json` and `adapter_model.safetensors`.

A program's `lora.<layer>.<module>.a` [in, r] and `.b` [r, out] are peft's `lora_A.weight` [r, in] and `lora_B.weight`
[out, r] of a BERT's `attention.self.<module>`, transposed. `PeftModel.from_pretrained(AutoModel..., folder)` opens it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

from privacy.errors import InputError
from privacy.files import write_atomic, write_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"lora\.(\d+)\.(\w+)\.([ab])")


def write_peft(folder: Path, tensors: Mapping[str, Tensor], alpha: float, base: str) -> None:
    """Write the LoRA matrices among a program's `tensors` to `folder`, each file whole or not at all.

    `base` says in the configuration which model they belong to. Raises `InputError` where there are none.
    """
    own = [(at, value.detach().cpu().float()) for n, value in tensors.items() if (at := _NAME.fullmatch(n))]
    if not own:
        raise InputError("there are no LoRA matrices among these tensors; give those of a client that trains them")
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "r": next(value.shape[1] for at, value in own if at[3] == "a"),
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "target_modules": sorted({at[2] for at, _ in own}),
        "layers_to_transform": sorted({int(at[1]) for at, _ in own}),
        "layers_pattern": "layer",
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    where = "base_model.model.encoder.layer.{}.attention.self.{}.lora_{}.weight"
    named = {where.format(at[1], at[2], at[3].upper()): value.T.contiguous() for at, value in own}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / WEIGHTS, safetensors.torch.save(named, {"format": "pt"}))
    write_json(folder / CONFIG, config)
