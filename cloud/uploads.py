"""Some rules need every upload of a cohort; this holds them, and sums them with a weight per client.

A robust rule sees every upload of the cohort at once. Uploads are whole: a row that a client did not touch is a zero
update. They are never laid out whole, though: work goes in pieces of at most `PIECE` numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from cloud.aggregate import Accumulator
from cloud.host_transfer import add_in_order
from privacy.errors import InputError

PIECE = 1 << 23
"""Numbers of one working piece (64 MB of float64)."""

PAIRS_LIMIT = 8192
"""Largest cohort whose pairs a rule compares: the table of distances takes 8 bytes a pair."""

Rows = tuple[Tensor, Tensor, Tensor]
"""Sparse updates of a table: row numbers [R], client slots [R], float32 values [R, w]; a (row, slot) pair once."""


@dataclass(frozen=True)
class Uploads:
    """These are all updates of a cohort of `clients`, slots 0..clients-1.

    `dense`: [clients, *shape] by name; `rows`: sparse. `left` [clients], by table: the share that rows
    which `rows` does not name have left of their way to where they are pulled (a table not named: all of it).
    """

    dense: Mapping[str, Tensor]
    rows: Mapping[str, Rows]
    clients: int
    left: Mapping[str, Tensor] = field(default_factory=dict)


def joined(parts: Sequence[Uploads]) -> Uploads:
    """Return the uploads of several shards as those of one cohort, slot after slot; every part has the same tensors."""
    starts = [sum(part.clients for part in parts[:at]) for at in range(len(parts) + 1)]
    if not parts:
        return Uploads({}, {}, 0)
    dense = {name: torch.cat([part.dense[name] for part in parts]) for name in parts[0].dense}
    rows = {}
    for name in parts[0].rows:
        items, slots, values = zip(*(part.rows[name] for part in parts), strict=True)
        shifted = [slot + start for slot, start in zip(slots, starts, strict=False)]
        rows[name] = (torch.cat(items), torch.cat(shifted), torch.cat(values))
    left = {name: torch.cat([part.left[name] for part in parts]) for name in parts[0].left}
    return Uploads(dense, rows, starts[-1], left)


def weighted(uploads: Uploads, shared: Mapping[str, Tensor], share: Tensor) -> dict[str, Tensor]:
    """The sum of the cohort's updates, each times its `share` [clients]: one float64 tensor per tensor of `shared`."""
    total = Accumulator(shared, share.device)
    for name, value in uploads.dense.items():
        total.add_dense(name, torch.tensordot(share, value.double(), dims=1))
    for name, (rows, slots, values) in uploads.rows.items():
        total.add_rows(name, rows, values.double() * share[slots].unsqueeze(1))
    return total.sums


def squared_norms(uploads: Uploads) -> Tensor:
    """Return the squared L2 norm of each client's whole upload, float64 [clients]."""
    out = torch.zeros(uploads.clients, dtype=torch.float64, device=_device(uploads))
    for value in uploads.dense.values():
        out += value.flatten(1).double().square().sum(1)
    for _, slots, values in uploads.rows.values():
        add_in_order(out, slots, values.double().square().sum(1))
    return out


def check_pairs(clients: int, rule: str) -> None:
    """Raise `InputError` for a cohort too large to compare all pairs."""
    if clients > PAIRS_LIMIT:
        raise InputError(
            f"{rule} compares every pair of a cohort, at most {PAIRS_LIMIT} clients, but {clients} took part; "
            "lower clients_per_round, or use the rule trimmed-mean"
        )


def distances(uploads: Uploads) -> Tensor:
    """Return the squared L2 distances between all uploads, float64 [clients, clients]."""
    n = uploads.clients
    check_pairs(n, "this rule")
    products = torch.zeros(n, n, dtype=torch.float64, device=_device(uploads))
    for piece in _pieces(uploads):
        products.addmm_(piece, piece.T)
    squares = products.diagonal()
    return (squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * products).clamp_min_(0.0)


def _pieces(uploads: Uploads) -> Iterator[Tensor]:
    """Yield all uploads side by side, a block of coordinates at a time: float64 [clients, <= PIECE / clients]."""
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


def _device(uploads: Uploads) -> torch.device:
    tensors = [*uploads.dense.values(), *(values for _, _, values in uploads.rows.values())]
    return tensors[0].device if tensors else torch.device("cpu")
