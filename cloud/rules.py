"""What the server makes of a cohort's uploads where a plain sum is not it: temporal mean, and rules against hostile
clients.

Owns: the rules. Does not own: the streaming mean (`cloud.aggregate`), clipping and noise (`privacy`).

A robust rule sees every upload of the cohort at once. Uploads are whole: a row that a client did not touch is a zero
update. They are never laid out whole, though: work goes in pieces of at most `PIECE` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from cloud.aggregate import Accumulator
from cloud.settings import AggregationSettings
from privacy.errors import InputError

PIECE = 1 << 23
"""Numbers of one working piece (64 MB of float64)."""

PAIRS_LIMIT = 8192
"""Largest cohort whose pairs Krum compares: the table of distances takes 8 bytes a pair."""

Rows = tuple[Tensor, Tensor, Tensor]
"""Sparse updates of a table: row numbers [R], client slots [R], float32 values [R, w]; a (row, slot) pair once."""


@dataclass(frozen=True)
class Uploads:
    """Every update of a cohort of `clients`, slots 0..clients-1. `dense`: [clients, *shape] by name; `rows`: sparse."""

    dense: Mapping[str, Tensor]
    rows: Mapping[str, Rows]
    clients: int


def joined(parts: Sequence[Uploads]) -> Uploads:
    """The uploads of several shards as those of one cohort, slot after slot; every part has the same tensors."""
    starts = [sum(part.clients for part in parts[:at]) for at in range(len(parts) + 1)]
    if not parts:
        return Uploads({}, {}, 0)
    dense = {name: torch.cat([part.dense[name] for part in parts]) for name in parts[0].dense}
    rows = {}
    for name in parts[0].rows:
        items, slots, values = zip(*(part.rows[name] for part in parts), strict=True)
        shifted = [slot + start for slot, start in zip(slots, starts, strict=False)]
        rows[name] = (torch.cat(items), torch.cat(shifted), torch.cat(values))
    return Uploads(dense, rows, starts[-1])


def temporal_mean(aggregated: Tensor, previous: Tensor, known: Tensor, beta: float, itemwise: bool) -> Tensor:
    """A table pulled back to what it was after the previous block (F3CRec §4.3.2), in the dtype of `aggregated`.

    `aggregated`, `previous` [rows, d]; `known` bool [rows]: rows that the previous block had, the others stay.
    `itemwise`: a row that moved far keeps less of before; false: `beta` for every known row (ablation "w/o i.t.m").

    >>> now, before = torch.tensor([[3.0], [5.0]]), torch.tensor([[1.0], [0.0]])
    >>> temporal_mean(now, before, torch.tensor([True, False]), 0.5, itemwise=True).tolist()
    [[2.799999952316284], [5.0]]
    """
    now, before = aggregated.double(), previous.to(aggregated.device).double()
    shift = (before - now).square().sum(1) / math.sqrt(now.shape[1])  # F3CRec Eq. 8
    gamma = beta / (1 + shift) if itemwise else torch.full_like(shift, beta)  # F3CRec Eq. 9
    mixed = torch.lerp(now, before, gamma.unsqueeze(1))  # F3CRec Eq. 10, 13
    return torch.where(known.to(now.device).unsqueeze(1), mixed.to(aggregated), aggregated)  # F3CRec Eq. 11-12


def combine(uploads: Uploads, shared: Mapping[str, Tensor], settings: AggregationSettings) -> dict[str, Tensor]:
    """The cohort's update by a robust rule: one float64 tensor per tensor of `shared`, in its shape and place.

    Raises `InputError` for a cohort too large for Krum.

    >>> rows = (torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), torch.tensor([[1.0], [2.0], [900.0]]))
    >>> uploads, shared = Uploads({}, {"item": rows}, clients=3), {"item": torch.zeros(2, 1)}
    >>> combine(uploads, shared, AggregationSettings(rule="median"))["item"].tolist()
    [[2.0], [0.0]]
    """
    if settings.rule in ("median", "trimmed-mean"):
        return _trimmed(uploads, shared, settings)
    return weighted(
        uploads, shared, _krum(uploads, settings) if settings.rule == "krum" else _bounded(uploads, settings)
    )


def weighted(uploads: Uploads, shared: Mapping[str, Tensor], share: Tensor) -> dict[str, Tensor]:
    """The sum of the cohort's updates, each times its `share` [clients] (float64), as `combine` returns it."""
    total = Accumulator(shared, share.device)
    for name, value in uploads.dense.items():
        total.add_dense(name, torch.tensordot(share, value.double(), dims=1))
    for name, (rows, slots, values) in uploads.rows.items():
        total.add_rows(name, rows, values.double() * share[slots].unsqueeze(1))
    return total.sums


