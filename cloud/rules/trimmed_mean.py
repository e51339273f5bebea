"""This rule takes the coordinate-wise trimmed mean, against hostile clients (Yin et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cloud.rule import AggregationSettings, Robust

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from cloud.uploads import Rows, Uploads

    Cut = Callable[[Tensor], Tensor]
    """How many of so many values are cut at each end."""

Among = Literal["changed", "cohort"]

AMONG = (
    "of a table's row: over the clients that changed it, times their share of the cohort; or over the whole cohort, "
    "the others as 0: a hostile minority moves no rare row, and nobody does"
)


class TrimmedMeanSettings(AggregationSettings):
    rule: Literal["trimmed-mean"] = "trimmed-mean"
    trim: float = Field(
        0.25,
        ge=0,
        lt=0.5,
        description="share of values cut at each end, rounded up; at least the share of hostile clients",
    )
    among: Among = Field("changed", description=AMONG)


class TrimmedMean(Robust):
    """This rule takes the mean of what is left at every coordinate."""

    name = "trimmed-mean"
    settings = TrimmedMeanSettings
    citation = "Yin et al. 2018"

    def combine(
        self, settings: AggregationSettings, uploads: Uploads, shared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        assert isinstance(settings, TrimmedMeanSettings)
        share = settings.trim
        return trimmed(uploads, shared, lambda values: cut_of(values, share), settings.among)


def cut_of(values: Tensor, share: float) -> Tensor:
    """Return how many of so many values are cut at each end; one or two are always left."""
    import torch

    most = (values - 1).clamp_min(0) // 2
    return torch.minimum((values * share - 1e-9).ceil().long(), most)


def trimmed(uploads: Uploads, shared: Mapping[str, Tensor], cut_of: Cut, among: Among) -> dict[str, Tensor]:
    """Return the mean of what is left at every coordinate, float64, per tensor of `shared` in its shape and place.

    `among`: of a table's row, the clients that changed it, times their share of the cohort; or the whole cohort.
    """
    import torch

    from cloud.uploads import PIECE

    out = {}
    for name, value in uploads.dense.items():
        cut = cut_of(torch.tensor(uploads.clients))
        middle = [
            part.double().sort(0).values[int(cut) : uploads.clients - int(cut)].mean(0)
            for part in value.flatten(1).split(max(PIECE // max(uploads.clients, 1), 1), dim=1)
        ]
        out[name] = torch.cat(middle).view(value.shape[1:])
    for name, rows in uploads.rows.items():
        out[name] = _trimmed_rows(rows, uploads.clients, shared[name].shape, cut_of, among)
    return out


def _trimmed_rows(rows: Rows, clients: int, shape: torch.Size, cut_of: Cut, among: Among) -> Tensor:
    """The same for a table of sparse updates: a client that is not listed for a row counts as 0, or not at all."""
    import torch

    from cloud.aggregate import Accumulator
    from cloud.host_transfer import add_in_order
    from cloud.uploads import PIECE

    items, _, values = rows
    present = torch.zeros(shape[0], dtype=torch.int64, device=items.device)
    add_in_order(present, items, torch.ones_like(items))
    whole = {"changed": False, "cohort": True}[among]
    zeros = clients - present if whole else torch.zeros_like(present)
    cut = cut_of(present + zeros)
    left = present + zeros - 2 * cut
    share = torch.ones_like(left) if whole else present / clients
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
    """Sort every column of float32 [R, k] by (item, value): one sort of whole numbers that hold both."""
    import torch

    raw = values.T.contiguous().view(torch.int32)
    ordered = (raw ^ ((raw >> 31) & 0x7FFFFFFF)).long()  # as whole numbers, floats of one sign have their own order
    codes = ((items << 32) + (ordered + (1 << 31))).sort(1).values
    key = ((codes & 0xFFFFFFFF) - (1 << 31)).int()
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).view(torch.float32).T
