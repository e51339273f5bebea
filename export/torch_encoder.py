"""The torch encoder that texts are read with is loaded, and traced to ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from export import random_streams as purposes
from export.trace import Shape, gate, trace
from privacy import keyed
from privacy.errors import InputError


class TorchEncoder(torch.nn.Module):
    """This is a transformers model and a pooling of its states: ids, mask int64 [B, L] -> vectors [B, hidden].

    `words` is the size of its vocabulary, `longest` the most tokens it can read.
    """

    def __init__(self, model: Any, pool: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self._pool = model, pool
        self.words, self.longest = int(model.config.vocab_size), int(model.config.max_position_embeddings)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return self._pool(hidden, mask)


def load_encoder(folder: Path, pool: Callable[[Tensor, Tensor], Tensor]) -> TorchEncoder:
    """Load the text encoder in a transformers folder, in fp32 for inference.

    `pool` makes vectors [B, f] of states [B, L, f] and the mask [B, L]. Raises `InputError` for a folder that does not
    load.
    """
    from safetensors import SafetensorError
    from transformers import AutoModel

    try:
        with _no_bars():
            model = AutoModel.from_pretrained(folder, attn_implementation="eager", local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{folder} does not load as a transformers folder: {str(error).splitlines()[0]}") from error
    return TorchEncoder(model.eval().float(), pool)


@contextmanager
def _no_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def encoder_graph(folder: Path, module: torch.nn.Module, words: int, longest: int) -> Any:
    """Return the ONNX graph of a text encoder: `ids`, `mask` int64 [B, L] in, `vectors` float32 [B, width] out.

    `module` is the encoder from `folder`, which knows `words` pieces and reads at most `longest` of them. Raises
    `InputError` when the graph differs from torch by more than 1e-4 on any of four sizes.
    """

    def inputs(batch: int, length: int) -> list[Tensor]:
        bits = keyed.integers(keyed.key(0, purposes.ENCODER_GATE, batch), np.arange(batch * length), words)
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[1:, length // 2 + 1 :] = 0
        return [torch.from_numpy(bits.reshape(batch, length)), mask]

    shapes: dict[str, Shape] = {"ids": ("B", "L"), "mask": ("B", "L")}
    what = f"encoder graph of {folder}"  # optimised: that folds weights' transposes, or they would not be quantised
    traced = trace(what, module, inputs(3, 6), shapes, ["vectors"], optimize=True, largest={"L": longest})
    gate(what, traced, module, shapes, [inputs(b, n) for b, n in ((1, 1), (2, 3), (5, 1), (33, 8))])
    return traced
