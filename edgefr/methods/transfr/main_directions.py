"""TransFR's adapter can start as the projection of items' texts on their main directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from privacy.errors import InputError


def start(adapter: dict[str, Tensor], text: Tensor, widths: Sequence[int], settings: Any) -> None:
    """Set weights of `adapter` in place so that it maps text vectors to their main directions (centred PCA).

    x -> (x - mean) V s, with V [f, d] the main directions of `text` and s such that results have root mean square
    length `settings.adapter_norm`. A pair of ReLU units carries each direction, relu(z) - relu(-z) = z, so a hidden
    layer needs 2 d units; others start unconnected. Raises `InputError` where layers are too narrow, or without text.
    """
    d, layers = widths[-1], len(widths) - 1
    narrow = [w for w in widths[1:-1] if w < 2 * d]
    if narrow or d > widths[0]:
        raise InputError(
            f"model.adapter_init=pca carries {d} directions of {widths[0]} in pairs, so hidden widths of model.adapter "
            f"must be at least {2 * d}, got {list(widths[1:])}; widen them or set model.adapter_init=random"
        )
    known = text[text.abs().sum(1) > 0].double()
    if len(known) < 2:
        raise InputError("model.adapter_init=pca needs items with text; set model.adapter_init=random")
    mean = known.mean(0)
    values, directions = torch.linalg.eigh((known - mean).T @ (known - mean) / len(known))
    main = directions[:, -d:].flip(1)
    main *= torch.where(main.gather(0, main.abs().argmax(0, keepdim=True)) < 0, -1.0, 1.0)  # signs are arbitrary
    main = main * (settings.adapter_norm / values[-d:].sum().clamp(min=1e-12).sqrt())
    if layers == 1:
        _set(adapter, 0, main, -mean @ main)
        return
    pair = torch.cat([main, -main], 1)
    _set(adapter, 0, pair, -mean @ pair)
    one = torch.eye(d, dtype=main.dtype)
    for layer in range(1, layers):
        back = torch.cat([one, -one])
        _set(adapter, layer, back if layer == layers - 1 else torch.cat([back, -back], 1), None)


def _set(adapter: dict[str, Tensor], layer: int, weight: Tensor, bias: Tensor | None) -> None:
    whole = adapter[f"adapter.{layer}.weight"]
    rows, columns = weight.shape
    whole[:, :columns] = 0.0
    whole[:rows, :columns] = weight.to(whole.dtype)
    if bias is not None:
        adapter[f"adapter.{layer}.bias"][:columns] = bias.to(whole.dtype)
