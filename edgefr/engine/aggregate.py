"""This makes what leaves a shard's devices: sound updates, clipped jointly, weighted, and summed where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.host_transfer import add_in_order, here, surely, there, wait
from edge.update import LARGEST
from edgefr.engine.work import RowUpdates, Updates, trained
from export.program import LocalProgram
from privacy.clip import factors_by
from privacy.compress import Projection
from privacy.errors import InputError

RUN = 32
"""Clients' values of a row that are added in float32 before the sum goes on in float64."""


PIECE = 1 << 20
"""Numbers of one working piece of a projection (8 MB of float64)."""

SHORT = "projected"
"""Name of a projected update among tensors: a vector that stands for all of them."""


@dataclass(frozen=True)
class JointVector:
    """This is the joint vector of the shared tensors of these `shapes` that a round trains, and its projection."""

    shapes: Mapping[str, tuple[int, ...]]
    projection: Projection

    def short(self, updates: Updates, clients: int) -> Tensor:
        """Return each client's projected update, float64 [clients, k]; only changed rows are visited."""
        buckets, signs = self._parts(_device(updates))
        out = torch.zeros(clients, self.projection.kept, dtype=torch.float64, device=_device(updates))
        everyone = torch.arange(clients, device=out.device)
        for name, shape in self.shapes.items():
            if name in updates.dense:  # as a table of one row that everybody changed
                whole = buckets[name].view(1, -1), signs[name].view(1, -1)
                _add_short(out, *whole, torch.zeros_like(everyone), everyone, updates.dense[name].flatten(1))
            else:
                u, table = updates.rows[name], (shape[0], -1)
                _add_short(out, buckets[name].view(table), signs[name].view(table), u.rows, u.client, u.values)
        return out

    def whole(self, total: Tensor) -> dict[str, Tensor]:
        """Return what the server makes of a sum [k]: float64 tensors by name."""
        buckets, signs = self._parts(total.device)
        return {name: (total[buckets[name]] * signs[name]).view(shape) for name, shape in self.shapes.items()}

    def _parts(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        both = (there(a, device).split(sizes) for a in (self.projection.buckets, self.projection.signs))
        buckets, signs = (dict(zip(self.shapes, parts, strict=True)) for parts in both)
        return buckets, signs


def _add_short(out: Tensor, buckets: Tensor, signs: Tensor, rows: Tensor, client: Tensor, values: Tensor) -> None:
    """Add changed rows `values` [R, w] of a table to clients' projections `out` [C, k]."""
    flat, k = out.view(-1), out.shape[1]
    for some in torch.arange(len(rows), device=out.device).split(max(1, PIECE // buckets.shape[1])):
        row = rows[some]
        places = (client[some].unsqueeze(1) * k + buckets[row]).flatten()
        add_in_order(flat, places, (values[some] * signs[row]).flatten())


@dataclass(frozen=True)
class ReleaseTerms:
    """These terms say how updates are released.

    `joint`: projected (None: not); `clip` in `norm`; `step`: grid that the clipped update is rounded to (None: none);
    `share`: of the clipped update that is released, applied before rounding, so that sums under whole-step noise hold
    whole steps. `largest`: joint norm above which an update has diverged; `by_size`: weighted by the client's
    interactions; `count_everyone`: the weight may not depend on who was dropped; `each`: the server's rule needs every
    update; `keeps`: clients keep the tables that they trained; `weighed`: the server weighs each shard's sum, so sums
    of several shards cannot be made before.
    """

    clip: float | None
    norm: str
    by_size: bool
    count_everyone: bool
    each: bool = False
    keeps: bool = False
    joint: JointVector | None = None
    step: float | None = None
    share: float = 1.0
    largest: float = LARGEST
    weighed: bool = False

    def scaled(self, scale: float) -> ReleaseTerms:
        """Return the terms of a round whose clip is `scale` of the largest; its releases are as long as before."""
        if scale == 1.0 or self.clip is None:
            return self
        return replace(self, clip=self.clip * scale, share=self.share / scale)

    @property
    def in_blocks(self) -> bool:
        return not (self.each or self.keeps or self.weighed)


@dataclass(frozen=True)
class ShardAggregate:
    """This is the partial sum of a shard.

    `dense`: float64 sums of weighted updates by name (of projected ones: `SHORT` alone). `rows`: for `rows` tensors the
    distinct rows [k], ascending, and their float64 sums [k, w]. `weight`, `clients`: what was summed. `norms` [C]:
    joint norms before the clip of kept clients; `dropped`, `clipped`: counts. `private`: new private tensors [C,
    *shape]; `tables`: new private rows. `each`: kept updates, clipped (None unless asked for). `message` [C, P]: every
    client's, NaN for dropped ones (None: none is sent). `kept`: slots of kept clients. `left`: how clients changed
    shared tables, which they keep as they are. `shards`: number of consecutive shards, whose slots follow each other.
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
    tables: dict[str, RowUpdates] = field(default_factory=dict)
    message: Tensor | None = None
    kept: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    left: dict[str, RowUpdates] = field(default_factory=dict)
    shards: int = 1

    def facts(self) -> ShardAggregate:
        return self


def summed(parts: Sequence[ShardAggregate], sizes: Sequence[int]) -> ShardAggregate:
    """Return the partial sum of consecutive shards of these sizes, in the server's order of addition."""
    if len(parts) == 1:
        return parts[0]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    messages = [part.message for part in parts if part.message is not None]
    return ShardAggregate(
        dense={name: sum((part.dense[name] for part in parts[1:]), parts[0].dense[name]) for name in parts[0].dense},
        rows={name: _together([part.rows[name] for part in parts]) for name in parts[0].rows},
        weight=sum(part.weight for part in parts),
        clients=sum(part.clients for part in parts),
        norms=np.concatenate([part.norms for part in parts]),
        dropped=sum(part.dropped for part in parts),
        clipped=sum(part.clipped for part in parts),
        private={name: torch.cat([part.private[name] for part in parts]) for name in parts[0].private},
        tables={name: _after_another([part.tables[name] for part in parts], starts) for name in parts[0].tables},
        message=torch.cat(messages) if messages else None,
        kept=np.concatenate([part.kept + start for part, start in zip(parts, starts, strict=False)]),
        shards=len(parts),
    )


def of_sums(
    terms: ReleaseTerms,
    weights: npt.NDArray[np.float64],
    norms: npt.NDArray[np.float64],
    sums: tuple[dict[str, Tensor], dict[str, tuple[Tensor, Tensor]]],
    private: dict[str, Tensor],
    kept: npt.NDArray[np.bool_] | None = None,
) -> ShardAggregate:
    """Return what leaves a shard whose sums are made; `weights`, `norms` [C]; `kept` [C]: None: by the largest norm.

    A guarantee may not tell who failed.
    """
    kept = norms <= terms.largest if kept is None else kept
    return ShardAggregate(
        *sums,
        weight=float(len(norms) if terms.count_everyone else weights[kept].sum()),
        clients=int(kept.sum()),
        norms=norms[kept],
        dropped=int((~kept).sum()),
        clipped=0 if terms.clip is None else int((norms[kept] > terms.clip).sum()),
        private=private,
        kept=np.flatnonzero(kept),
    )


def _together(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    every = torch.cat([rows for rows, _ in parts])
    place = torch.zeros(int(every.max()) + 1 if len(every) else 0, dtype=torch.int64, device=every.device)
    place[every] = 1
    found = place.nonzero().squeeze(1)
    place[found] = torch.arange(len(found), device=every.device)
    width = parts[0][1].shape[1]
    total = torch.zeros(len(found), width, dtype=torch.float64, device=every.device)
    for rows, values in parts:  # of one part they are distinct
        total.index_add_(0, place[rows], values)
    return found, total


def _after_another(parts: Sequence[RowUpdates], starts: npt.NDArray[np.int64]) -> RowUpdates:
    slots = [part.client + int(start) for part, start in zip(parts, starts, strict=False)]
    return RowUpdates(torch.cat([p.rows for p in parts]), torch.cat(slots), torch.cat([p.values for p in parts]))


@dataclass(frozen=True)
class Leaving:
    """This is the partial sum of a shard that a device may still compute.

    `dense` and `rows` are a `ShardAggregate`'s and may be added up there. `facts()` returns the rest, and is asked
    after waiting for the device. On a device `rows` may repeat rows: counting distinct ones would make the host wait.
    """

    dense: dict[str, Tensor]
    rows: dict[str, tuple[Tensor, Tensor]]
    facts: Callable[[], ShardAggregate]
    shards: int = 1


def release(updates: Updates, sizes: npt.NDArray[np.int64], terms: ReleaseTerms) -> ShardAggregate:
    """Sum a shard's updates under `terms`; `sizes` [C] are its clients' numbers of training interactions."""
    out = leaving(updates, sizes, terms)
    wait(_device(updates))
    return replace(out.facts(), dense=out.dense, rows=out.rows)


def leaving(updates: Updates, sizes: npt.NDArray[np.int64], terms: ReleaseTerms) -> Leaving:
    """Do what `release` does, and wait for no device."""
    order, device = {"l1": 1, "l2": 2}[terms.norm], _device(updates)
    own, message = updates.tables, updates.message
    norms = updates.norms(len(sizes), order)
    kept = norms <= terms.largest  # false for NaN
    everybody = surely(kept)
    if not everybody:
        updates = _changed(updates, kept, lambda values, alive: torch.where(alive, values, 0.0))
    left = updates.rows if terms.keeps else {}
    if terms.joint is not None:
        updates = replace(updates, dense={SHORT: terms.joint.short(updates, len(sizes))}, rows={})
        norms = torch.where(kept, updates.norms(len(sizes), order), norms)
    factors = kept.double() if terms.clip is None else factors_by(torch, norms, terms.clip)
    factors = factors if terms.share == 1.0 else factors * terms.share
    weights = torch.where(kept, there(sizes.astype(np.float64), device) if terms.by_size else 1.0, 0.0).double()
    if terms.step is not None:  # on the grid (toward zero, as `to_grid`), in float64, so that their sums are exact
        step = terms.step
        updates = _changed(updates, factors / step, lambda v, share: torch.trunc(v.double() * share) * step)
        factors = torch.ones_like(factors)
    factor = factors * weights
    alike = surely(factor == 1)
    dense = {n: torch.tensordot(factor, v.double(), dims=1) for n, v in updates.dense.items()}
    rows = {n: _sums_of_rows(u.rows, u.values, None if alike else factor[u.client]) for n, u in updates.rows.items()}
    seen, sound, weighs = here(norms), here(kept), here(weights)
    private = {name: here(value) for name, value in updates.private.items()}
    owners = {name: here(update.client) for name, update in updates.rows.items()} if terms.each else {}
    tables, stays = (
        {name: RowUpdates(here(some.rows), here(some.client), here(some.values)) for name, some in found.items()}
        for found in (own, left)
    )
    if message is not None:
        message = here(message if everybody else torch.where(kept.unsqueeze(1), message, math.nan))

    def facts() -> ShardAggregate:
        known = of_sums(terms, weighs.numpy(), seen.numpy(), ({}, {}), private, sound.numpy())
        each = _scaled(updates, factors, sound.numpy(), owners) if terms.each else None
        return replace(known, each=each, tables=tables, message=message, left=stays)

    return Leaving(dense, rows, facts)


def restricted(program: LocalProgram, tensors: Sequence[str] | None) -> LocalProgram:
    """Return `program` with rounds that train and release these shared tensors alone (None: all).

    Phases without tensors are dropped. Raises `InputError` for names that rounds do not train, and where all trained
    names are given.
    """
    if tensors is None:
        return program
    known = trained(program, [phase for phase in program.phases if phase.when == "round"], "shared")
    for name in tensors:
        if name not in known:
            raise InputError(f"privacy.tensors: {program.name} trains no shared tensor {name!r} in rounds: {known}")
    if set(tensors) == set(known):
        raise InputError(
            f"privacy.tensors: rounds of {program.name} train no other shared tensor than {known}: drop it"
        )
    left = {name for name, spec in program.specs.items() if spec.place == "private"} | set(tensors)
    phases = [
        replace(phase, trains=tuple(name for name in phase.trains if name in left)) if phase.when == "round" else phase
        for phase in program.phases
    ]
    program.phases = tuple(phase for phase in phases if phase.trains)  # type: ignore[misc]  # it is the caller's own
    return program


def released_values(program: LocalProgram, project: int | None) -> int:
    """Count the values that a client uploads in a round: all of the shared tensors it changes, or a projection's."""
    phases = [phase for phase in program.phases if phase.when == "round" and phase.epochs]
    return project or sum(program.specs[name].size for name in trained(program, phases, "shared"))


def _changed(updates: Updates, by: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> Updates:
    """Return updates whose values [n, ...] are `change(values, theirs)`; `theirs` are their clients' of `by` [C]."""
    dense = {n: change(v, by.view(-1, *[1] * (v.ndim - 1))) for n, v in updates.dense.items()}
    rows = {n: replace(u, values=change(u.values, by[u.client].unsqueeze(1))) for n, u in updates.rows.items()}
    return replace(updates, dense=dense, rows=rows)


def _sums_of_rows(rows: Tensor, values: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return distinct rows, ascending, and weighted sums: float32 over up to `RUN` values in order, float64 over those.

    A float64 scatter of single values takes ten times longer and is no closer. On a device all rows are returned, in
    float64, for the server to add up.
    """
    if rows.device.type != "cpu":
        return rows, values.double() if factor is None else values.double() * factor.unsqueeze(1)
    order = rows
    if len(rows):  # a stable order, by numpy, which sorts 16-bit numbers by radix
        numbers = rows.numpy()
        order = torch.from_numpy(np.argsort(numbers.astype(np.min_scalar_type(int(numbers.max()))), kind="stable"))
    found, counts = rows[order].unique_consecutive(return_counts=True)
    runs = (counts + RUN - 1) // RUN  # per row
    row = torch.repeat_interleave(torch.arange(len(found), device=rows.device), runs)
    within = torch.arange(len(row), device=rows.device) - (runs.cumsum(0) - runs)[row]
    starts = (counts.cumsum(0) - counts)[row] + within * RUN
    weight = None if factor is None else factor[order].to(values.dtype)
    sums = torch.nn.functional.embedding_bag(order, values, starts, mode="sum", per_sample_weights=weight)
    total = torch.zeros(len(found), values.shape[1], dtype=torch.float64, device=rows.device)
    return found, total.index_put_((row,), sums.double(), accumulate=True)


def _scaled(updates: Updates, factors: Tensor, kept: npt.NDArray[np.bool_], owners: Mapping[str, Tensor]) -> Updates:
    """Return the updates of the kept clients alone, clipped; slots are numbered anew. `owners`: of rows, by table."""
    factor = factors.float()
    alive = there(np.flatnonzero(kept), factor.device)
    slot = np.cumsum(kept) - 1
    dense = {n: (v * factor.view(-1, *[1] * (v.ndim - 1))).index_select(0, alive) for n, v in updates.dense.items()}
    rows = {}
    for name, update in updates.rows.items():
        owner = owners[name].numpy()
        mine = np.flatnonzero(kept[owner])
        at, client = there(mine, factor.device), there(slot[owner[mine]], factor.device)
        values = update.values[at] * factor[update.client[at]].unsqueeze(1)
        rows[name] = RowUpdates(update.rows[at], client, values)
    return Updates(dense, rows, {}, left={name: share.index_select(0, alive) for name, share in updates.left.items()})


def _device(updates: Updates) -> torch.device:
    values = [*updates.dense.values(), *(u.values for u in updates.rows.values())]
    return values[0].device if values else torch.device("cpu")
