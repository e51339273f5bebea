"""LoRA matrices in peft's own format: `adapter_config.json` and `adapter_model.safetensors`.

A program's `lora.<layer>.<module>.a` [in, r] and `.b` [r, out] are peft's `lora_A.weight` [r, in] and `lora_B.weight`
[out, r] of a BERT's `attention.self.<module>`, transposed. `PeftModel.from_pretrained(AutoModel..., folder)` opens it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from privacy.errors import InputError
from privacy.files import write_atomic, write_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LARGEST = 256 * 2**20
"""Bytes of adapter files beyond which they are not read."""
_OURS = re.compile(r"lora\.(\d+)\.(\w+)\.([ab])")
_THEIRS = re.compile(r"base_model\.model\.encoder\.layer\.(\d+)\.attention\.self\.(\w+)\.lora_([AB])\.weight")


@dataclass(frozen=True)
class PeftAdapter:
    """A folder holds this: `tensors` by the program's names, scaled by `alpha` / `rank` when applied to `targets`."""

    tensors: dict[str, Tensor]
    rank: int
    alpha: float
    targets: tuple[str, ...]


def write_peft(folder: Path, tensors: Mapping[str, Tensor], alpha: float, base: str) -> None:
    """Write the LoRA matrices among `tensors` (other tensors are left out) to `folder`, each file whole or not at all.

    `base` says in the configuration which model they belong to. Raises `InputError` where there are none, or where
    they do not pair up.
    """
    own = {name: value for name, value in tensors.items() if _OURS.fullmatch(name)}
    rank, targets = _shape(own, "these tensors")
    layers = sorted({int(name.split(".")[1]) for name in own})
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "target_modules": list(targets),
        "layers_to_transform": layers,
        "layers_pattern": "layer",
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    named = {_their_name(name): value.detach().cpu().float().T.contiguous() for name, value in own.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / WEIGHTS, safetensors.torch.save(named, {"format": "pt"}))
    write_json(folder / CONFIG, config)


def read_peft(folder: Path) -> PeftAdapter:
    """The LoRA matrices of a folder in peft's format, by the program's names.

    Raises `InputError` for a missing, damaged or oversized file, for another kind of adapter, and for tensors that do
    not fit each other or the configuration.
    """
    config = _config(folder / CONFIG)
    path = folder / WEIGHTS
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} is larger than {LARGEST // 2**20} MB: that is no adapter; give the right folder")
        found = safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}; save the adapter again with save_pretrained") from None
    tensors: dict[str, Tensor] = {}
    for name, value in sorted(found.items()):
        at = _THEIRS.fullmatch(name)
        if at is None or value.ndim != 2 or not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise InputError(f"{path}: '{name[:80]}' is no finite LoRA matrix of a BERT's attention; train it again")
        tensors[f"lora.{int(at[1])}.{at[2]}.{at[3].lower()}"] = value.float().T.contiguous()
    rank, targets = _shape(tensors, str(path))
    if (rank, set(targets)) != (config["r"], set(config["target_modules"])):
        raise InputError(
            f"{path} has matrices of rank {rank} for {sorted(targets)}, but {CONFIG} says {config['r']} for "
            f"{sorted(config['target_modules'])}; save both files together"
        )
    return PeftAdapter(tensors, rank, float(config["lora_alpha"]), targets)


def _config(path: Path) -> dict[str, Any]:
    """Return the configuration of a plain LoRA; `InputError` for anything that would change its meaning."""
    try:
        if path.stat().st_size > 2**20:
            raise InputError(f"{path} is larger than 1 MB: that is no {CONFIG}; give the right folder")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}; save the adapter again with save_pretrained") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise InputError(f"{path} is not the configuration of a LoRA adapter; give one that peft saved as LORA")
    odd = [n for n in ("use_dora", "use_rslora", "fan_in_fan_out", "rank_pattern", "alpha_pattern") if config.get(n)]
    if odd or config.get("bias", "none") != "none":
        raise InputError(f"{path} sets {(odd or ['bias'])[0]}, which is not plain LoRA; train one without it")
    rank, alpha, targets = (config.get(name) for name in ("r", "lora_alpha", "target_modules"))
    known = isinstance(targets, list) and targets and all(isinstance(target, str) for target in targets)
    number = isinstance(alpha, int | float) and math.isfinite(alpha)
    if type(rank) is not int or rank < 1 or not number or not known:
        raise InputError(f"{path} needs a whole r, a finite lora_alpha and a list of target_modules")
    return config


def _their_name(name: str) -> str:
    at = _OURS.fullmatch(name)
    assert at is not None
    return f"base_model.model.encoder.layer.{at[1]}.attention.self.{at[2]}.lora_{at[3].upper()}.weight"


def _shape(tensors: Mapping[str, Tensor], where: str) -> tuple[int, tuple[str, ...]]:
    pairs = sorted({name.rpartition(".")[0] for name in tensors})
    if not pairs:
        raise InputError(f"{where}: there are no LoRA matrices; give those of a client that trains them")
    layers = sorted({int(pair.split(".")[1]) for pair in pairs})
    targets = tuple(sorted({pair.split(".")[2] for pair in pairs}))
    whole = {f"lora.{k}.{module}" for k in layers for module in targets}
    if whole != set(pairs) or len(tensors) != 2 * len(pairs):
        raise InputError(f"{where}: not every layer has a pair A, B for each of {list(targets)}; give a whole adapter")
    ranks = set()
    for pair in pairs:
        a, b = tensors[f"{pair}.a"], tensors[f"{pair}.b"]
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or not a.numel() or not b.numel():
            raise InputError(f"{where}: {pair} has shapes {list(a.shape)} and {list(b.shape)}, which are no pair")
        ranks.add(int(a.shape[1]))
    if len(ranks) > 1:
        raise InputError(f"{where}: matrices have ranks {sorted(ranks)}; an adapter has one rank")
    return ranks.pop(), targets
