"""Clients that learn from sessions are trained together: all of a shard in one call.

Every client has one window, so a step is the same for all: tensors are [clients, ...], item rows of all clients lie in
one table, and one backward of the summed losses gives each client its own gradient. A row that some step of the round
reads takes part in all of them, so Adam equals a device's on its whole table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.host_transfer import add_in_order, there
from edge.sampling import EVERYTHING
from edge.sessions import Draw, SessionSampler, Windows
from edgefr.config import random_streams as purposes
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates, trained
from export.batches import One, Window, shrink
from export.program import LocalProgram, Phase, SessionProgram, Tensors, turns
from privacy import keyed
from privacy.errors import InputError

SENT, ASKED, HELD = 1 << 30, (1 << 30) + 1, (1 << 30) + 2
"""What keys dropped values where no epoch does: of prototypes, of queries, and of queries about held-out sessions."""

AT_ONCE = 1024
"""Windows that are encoded in one call where there is no shard: prototypes of everybody."""


def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    program, draws = program_of(work), draws_of(work, clients)
    draw = draws[work.phases[0].purpose]
    first = begun(work, tensors_of(program, shared, private, draw, work.device), clients, draw)
    with torch.no_grad():
        taught = program.teach(first, batch_of(draw, 0, work.device))
    changed = trained(program, work.phases, "shared") + trained(program, work.phases, "private")
    values = {**first, **_copies(program, first, changed, len(clients))}
    for phases in turns(work.phases):
        phases = [replace(phase, number=work.round) for phase in phases]
        optimisers = [Optimiser.of(phase, lambda name: values[name].shape) for phase in phases]
        for epoch in range(phases[0].epochs):
            batch = replace(lesson(work, draws[phases[0].purpose], epoch, clients), taught=taught)
            for phase, optimiser in zip(phases, optimisers, strict=True):
                _step(program, phase, optimiser, values, batch, epoch + 1, draws[phases[0].purpose])
    return _updates(program, changed, first, values, closing(work, draw, clients), draw)


def lesson(work: LocalWork, draw: Draw, epoch: int, clients: Clients) -> Window:
    """Return the windows of an epoch, with the values that training drops of them."""
    some = dropped(cast(SessionProgram, work.program), work.sampler.seed, work.round, epoch, clients, work.device)
    return replace(batch_of(draw, epoch, work.device), kept=some)


def closing(work: LocalWork, draw: Draw, clients: Clients) -> tuple[Window, Window | None]:
    """Return the windows that prototypes are made of after training, and those asked about where these are others."""
    program, seed = cast(SessionProgram, work.program), work.sampler.seed
    sent, asks = (dropped(program, seed, work.round, at, clients, work.device) for at in (SENT, ASKED))
    asked = None if draw.asked is None else replace(_window(draw.asked, work.device), kept=asks)
    return replace(batch_of(draw, 0, work.device), kept=sent), asked


def dropped(
    program: SessionProgram, seed: int, number: int, at: int, clients: Clients, device: torch.device
) -> dict[str, Tensor]:
    """Return factors by site [C, *shape]: 0 where dropout drops values; keyed by round, client and `at`."""
    out: dict[str, Tensor] = {}
    for site, shape in program.sites.items() if program.dropout else ():
        keys = keyed.fold(keyed.key(seed, purposes.dropped(site), number, at), clients)
        stay = keyed.uniform(keys[:, None], np.arange(math.prod(shape))) >= program.dropout
        values = (stay / (1 - program.dropout)).astype(np.float32)
        out[site] = there(values, device).view(len(clients), *shape)
    return out


def begun(work: LocalWork, first: dict[str, Tensor], clients: Clients, draw: Draw) -> dict[str, Tensor]:
    """Return the tensors that clients begin with: in a run's first round perhaps others than they received."""
    program = cast(SessionProgram, work.program)
    if not program.begins_alone or work.round > 1:
        return first
    own = program.begins(work.sampler.seed, clients, draw.slots, draw.touched)
    return {**first, **{name: there(value, work.device).to(first[name].dtype) for name, value in own.items()}}


def message_of(program: SessionProgram, values: Tensors, batch: Window, asked: Window | None) -> Tensor | None:
    """Return what clients send beside their updates, [..., P]: prototypes, with another query [..., 2 P] behind."""
    if program.publishes != "trained":
        return None
    message = program.publish(values, batch)
    if message is None or asked is None:
        return message
    query = program.ask(values, asked)
    assert query is not None
    return torch.cat([message, query], dim=-1)


