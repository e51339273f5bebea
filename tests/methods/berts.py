"""A BERT small enough to train in a test, as a transformers model and as a client reads it."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from edgefr.methods.transfr.bert import Bert, TitleReader
from privacy import keyed

WORDS, WIDTH, TOKENS = 50, 16, 6


@cache
def model(layers: int = 2) -> torch.nn.Module:
    """Layers of width 16 with two heads; keyed weights. Read only."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
    )
    config._attn_implementation = "eager"
    made = BertModel(config).eval().requires_grad_(False)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            scale, middle = (0.1, 1.0) if name.endswith("LayerNorm.weight") else (0.4, 0.0)
            weight.copy_(numbers(name, tuple(weight.shape)) * scale + middle)
    return made


def numbers(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Keyed standard normal numbers."""
    draws = keyed.normal(keyed.key(0, name), np.arange(int(np.prod(shape))))
    return torch.from_numpy(draws.reshape(shape).astype(np.float32))


def titles(items: int) -> torch.Tensor:
    """Tokens int32 [items, 6]: one to six each, then padding; item 5 has none."""
    tokens = 1 + keyed.integers(keyed.key(0, "titles"), np.arange(items * TOKENS), WORDS - 1).reshape(items, TOKENS)
    length = 1 + keyed.integers(keyed.key(0, "lengths"), np.arange(items), TOKENS)
    length[5:6] = 0
    return torch.from_numpy(np.where(np.arange(TOKENS) < length[:, None], tokens, 0).astype(np.int32))


def reader(items: int, pooling: str = "mean", layers: int = 2) -> TitleReader:
    """What a client reads."""
    return TitleReader(titles(items), Bert.of(model(layers), pooling))  # type: ignore[arg-type]
