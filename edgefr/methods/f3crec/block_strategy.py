"""This says what a strategy against forgetting does at a block's beginning and end.

Owns: the program, replay and tensors of a strategy in a block, and what clients remember. Does not own: which round a
block hands on, when blocks begin and end (`edgefr.simulation.stages.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edge.sampling import Sampler
from edgefr.data.splits.blocks import Block
from edgefr.engine.federation import Federation
from edgefr.engine.model import Model
from edgefr.engine.work import MEMORY
from edgefr.experiment.continual import ContinualSettings, Strategy
from edgefr.methods.f3crec import memory as memories
from edgefr.methods.f3crec.memory import ReplayMemory, Scores
from edgefr.methods.regularised import Anchored, anchors
from export.program import LocalProgram
from privacy.errors import InputError


@dataclass(frozen=True)
class BlockEnd:
    """A block ends with its best round's `model`, the scores of any model in it, and the draws of its examples."""

    block: Block
    model: Model
    federation: Federation
    sampler: Sampler
    scores: Callable[[Model], Scores]

    @property
    def users(self) -> np.ndarray:
        return self.block.users("train")

    @property
    def pool(self) -> np.ndarray:
        """Return the items that exist, int64 ascending."""
        return self.block.pool.astype(np.int64)


class Keeping:
    """Fine-tuning keeps nothing. `lists`: lists of `continual.list_size` items that a client remembers."""

    lists = 0

    def __init__(self, row: Strategy, settings: ContinualSettings, seed: int):
        self.row, self.settings, self.seed = row, settings, seed

    def begin(self, federation: Federation, plain: LocalProgram, pool: np.ndarray, items: int) -> None:
        """Set program and replay memory of a block, also where a run goes on within it."""
        federation.program = plain
        if self.lists:
            steps = self.settings.redraw == "step" and "redraw" in self.row.reads
            if steps and not any(spec.kind == "rows" for spec in plain.specs.values()):
                raise InputError(
                    f"a replay is drawn for every step by a client's item table, and {plain.name} has none: "
                    "continual.redraw=round"
                )
            federation.memory = ReplayMemory(self.settings, self.row.replays, pool, items, self.seed, steps)

    def take_over(self, federation: Federation, before: Model, block: Block) -> None:
        """Make the strategy's own tensors from the model of the block before, once per block."""

    def end(self, ended: BlockEnd) -> None:
        """Let the clients of a block remember; the others keep what they have."""
        if self.lists:
            private = ended.federation.private
            if not any(name.startswith(MEMORY) for name in private):
                private |= memories.empty(len(ended.block.train), self.settings.list_size * self.lists)
            self.remember(ended, {name: value for name, value in private.items() if name.startswith(MEMORY)})

    def remember(self, ended: BlockEnd, memory: dict[str, Tensor]) -> None:
        """Fill the memory of the block's clients, in place."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any], device: torch.device) -> None: ...


class Pull(Keeping):
    """Reg is a pull: parameters are pulled towards those of the previous block."""

    def begin(self, federation: Federation, plain: LocalProgram, pool: np.ndarray, items: int) -> None:
        federation.program = Anchored(plain, self.settings.reg_weight)

    def take_over(self, federation: Federation, before: Model, block: Block) -> None:
        existing = {name: known for name, (_, known) in federation.previous.items()}
        known = torch.from_numpy(block.known)
        tables, own = anchors(federation.shared | before.shared, before.private, known, existing)
        federation.shared, federation.private = federation.shared | tables, federation.private | own


class BestItems(Keeping):
    """Clients remember the items that their own model ranks best (F3CRec Eq. 1, and distillation of the whole list)."""

    lists = 1

    def remember(self, ended: BlockEnd, memory: dict[str, Tensor]) -> None:
        scores = ended.scores(ended.model)
        memories.remember_best(memory, ended.users, scores, ended.pool, 0, self.settings.list_size)
        if self.settings.labels == "anew":
            memories.relabel(memory, np.setdiff1d(memories.holders(memory), ended.users), scores, ended.pool)


class Errors(Keeping):
    """RLP2 has clients remember the training examples that their model predicts worst (Zhu et al. 2023)."""

    lists = 1

    def remember(self, ended: BlockEnd, memory: dict[str, Tensor]) -> None:
        scores, size = ended.scores(ended.model), self.settings.list_size
        memories.remember_errors(memory, ended.users, scores, ended.pool, ended.sampler, ended.block.number, size)


class Proxies(Keeping):
    """SPP remembers the best items of a slow average of models (stability) and of the newest model (plasticity).

    `proxy` is the average over blocks, of the server's and of each client's own tensors (Lee et al. 2024).
    """

    lists = 2

    def __init__(self, row: Strategy, settings: ContinualSettings, seed: int):
        super().__init__(row, settings, seed)
        self.proxy: dict[str, Tensor] = {}

    def remember(self, ended: BlockEnd, memory: dict[str, Tensor]) -> None:
        size = self.settings.list_size
        self._average(ended)
        stable = ended.scores(Model.of(self.proxy, ended.federation.program))
        memories.remember_best(memory, ended.users, stable, ended.pool, 0, size)
        memories.remember_best(memory, ended.users, ended.scores(ended.model), ended.pool, size, size)
        memories.without_repeats(memory, ended.users)

    def _average(self, ended: BlockEnd) -> None:
        """Move the slow average by the block's model; newcomers and rows of new items have none yet."""
        rate, block = self.settings.proxy_rate, ended.block
        new = {name: value.clone() for name, value in ended.model.flat().items()}
        for name, value in self.proxy.items():
            mixed = rate * value + (1 - rate) * new[name]
            place, _, tensor = name.partition(".")
            if place == "private":
                active = torch.zeros(len(value), dtype=torch.bool)
                active[torch.from_numpy(ended.users)] = True
                first = torch.from_numpy(~block.known)
                shape = (-1,) + (1,) * (value.ndim - 1)
                mixed = torch.where(first.view(shape), new[name], torch.where(active.view(shape), mixed, value))
            elif tensor in ended.federation.previous:
                known = ended.federation.previous[tensor][1]
                mixed = torch.where(known.unsqueeze(1), mixed, new[name])
            new[name] = mixed
        self.proxy = new

    def state(self) -> dict[str, Any]:
        return {"proxy": self.proxy}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        # a base block is learned once for all strategies, by the one that keeps nothing
        tensors = {name: torch.as_tensor(value) for name, value in state.get("proxy", {}).items()}
        self.proxy = {n: v.to(device) if n.startswith("shared.") else v for n, v in tensors.items()}


def keeper(row: Strategy) -> type[Keeping]:
    own: type[Keeping] | None = row.keeping() or (Pull if row.anchored else None)
    return own or {"nothing": Keeping, "best": BestItems, "errors": Errors, "proxies": Proxies}[row.remembers]


def keeping(row: Strategy, settings: ContinualSettings, seed: int) -> Keeping:
    return keeper(row)(row, settings, seed)
