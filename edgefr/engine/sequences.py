"""Clients that learn from sessions: all of a shard in one call.

Every client has one window, so a step is the same for all of them: tensors are [clients, ...], the item rows of all
clients lie one after another in one table, and one backward of the summed losses gives each client its own gradient.
A row that some step of the round reads takes part in all of them, so Adam is that of a device that moves its whole
table: rows nobody reads never move.

Owns: the step loop of sessions, teachers and prototypes of a shard, scoring by windows. Does not own: draws
(`edge.sessions`), the maths of a client (programs), what the server makes of prototypes (`cloud.prototypes`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.sessions import Draw, SessionSampler, Windows
from edgefr.engine.optimisers import Optimiser
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates
from edgefr.methods.program import LocalProgram, One, Phase, Tensors, Window

TABLE = "item"
AT_ONCE = 1024
"""Windows that are encoded in one call where there is no shard: prototypes of everybody."""


class SessionProgram(LocalProgram, Protocol):
    """What a program that learns from sessions adds to `LocalProgram`; all tensors are one client's.

    `publishes`: whose prototype is sent, the "received" encoder's, the "trained" one's, or "none".
    `teach`: the teacher's features of a window, fixed before a round. `publish`: the prototype a client sends.
    `remember`: private tensors a client keeps for its next round, from those it has at the end of this one.
    """

    @property
    def publishes(self) -> str: ...

    def teach(self, tensors: Tensors, batch: Window) -> Tensor | None: ...

    def publish(self, tensors: Tensors, batch: Window) -> Tensor | None: ...

    def remember(self, tensors: Tensors) -> dict[str, Tensor]: ...


def run(work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
    """Train a shard of clients, each on its window; see `edgefr.engine.work.Executor`."""
    program, (phase,) = cast(SessionProgram, work.program), work.phases
    sampler = cast(SessionSampler, work.sampler)
    draw = sampler.draw(clients, phase.purpose, work.round, phase.epochs)
    first = tensors_of(shared, private, draw, work.device)
    batches = [batch_of(draw, epoch, work.device) for epoch in range(phase.epochs)]
    with torch.no_grad():
        taught = program.teach(first, batches[0])
    trained = _copies(program, first, phase, len(clients))
    values = {**first, **trained}
    optimiser = Optimiser(
        phase.optimiser, phase.lr, {name: value.shape for name, value in trained.items()}, phase.beta_2
    )
    for epoch, batch in enumerate(batches):
        _step(program, phase, optimiser, values, replace(batch, taught=taught), epoch + 1)
    return _updates(program, phase, shared, first, values, batches[0], draw)


def published(program: SessionProgram, shared: Tensors, windows: Windows, device: torch.device) -> Tensor:
    """Prototypes [C, P] of windows by tensors that all clients have in common."""
    found = []
    with torch.no_grad():
        for at in range(0, max(len(windows.items), 1), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            part = Windows(windows.items[some], windows.real[some], windows.times[some])
            made = program.publish(shared, _window(part, device))
            assert made is not None
            found.append(made)
    return torch.cat(found)


def tensors_of(shared: Tensors, private: Tensors, draw: Draw, device: torch.device) -> dict[str, Tensor]:
    """Tensors before training: the table's rows of the pairs [R, d], shared tensors whole, private ones [C, ...]."""
    touched = torch.from_numpy(draw.touched).to(device)
    return {
        **shared,
        TABLE: shared[TABLE].index_select(0, touched),
        **{n: v.to(device) for n, v in private.items()},
    }


def batch_of(draw: Draw, epoch: int, device: torch.device) -> Window:
    """The windows of an epoch: positions count equally within a client."""
    share = draw.real / np.maximum(draw.real.sum(axis=1, keepdims=True), 1.0)
    arrays = (draw.inputs, draw.real, share, draw.times, draw.positives, draw.negatives[epoch])
    items, real, weight, times, positive, negative = (torch.from_numpy(array).to(device) for array in arrays)
    return Window(items, items, real, weight, times=times, positive=positive, negative=negative)


def _window(windows: Windows, device: torch.device) -> Window:
    items, real, times = (torch.from_numpy(part).to(device) for part in (windows.items, windows.real, windows.times))
    return Window(items, items, real, real, times=times)


def _copies(program: SessionProgram, first: Tensors, phase: Phase, clients: int) -> dict[str, Tensor]:
    """Every client's own copy of what it trains: [C, *shape], of the table [R, d]."""
    out = {}
    for name in phase.trains:
        spec, value = program.specs[name], first[name]
        each = spec.kind == "dense" and spec.place == "shared"
        whole = value.expand(clients, *spec.shape) if each else value
        out[name] = whole.clone(memory_format=torch.contiguous_format)  # of one client too, or it trains the broadcast
    return out


def _step(
    program: SessionProgram, phase: Phase, optimiser: Optimiser, values: dict[str, Tensor], batch: Window, number: int
) -> None:
    """One optimiser step of every client of the shard."""
    leaves = [values[name].detach().requires_grad_() for name in phase.trains]
    loss = program.loss({**values, **dict(zip(phase.trains, leaves, strict=True))}, batch, phase)
    gradients = torch.autograd.grad(loss, leaves)
    with torch.no_grad():
        for name, gradient in zip(phase.trains, gradients, strict=True):
            optimiser.step(name, values[name], gradient, np.array(number))


def _updates(
    program: SessionProgram,
    phase: Phase,
    shared: Tensors,
    first: Tensors,
    values: Tensors,
    batch: Window,
    draw: Draw,
) -> Updates:
    """What the shard's clients learned, what they keep, and the prototypes of what they have now."""
    dense, rows, private = {}, {}, {}
    for name in phase.trains:
        spec = program.specs[name]
        if name == TABLE:
            touched, slots = (torch.from_numpy(part).to(values[name].device) for part in (draw.touched, draw.slots))
            rows[name] = RowUpdates(touched, slots, values[name] - first[name])
        elif spec.place == "shared":
            dense[name] = values[name] - shared[name]
        else:
            private[name] = values[name]
    with torch.no_grad():
        private |= program.remember(values)
        message = program.publish(values, batch) if program.publishes == "trained" else None
    return Updates(dense, rows, private, message)


class WindowScorer:
    """A scorer for `edgefr.metrics.evaluate` of users who are at some place of a session.

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
        self.pool = shared[TABLE].index_select(0, torch.from_numpy(np.asarray(pool, np.int64)).to(device))

    def users(self, users: Clients) -> Tensor:
        """What is compared with item vectors, [n, d]: each user's prediction at the newest item of its window."""
        w, own = self.windows, torch.from_numpy(users)
        with torch.inference_mode():
            window = _window(Windows(w.items[users], w.real[users], w.times[users]), self.device)
            tensors = {**self.shared, **{n: v[own].to(self.device) for n, v in self.private.items()}}
            one = One(window.items, window.items, window.label, window.weight, history=window)
            return self.program.user(tensors, one, window.rows(self.shared[TABLE]), self.pool).squeeze(-2)

    def __call__(self, users: Clients, items: npt.NDArray[np.integer] | None) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            user = self.users(users)
            if items is None:
                return (user @ self.pool.T).cpu().numpy()
            wanted = torch.from_numpy(np.asarray(items, np.int64)).to(self.device)
            vectors = torch.nn.functional.embedding(wanted, self.shared[TABLE])
            return torch.matmul(vectors, user.unsqueeze(-1)).squeeze(-1).cpu().numpy()