# --- by client: norm-bounded mean, Krum ------------------------------------------------------------------------------


def squared_norms(uploads: Uploads) -> Tensor:
    """Squared L2 norm of each client's whole upload, float64 [clients]."""
    out = torch.zeros(uploads.clients, dtype=torch.float64, device=_device(uploads))
    for value in uploads.dense.values():
        out += value.flatten(1).double().square().sum(1)
    for _, slots, values in uploads.rows.values():
        out.index_add_(0, slots, values.double().square().sum(1))
    return out


def _bounded(uploads: Uploads, settings: AggregationSettings) -> Tensor:
    """Each client's factor in the mean of updates no longer than the bound (Sun et al. 2019, norm thresholding)."""
    norms = squared_norms(uploads).sqrt()
    bound = torch.quantile(norms, 0.5) if settings.norm_bound is None else settings.norm_bound
    return (bound / norms.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0) / uploads.clients


def _krum(uploads: Uploads, settings: AggregationSettings) -> Tensor:
    """Each client's factor: 1 / kept for those with the smallest sums of squared distances to their neighbours.

    Blanchard et al. 2017: with f hostile ones of n, the neighbours are the n - f - 2 nearest others. The guarantee
    asks for n > 2 f + 2; a smaller cohort still gets its most central members, f a minority and one neighbour at least.
    """
    n = uploads.clients
    hostile = min(_rounded_up(settings.byzantine, n), (n - 1) // 2)
    kept = min(n - hostile if settings.keep is None else settings.keep, n)
    distances = _distances(uploads)
    distances.fill_diagonal_(-1.0)  # first in its row, whatever rounding did to the others
    neighbours = max(n - hostile - 2, 1)
    scores = distances.sort(1).values[:, 1 : 1 + neighbours].sum(1)
    share = torch.zeros(n, dtype=torch.float64, device=scores.device)
    share[scores.argsort(stable=True)[:kept]] = 1.0 / kept
    return share


def _distances(uploads: Uploads) -> Tensor:
    """Squared L2 distances between all uploads, float64 [clients, clients]."""
    n = uploads.clients
    if n > PAIRS_LIMIT:
        raise InputError(
            f"krum compares every pair of a cohort, at most {PAIRS_LIMIT} clients, but {n} took part; "
            "lower clients_per_round, or use the rule trimmed-mean"
        )
    products = torch.zeros(n, n, dtype=torch.float64, device=_device(uploads))
    for piece in _pieces(uploads):
        products.addmm_(piece, piece.T)
    squares = products.diagonal()
    return (squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * products).clamp_min_(0.0)


def _pieces(uploads: Uploads) -> Iterator[Tensor]:
    """All uploads side by side, a block of coordinates at a time: float64 [clients, <= PIECE / clients]."""
    n, columns = uploads.clients, max(PIECE // max(uploads.clients, 1), 1)
    for value in uploads.dense.values():
        for part in value.flatten(1).split(columns, dim=1):
            yield part.double()
    for rows, slots, values in uploads.rows.values():
        found, place = rows.unique(return_inverse=True)
        order, width = place.argsort(stable=True), values.shape[1]
        step = max(min(columns // width, len(found)), 1)
        cuts = torch.searchsorted(place[order], torch.arange(0, len(found) + step, step, device=rows.device)).tolist()
        for number, (first, last) in enumerate(pairwise(cuts)):
            mine = order[first:last]
            piece = torch.zeros(n, step, width, dtype=torch.float64, device=rows.device)
            piece[slots[mine], place[mine] - number * step] = values[mine].double()
            yield piece.flatten(1)


# --- by coordinate: median, trimmed mean -----------------------------------------------------------------------------


def _trimmed(uploads: Uploads, shared: Mapping[str, Tensor], settings: AggregationSettings) -> dict[str, Tensor]:
    """Coordinate-wise median or trimmed mean (Yin et al. 2018); the median is the mean trimmed as far as it goes."""
    out = {}
    for name, value in uploads.dense.items():
        cut = cut_of(torch.tensor(uploads.clients), settings)
        middle = [
            part.double().sort(0).values[int(cut) : uploads.clients - int(cut)].mean(0)
            for part in value.flatten(1).split(max(PIECE // max(uploads.clients, 1), 1), dim=1)
        ]
        out[name] = torch.cat(middle).view(value.shape[1:])
    for name, rows in uploads.rows.items():
        out[name] = _trimmed_rows(rows, uploads.clients, shared[name].shape, settings)
    return out


def cut_of(values: Tensor, settings: AggregationSettings) -> Tensor:
    """How many of so many values are cut at each end; one or two are always left."""
    most = (values - 1).clamp_min(0) // 2
    if settings.rule == "median":
        return most
    return torch.minimum((values * settings.trim - 1e-9).ceil().long(), most)


def _trimmed_rows(rows: Rows, clients: int, shape: torch.Size, settings: AggregationSettings) -> Tensor:
    """The same for a table of sparse updates: a client that is not listed for a row counts as 0, or not at all."""
    items, _, values = rows
    present = torch.bincount(items, minlength=shape[0])
    zeros = clients - present if settings.among == "cohort" else torch.zeros_like(present)
    cut = cut_of(present + zeros, settings)
    left = present + zeros - 2 * cut
    share = torch.ones_like(left) if settings.among == "cohort" else present / clients
    owner, starts = items.sort().values, torch.cumsum(present, 0) - present
    rank = torch.arange(len(items), device=items.device) - starts[owner]
    out = []
    for some in values.split(max(PIECE // max(len(items), 1), 1), dim=1):
        ordered = _sorted_within(items, some.float())
        place = rank.unsqueeze(1) + torch.where(ordered < 0, 0, zeros[owner].unsqueeze(1))  # zeros lie in between
        low, high = cut[owner].unsqueeze(1), (cut + left)[owner].unsqueeze(1)
        total = Accumulator({"sum": torch.empty(shape[0], some.shape[1])}, items.device)
        total.add_rows("sum", owner, torch.where((place >= low) & (place < high), ordered, 0.0))
        out.append(total.sums["sum"] * (share / left.clamp_min(1)).unsqueeze(1))
    return torch.cat(out, dim=1)


def _sorted_within(items: Tensor, values: Tensor) -> Tensor:
    """Every column of float32 [R, k] sorted by (item, value): one sort of whole numbers that hold both."""
    raw = values.T.contiguous().view(torch.int32)
    ordered = (raw ^ ((raw >> 31) & 0x7FFFFFFF)).long()  # as whole numbers, floats of one sign have their own order
    codes = ((items << 32) + (ordered + (1 << 31))).sort(1).values
    key = ((codes & 0xFFFFFFFF) - (1 << 31)).int()
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).view(torch.float32).T


def _rounded_up(share: float, n: int) -> int:
    """ceil(share * n), where 0.1 * 30 is 3."""
    return math.ceil(share * n - 1e-9)


def _device(uploads: Uploads) -> torch.device:
    tensors = [*uploads.dense.values(), *(values for _, _, values in uploads.rows.values())]
    return tensors[0].device if tensors else torch.device("cpu")