def program_of(work: LocalWork) -> SessionProgram:
    """Return the work's program. Raises `InputError` for one that cannot learn from sessions so."""
    program = work.program
    if not isinstance(program, SessionProgram):
        raise InputError(f"{program.name} does not read sessions in order; give it sets of items")
    if any(phase.which != EVERYTHING for phase in work.phases):
        raise InputError(f"{program.name} asks for pairs or parts of its examples; a session is one window, whole")
    if any(phase.accumulates for phase in work.phases):
        raise InputError(f"{program.name} adds up gradients, which is for programs that learn from sets of items")
    if any(spec.kind == "rows" and spec.place != "shared" for spec in program.specs.values()):
        raise InputError(f"{program.name} has rows of every client's own, which sessions are not learned with")
    return program


def draws_of(work: LocalWork, clients: Clients) -> dict[str, Draw]:
    """Draw what these clients learn from, by the purposes of the phases."""
    epochs: dict[str, int] = {}
    for phase in work.phases:
        epochs[phase.purpose] = max(phase.epochs, epochs.get(phase.purpose, 0))
    whole = isinstance(work.program, SessionProgram) and work.program.whole_catalogue
    return cast(SessionSampler, work.sampler).draws(clients, epochs, work.round, whole)


def published(
    program: SessionProgram,
    shared: Tensors,
    windows: Windows,
    device: torch.device,
    kept: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """Return prototypes [C, P] of windows by tensors that all clients have in common, `kept` as in `dropped`."""
    found = []
    with torch.no_grad():
        for at in range(0, max(len(windows.items), 1), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            part = Windows(windows.items[some], windows.real[some], windows.times[some])
            left = {site: values[some] for site, values in kept.items()}
            made = program.ask(shared, replace(_window(part, device), kept=left))
            assert made is not None
            found.append(made)
    return torch.cat(found)


def tensors_of(
    program: LocalProgram, shared: Tensors, private: Tensors, draw: Draw, device: torch.device
) -> dict[str, Tensor]:
    """Return the tensors before training: of tables the pairs' rows [R, d], the rest whole, private ones [C, ...]."""
    touched = there(draw.touched, device)
    tables = {n: shared[n].index_select(0, touched) for n, spec in program.specs.items() if spec.kind == "rows"}
    return {**shared, **tables, **{n: there(v, device) for n, v in private.items()}}


def batch_of(draw: Draw, epoch: int, device: torch.device) -> Window:
    """Return the windows of an epoch: positions count equally within a client."""
    share = draw.real / np.maximum(draw.real.sum(axis=1, keepdims=True), 1.0)
    arrays = (draw.inputs, draw.real, share, draw.times, draw.positives, draw.negatives[epoch])
    items, real, weight, times, positive, negative = (there(array, device) for array in arrays)
    numbers = there(draw.touched if len(draw.touched) else np.zeros(1, np.int64), device)
    return Window(
        items, numbers[items], real, weight, times=times, positive=positive, negative=negative, target=numbers[positive]
    )


def _window(windows: Windows, device: torch.device) -> Window:
    items, real, times = (there(part, device) for part in (windows.items, windows.real, windows.times))
    return Window(items, items, real, real, times=times)


def _copies(program: SessionProgram, first: Tensors, names: Sequence[str], clients: int) -> dict[str, Tensor]:
    out = {}
    for name in names:
        spec, value = program.specs[name], first[name]
        each = spec.kind == "dense" and spec.place == "shared"
        whole = value.expand(clients, *spec.shape) if each else value  # or of every client already
        out[name] = whole.clone(memory_format=torch.contiguous_format)  # of one client too, or it trains the broadcast
    return out


def _step(
    program: SessionProgram,
    phase: Phase,
    optimiser: Optimiser,
    values: dict[str, Tensor],
    batch: Window,
    number: int,
    draw: Draw,
) -> None:
    leaves = [values[name].detach().requires_grad_() for name in phase.trains]
    loss, left = program.learned({**values, **dict(zip(phase.trains, leaves, strict=True))}, batch, phase)
    values.update(left)
    gradients = dict(zip(phase.trains, torch.autograd.grad(loss, leaves), strict=True))
    if phase.clip is not None:
        gradients = _clipped(program, gradients, phase.clip, draw, len(batch.items))
    with torch.no_grad():
        for name, gradient in gradients.items():
            optimiser.step(name, values[name], gradient, np.array(number))


def _clipped(
    program: SessionProgram, gradients: Mapping[str, Tensor], most: float, draw: Draw, clients: int
) -> dict[str, Tensor]:
    """Return the gradients, each client's cut to a joint length; those of tables are rows of `draw`'s pairs."""
    slots = there(draw.slots, next(iter(gradients.values())).device)
    rows = {name for name in gradients if program.specs[name].kind == "rows"}
    square = torch.stack(
        [
            _sums_by(slots, gradient.square().sum(-1), clients)
            if name in rows
            else gradient.square().flatten(1).sum(-1)
            for name, gradient in gradients.items()
        ]
    ).sum(0)
    cut = shrink(square, most)
    return {
        name: gradient * (cut[slots] if name in rows else cut).view(-1, *[1] * (gradient.ndim - 1))
        for name, gradient in gradients.items()
    }


def _sums_by(slots: Tensor, values: Tensor, clients: int) -> Tensor:
    total = values.new_zeros(clients)
    add_in_order(total, slots, values)
    return total


def _updates(
    program: SessionProgram,
    changed: Sequence[str],
    first: Tensors,
    values: Tensors,
    last: tuple[Window, Window | None],
    draw: Draw,
) -> Updates:
    """Return what the shard's clients learned, what they keep, and the prototypes of what they have now."""
    dense, rows, private = {}, {}, {}
    for name in changed:
        spec = program.specs[name]
        if spec.kind == "rows":
            touched, slots = (there(part, values[name].device) for part in (draw.touched, draw.slots))
            rows[name] = RowUpdates(touched, slots, values[name] - first[name])
        elif spec.place == "shared":
            dense[name] = values[name] - first[name]
        else:
            private[name] = values[name]
    with torch.no_grad():
        private |= {name: values[name] for name in program.notices} | program.remember(values)
        message = message_of(program, values, *last)
    return Updates(dense, rows, private, message)


class WindowScorer:
    """This is a scorer for `edgefr.simulation.evaluation` of users at some place of a session.

    `windows` [users] hold what each user's device sees of it; `private` [users, ...] are all users' tensors.
    """

    def __init__(
        self,
        program: SessionProgram,
        shared: Tensors,
        private: Tensors,
        windows: Windows,
        pool: npt.NDArray[np.integer],
        device: torch.device,
    ):
        self.program, self.shared, self.private, self.windows, self.device = program, shared, private, windows, device
        self.items = torch.from_numpy(np.asarray(pool, np.int64)).to(device)
        with torch.inference_mode():
            self.pool = self._vectors(self.items)

    def _vectors(self, items: Tensor) -> Tensor:
        return self.program.vectors(self.shared, One(items, items, items, items))

    def users(self, users: Clients) -> Tensor:
        """Return what is compared with item vectors, [n, d]: each user's prediction at its window's newest item."""
        with torch.inference_mode():
            tensors, window = self._seen(users)
            batch = One(window.items, window.items, window.label, window.weight, history=window)
            past = self.program.vectors(self.shared, window)
            return self.program.user(tensors, batch, past, self.pool).squeeze(-2)

    def _seen(self, users: Clients) -> tuple[dict[str, Tensor], Window]:
        w, own = self.windows, torch.from_numpy(users)
        window = _window(Windows(w.items[users], w.real[users], w.times[users]), self.device)
        return {**self.shared, **{n: v.index_select(0, own).to(self.device) for n, v in self.private.items()}}, window

    def __call__(self, users: Clients, items: npt.NDArray[np.integer] | None) -> npt.NDArray[np.float32]:
        wanted = None if items is None else torch.from_numpy(np.asarray(items, np.int64)).to(self.device)
        with torch.inference_mode():
            if not self.program.inner:
                return self._scores(users, self.items if wanted is None else wanted).cpu().numpy()
            user = self.users(users)
            if wanted is None:
                return (user @ self.pool.T).cpu().numpy()
            return torch.matmul(self._vectors(wanted), user.unsqueeze(-1)).squeeze(-1).cpu().numpy()

    def _scores(self, users: Clients, items: Tensor) -> Tensor:
        tensors, window = self._seen(users)
        batch = One(items, items, items, items, history=window)
        vectors, past = self._vectors(items), self.program.vectors(self.shared, window)
        return self.program.score(tensors, batch, vectors, self.program.user(tensors, batch, past, vectors))
