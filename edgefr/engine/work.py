"""This is what an executor is given and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.ragged import Ragged
from edge.replay import Replay, Step
from edge.round_init import seed_of
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from export.program import LocalProgram, Phase, Tensors
from privacy.errors import InputError

Clients = npt.NDArray[np.int64]


PIECE = 4096  # rows whose norms are taken at once
MEMORY = "memory."
"""Private tensors whose names start so belong to the clients' memory; the program does not see them."""


class Memory(Protocol):
    """A memory decides what clients replay, from what they remember: private tensors `memory.*`, one row per client."""

    def replay(
        self, program: LocalProgram, shared: Tensors, private: Tensors, clients: Clients, number: int
    ) -> Replay | None:
        """Return a shard's replay in round `number`; `private` [C, ...] includes its memory.

        Where every step draws anew: all that clients may replay, without weight.
        """
        ...

    def draws(self, private: Tensors, clients: Clients, number: int) -> StepDraws | None:
        """Return the draws of single steps, None where a round has one for all of its steps."""
        ...


class StepDraws(Protocol):
    """These are draws of clients' replay in single steps, by scores of their present tensors.

    `lists` [C, N]: all items they may replay (-1: none), `labels` [C, N] their predictions; `pool`: items ranked,
    ascending.
    """

    @property
    def lists(self) -> npt.NDArray[np.int32]: ...

    @property
    def labels(self) -> npt.NDArray[np.float32]: ...

    @property
    def pool(self) -> npt.NDArray[np.int64]: ...

    def weights(
        self, slots: npt.NDArray[np.int64], scores: npt.NDArray[np.floating], step: Step
    ) -> npt.NDArray[np.float64]:
        """Return the weights [S, N] of what these client slots replay in a step, by their `scores` [S, pool]."""
        ...


class OwnTable(Protocol):
    """This is a `rows` tensor that differs from client to client: `edgefr.engine.tables`."""

    def rows(self, clients: Clients, items: npt.NDArray[np.int64]) -> Tensor: ...


@dataclass(frozen=True)
class LocalWork:
    """This is the work of one shard: clients, phases of a program, data, round.

    `context`: every client's own past positives for programs that need a history. `round` keys the draws. `memory` adds
    replay to every batch of "round" phases. `tables` are the program's private rows tensors, by name.
    """

    program: LocalProgram
    phases: Sequence[Phase]
    sampler: Sampler | SessionSampler
    context: Ragged
    round: int
    device: torch.device
    memory: Memory | None = None
    tables: Mapping[str, OwnTable] = field(default_factory=dict)

    def replay(self, shared: Tensors, private: Tensors, clients: Clients) -> Replay | None:
        """Return what these clients replay this round, or None."""
        if self.memory is None:
            return None
        if any(phase.which.pairs for phase in self.phases):
            raise InputError(f"{self.program.name} compares items in pairs, and a replayed item has none: strategy=ft")
        if any(phase.which.part == "whole" for phase in self.phases):
            raise InputError(f"{self.program.name} solves for what a user had, and has no place for more: strategy=ft")
        return self.memory.replay(self.program, shared, private, clients, self.round)

    def draws(self, private: Tensors, clients: Clients) -> StepDraws | None:
        return None if self.memory is None else self.memory.draws(private, clients, self.round)

    def place(self, phase: Phase) -> int:
        """Return a phase's place in the work, which keys what is drawn in its steps."""
        return [each.name for each in self.phases].index(phase.name)

    def begun(self, private: Tensors, clients: Clients) -> Tensors:
        """Return the private tensors [C, ...] that these clients begin with: those made anew in every round are new."""
        names = [n for n, spec in self.program.specs.items() if spec.reset == "round" and n in private]
        if not names:
            return private
        made = self.program.init_private(seed_of(self.sampler.seed, self.round), torch.from_numpy(clients))
        return {**private, **{name: made[name].to(private[name]) for name in names}}


@dataclass(frozen=True)
class RowUpdates:
    """These are changes of rows: `rows` [R] items, `client` [R] slots, `values` [R, w]."""

    rows: Tensor
    client: Tensor
    values: Tensor


@dataclass(frozen=True)
class Updates:
    """This is what a shard of clients learned, one slot per client.

    `dense`: update (delta against the broadcast) of each trained shared tensor, [C, *shape]. `rows`: sparse updates of
    `rows` tensors. `private`: new private tensors, [C, *shape]. `message` [C, P]: prototypes beside updates (None:
    none). `tables`: new private rows. `left` [C], by table: the share that rows outside `rows` have left of their way
    to where the phase pulls them (`Phase.pulls`).
    """

    dense: dict[str, Tensor]
    rows: dict[str, RowUpdates]
    private: dict[str, Tensor]
    message: Tensor | None = None
    tables: dict[str, RowUpdates] = field(default_factory=dict)
    left: dict[str, Tensor] = field(default_factory=dict)

    def norms(self, clients: int, order: int) -> Tensor:
        """Return the joint L1 or L2 norm of each client's whole update, float64 [C]; not finite if any value is not.

        Sums are float64: float32 norms of wide rows are short by more than a clip allows.
        """
        power = [
            torch.linalg.vector_norm(v.flatten(1), order, dim=1, dtype=torch.float64).pow(order)
            for v in self.dense.values()
        ]
        for update in self.rows.values():
            pieces = update.values.split(PIECE)  # that a cache holds: several times faster than all at once
            per_row = torch.cat(
                [(each.double().square() if order == 2 else each.double().abs()).sum(1) for each in pieces]
            )
            total = torch.zeros(clients, dtype=torch.float64, device=per_row.device)
            power.append(total.index_put_((update.client,), per_row, accumulate=True))
        total = torch.stack(power).sum(0) if power else torch.zeros(clients, dtype=torch.float64)
        return total if order == 1 else total.sqrt()


Executor = Callable[[LocalWork, Tensors, Tensors, Clients], Updates]
"""Runs a shard: (work, whole shared tensors, the shard's private tensors [C, ...], client numbers [C]) -> updates."""


def without_memory(private: Tensors) -> dict[str, Tensor]:
    return {name: value for name, value in private.items() if not name.startswith(MEMORY)}


def check_sets(work: LocalWork) -> None:
    """Raise `InputError` for phases that ask of clients with sets of items what is done over sessions alone."""
    if any(phase.clip is not None for phase in work.phases):
        raise InputError(f"{work.program.name} cuts gradients, which is for programs that learn from sessions")


def trained(program: LocalProgram, phases: Sequence[Phase], place: str, kind: str | None = None) -> list[str]:
    """Name the tensors of one place ("shared" or "private") that these phases change, in the program's order.

    `kind`: "dense" or "rows" alone.
    """
    changed = {name for phase in phases for name in phase.trains}
    found = [n for n, spec in program.specs.items() if spec.place == place and n in changed]
    return [n for n in found if kind in (None, program.specs[n].kind)]
