"""A BERT is a function of frozen weights and LoRA matrices, over the last dimensions of its tokens.

transformers' modules take one model and one batch; here every client of a shard has LoRA matrices of its own, which
broadcast over a leading dimension, and the same lines are traced into a device's graph.

Owns: the forward pass and reading a folder's weights and titles. Does not own: what is trained, or how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cloud.pooling import POOLINGS
from privacy.errors import InputError, unknown

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_new": functools.partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
MASKED = -1e9
"""Added to the attention that a padding token would get."""


@dataclass(frozen=True)
class Bert:
    """A BERT has frozen weights by transformers' names; `pooling` is a key of `cloud.pooling.POOLINGS`."""

    weights: Mapping[str, Tensor]
    layers: int
    heads: int
    eps: float
    activation: str
    pad: int
    pooling: str

    @classmethod
    def open(cls, folder: Path, pooling: str) -> Bert:
        """Open the encoder of a transformers folder in float32. Raises `InputError` for one that is no usable BERT."""
        from cloud.model_folder import open_model

        return cls.of(open_model(folder), pooling)

    @classmethod
    def of(cls, model: torch.nn.Module, pooling: str) -> Bert:
        """Return the weights of an open `BertModel`. Raises `InputError` for an activation that this file lacks."""
        config: Any = model.config
        if config.hidden_act not in ACTIVATIONS:
            raise unknown("hidden_act of the encoder", str(config.hidden_act), ACTIVATIONS)
        read = {n: w.detach().clone() for n, w in model.named_parameters() if not n.startswith("pooler.")}
        return cls(
            weights=read,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            eps=config.layer_norm_eps,
            activation=config.hidden_act,
            pad=config.pad_token_id or 0,
            pooling=pooling,
        )

    @property
    def hidden(self) -> int:
        return self.weights["embeddings.word_embeddings.weight"].shape[1]

    @property
    def feed_forward(self) -> int:
        return self.weights["encoder.layer.0.intermediate.dense.weight"].shape[0]

    @property
    def positions(self) -> int:
        return self.weights["embeddings.position_embeddings.weight"].shape[0]

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights.values())

    def on(self, device: torch.device) -> Bert:
        at = next(iter(self.weights.values())).device
        return self if at == device else replace(self, weights={n: w.to(device) for n, w in self.weights.items()})

    def __call__(self, tokens: Tensor, lora: Mapping[str, Tensor], scale: float) -> Tensor:
        """Return text vectors [..., n, hidden] of `tokens` [..., n, L]; a text of padding alone is zero.

        `lora` holds `lora.<layer>.<module>.a` [..., hidden, r] and `.b` [..., r, hidden]: x W + scale x A B. Leading
        dimensions broadcast; a layer without a pair is the frozen one.
        """
        return self.above(0, self.below(0, tokens), tokens, lora, scale)

    def below(self, layer: int, tokens: Tensor) -> Tensor:
        """Return what layer number `layer` reads of texts: `tokens` [..., n, L] -> states [..., n, L, hidden]."""
        w = self.weights
        places = w["embeddings.position_embeddings.weight"][: tokens.shape[-1]]
        x = F.embedding(tokens, w["embeddings.word_embeddings.weight"]) + places
        x = self._norm("embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
        return self._through(range(layer), x, self._real(tokens, x), {}, 0.0)

    def above(self, layer: int, states: Tensor, tokens: Tensor, lora: Mapping[str, Tensor], scale: float) -> Tensor:
        """Return vectors of texts [..., n, hidden] by what layer number `layer` reads of them (`below`)."""
        real = self._real(tokens, states)
        return POOLINGS[self.pooling].pool(self._through(range(layer, self.layers), states, real, lora, scale), real)

    def _real(self, tokens: Tensor, like: Tensor) -> Tensor:
        return (tokens != self.pad).to(like.dtype)

    def _through(self, layers: range, x: Tensor, real: Tensor, lora: Mapping[str, Tensor], scale: float) -> Tensor:
        bias = ((1.0 - real) * MASKED)[..., None, None, :]  # [..., n, heads, L, L]
        for k in layers:
            x = self._layer(k, x, bias, lora, scale)
        return x

    def _layer(self, k: int, x: Tensor, bias: Tensor, lora: Mapping[str, Tensor], scale: float) -> Tensor:
        at = f"encoder.layer.{k}"
        query, key, value = (self._project(k, module, x, lora, scale) for module in ("query", "key", "value"))
        weight = torch.softmax(torch.matmul(query, key.transpose(-1, -2)) * query.shape[-1] ** -0.5 + bias, -1)
        seen = torch.matmul(weight, value).transpose(-3, -2)  # [..., n, L, heads, d]
        seen = self._linear(f"{at}.attention.output.dense", seen.reshape(*seen.shape[:-2], self.hidden))
        x = self._norm(f"{at}.attention.output.LayerNorm", x + seen)
        inner = ACTIVATIONS[self.activation](self._linear(f"{at}.intermediate.dense", x))
        return self._norm(f"{at}.output.LayerNorm", x + self._linear(f"{at}.output.dense", inner))

    def _project(self, k: int, module: str, x: Tensor, lora: Mapping[str, Tensor], scale: float) -> Tensor:
        out = self._linear(f"encoder.layer.{k}.attention.self.{module}", x)
        if f"lora.{k}.{module}.a" in lora:
            a, b = lora[f"lora.{k}.{module}.a"], lora[f"lora.{k}.{module}.b"]
            flat = x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])  # a client's tokens in one list
            change = torch.matmul(torch.matmul(flat, a), b) * scale
            out = out + change.reshape(*change.shape[:-2], *x.shape[-3:])
        return out.reshape(*out.shape[:-1], self.heads, self.hidden // self.heads).transpose(-3, -2)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        flat = x.reshape(-1, x.shape[-1])  # F.linear of more dimensions is traced with the sizes of the example
        return torch.addmm(bias, flat, weight.t()).reshape(*x.shape[:-1], weight.shape[0])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, (self.hidden,), weight, bias, self.eps)


@dataclass(frozen=True)
class TitleReader:
    """A client needs this to read for itself: the titles as `tokens` int32 [items, L], and the encoder."""

    tokens: Tensor
    bert: Bert

    @classmethod
    def open(cls, folder: Path, texts: Sequence[str], pooling: str, max_tokens: int) -> TitleReader:
        """Read titles by the tokenizer of `folder`, padded to the longest.

        Raises `InputError` for a folder that is no usable BERT, and for `max_tokens` beyond its positions.
        """
        from cloud.batches import checked, padded, tokenise
        from cloud.model_folder import open_tokenizer

        bert, texts = Bert.open(folder, pooling), checked(texts)
        if max_tokens > bert.positions:
            raise InputError(f"max_tokens {max_tokens} is more than the {bert.positions} positions of {folder}")
        filled = torch.tensor([i for i, text in enumerate(texts) if text], dtype=torch.int64)
        if not len(filled):
            raise InputError("model.client=lora reads items' texts, and no item has one; use client=mlp or other data")
        found = tokenise(open_tokenizer(folder), [texts[i] for i in filled], max_tokens)
        ids, mask = padded(found, torch.arange(len(filled)).numpy(), "cpu")
        tokens = torch.full((len(texts), ids.shape[1]), bert.pad, dtype=torch.int32)
        tokens[filled] = torch.where(mask > 0, ids, bert.pad).int()
        return cls(tokens, bert)
