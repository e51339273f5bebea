"""What leaves the devices of a shard: sound updates, clipped jointly, weighted, and summed where a sum is enough.

Owns: which clients count and the partial sum of a shard. Does not own: training, noise, the server's rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.release import LARGEST
from edgefr.engine.work import Updates
from privacy.clip import clip_factors

RUN = 32
"""Clients' values of a row that are added in float32 before the sum goes on in float64."""


@dataclass(frozen=True)
class Terms:
    """How updates are released: `clip` in `norm`; `by_size`: weighted by the client's number of interactions;
    `count_everyone`: the weight may not depend on who was dropped; `each`: the server's rule needs every update."""

    clip: float | None
    norm: str
    by_size: bool
    count_everyone: bool
    each: bool = False


@dataclass(frozen=True)
class Release:
    """The partial sum of a shard.

    `dense`: float64 sums of weighted updates by name. `rows`: for `rows` tensors the distinct rows [k], ascending, and
    their float64 sums [k, w]. `weight` and `clients` count what was summed. `norms` [C] are joint norms before clipping
    of clients that were kept, `dropped` and `clipped` count clients. `private` are new private tensors [C, *shape].
    `each`: the kept updates themselves, clipped (None unless asked for).
    """

    dense: dict[str, Tensor]
    rows: dict[str, tuple[Tensor, Tensor]]
    weight: float
    clients: int
    norms: npt.NDArray[np.float64]
    dropped: int
    clipped: int
    private: dict[str, Tensor]
    each: Updates | None = None


def release(updates: Updates, sizes: npt.NDArray[np.int64], terms: Terms) -> Release:
    """Sum a shard's updates under `terms`; `sizes` [C] are its clients' numbers of training interactions."""
    norms = updates.norms(len(sizes), 1 if terms.norm == "l1" else 2).cpu().numpy()
    kept = norms <= LARGEST  # false for NaN
    factors = kept.astype(np.float64) if terms.clip is None else clip_factors(norms, terms.clip)
    weights = np.where(kept, sizes if terms.by_size else 1.0, 0.0)
    scale = factors * weights
    updates = updates if kept.all() else _without(updates, kept)
    dense, rows = _sums(updates, scale)
    counted = np.ones(len(sizes)) if terms.count_everyone else weights  # a guarantee may not depend on who failed
    return Release(
        dense=dense,
        rows=rows,
        weight=float(counted.sum()),
        clients=int(kept.sum()),
        norms=norms[kept],
        dropped=int((~kept).sum()),
        clipped=0 if terms.clip is None else int((norms[kept] > terms.clip).sum()),
        private=updates.private,
        each=_scaled(updates, factors, kept) if terms.each else None,
    )


def _without(updates: Updates, kept: npt.NDArray[np.bool_]) -> Updates:
    """The same updates with zeros in place of those of dropped clients; their private tensors stay as trained."""
    alive = torch.from_numpy(kept).to(_device(updates))
    dense = {n: torch.where(alive.view(-1, *[1] * (v.ndim - 1)), v, 0.0) for n, v in updates.dense.items()}
    rows = {
        n: type(u)(u.rows, u.client, torch.where(alive[u.client].unsqueeze(1), u.values, 0.0))
        for n, u in updates.rows.items()
    }
    return Updates(dense, rows, updates.private)


def _sums(
    updates: Updates, scale: npt.NDArray[np.float64]
) -> tuple[dict[str, Tensor], dict[str, tuple[Tensor, Tensor]]]:
    factor = torch.from_numpy(scale).to(_device(updates))
    dense = {n: torch.tensordot(factor, v.double(), dims=1) for n, v in updates.dense.items()}
    all_whole = bool((scale == 1).all())
    rows = {
        n: _sums_of_rows(u.rows, u.values, None if all_whole else factor[u.client]) for n, u in updates.rows.items()
    }
    return dense, rows


def _sums_of_rows(rows: Tensor, values: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Distinct rows, ascending, and their weighted sums: float32 over up to `RUN` values in order, float64 over those.

    A float64 scatter of single values takes ten times longer and is no closer: the values have 24 bits.
    """
    order = _stable_order(rows)
    found, counts = rows[order].unique_consecutive(return_counts=True)
    runs = (counts + RUN - 1) // RUN  # per row
    row = torch.repeat_interleave(torch.arange(len(found), device=rows.device), runs)
    within = torch.arange(len(row), device=rows.device) - (runs.cumsum(0) - runs)[row]
    starts = (counts.cumsum(0) - counts)[row] + within * RUN
    weight = None if factor is None else factor[order].to(values.dtype)
    sums = torch.nn.functional.embedding_bag(order, values, starts, mode="sum", per_sample_weights=weight)
    total = torch.zeros(len(found), values.shape[1], dtype=torch.float64, device=rows.device)
    return found, total.index_put_((row,), sums.double(), accumulate=True)


def _stable_order(rows: Tensor) -> Tensor:
    """The stable order that sorts `rows`. On the host by numpy, which sorts 16-bit numbers by radix."""
    if rows.device.type != "cpu" or not len(rows):
        return rows.sort(stable=True).indices
    numbers = rows.numpy()
    return torch.from_numpy(np.argsort(numbers.astype(np.min_scalar_type(int(numbers.max()))), kind="stable"))


def _scaled(updates: Updates, factors: npt.NDArray[np.float64], kept: npt.NDArray[np.bool_]) -> Updates:
    """Updates of the kept clients alone, clipped; slots are numbered anew."""
    factor = torch.from_numpy(factors).float().to(_device(updates))
    alive = torch.from_numpy(kept).to(factor.device)
    slot = torch.cumsum(alive, 0) - 1
    dense = {n: (v * factor.view(-1, *[1] * (v.ndim - 1)))[alive] for n, v in updates.dense.items()}
    rows = {}
    for name, update in updates.rows.items():
        mine = alive[update.client]
        client = update.client[mine]
        rows[name] = type(update)(update.rows[mine], slot[client], update.values[mine] * factor[client].unsqueeze(1))
    return Updates(dense, rows, {})


def _device(updates: Updates) -> torch.device:
    values = [*updates.dense.values(), *(u.values for u in updates.rows.values())]
    return values[0].device if values else torch.device("cpu")
