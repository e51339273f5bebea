"""A BERT small enough to train in a test, as a transformers model and as a client reads it."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from edgefr.methods.transfr.bert import Bert, TitleReader
from privacy import keyed

WORDS, WIDTH, TOKENS, HEADS, INNER = 50, 16, 6, 2, 24
EMBEDDED = {"word": WORDS, "position": 12, "token_type": 2}


@cache
def model(layers: int = 2) -> torch.nn.Module:
    """Layers of width 16 with two heads; keyed weights. Read only."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        max_position_embeddings=EMBEDDED["position"],
    )
    config._attn_implementation = "eager"
    made = BertModel(config).eval().requires_grad_(False)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.copy_(keyed_weight(name, tuple(weight.shape)))
    return made


def keyed_weight(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The weight of a name: normalisations around 1, all others around 0."""
    scale, middle = (0.1, 1.0) if name.endswith("LayerNorm.weight") else (0.4, 0.0)
    return numbers(name, shape) * scale + middle


def bert(pooling: str, layers: int) -> Bert:
    """What `Bert.of` reads of `model`, made without transformers, whose import takes seconds."""
    shapes = {f"embeddings.{name}_embeddings.weight": (rows, WIDTH) for name, rows in EMBEDDED.items()}
    shapes |= _normalised("embeddings")
    for layer in (f"encoder.layer.{number}" for number in range(layers)):
        for name in ("query", "key", "value"):
            shapes |= _dense(f"{layer}.attention.self.{name}", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}.attention.output.dense", WIDTH, WIDTH) | _normalised(f"{layer}.attention.output")
        shapes |= _dense(f"{layer}.intermediate.dense", WIDTH, INNER) | _dense(f"{layer}.output.dense", INNER, WIDTH)
        shapes |= _normalised(f"{layer}.output")
    weights = {name: keyed_weight(name, shape) for name, shape in shapes.items()}
    return Bert(weights, layers, HEADS, eps=1e-12, activation="gelu", pad=0, pooling=pooling)


def _dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _normalised(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.LayerNorm.weight": (WIDTH,), f"{name}.LayerNorm.bias": (WIDTH,)}


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
    return TitleReader(titles(items), bert(pooling, layers))
