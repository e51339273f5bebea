"""What clients remember of earlier blocks, and which of it they replay in a round.

A memory is private state: `memory.items` int32 [clients, N] (-1: empty) and `memory.labels` float32 [clients, N], the
predictions (or labels) that the items had. Owns: filling it at the end of a block and drawing from it. Does not own:
how replayed examples are trained on (the engine adds them to every batch).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.data.interactions import Ragged
from edgefr.engine.sampling import Sampler
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import MEMORY, Clients, Replay, without_memory
from edgefr.methods.f3crec.replay import memory_sizes, preference_shift, ranks, without_replacement
from edgefr.methods.f3crec.settings import ContinualSettings
from edgefr.methods.program import LocalProgram, Tensors
from privacy import keyed

ITEMS, LABELS = MEMORY + "items", MEMORY + "labels"
Picks = Literal["all", "adaptive", "discrepancy"]
Scores = Callable[[Clients], npt.NDArray[np.float32]]
"""Scores of clients' own models on every item that exists: [C] -> [C, pool]."""

_AT_ONCE = 1024


def empty(clients: int, width: int) -> dict[str, Tensor]:
    """The memory of clients that have nothing to remember."""
    return {ITEMS: torch.full((clients, width), -1, dtype=torch.int32), LABELS: torch.zeros(clients, width)}


@dataclass(frozen=True)
class ReplayMemory:
    """Draws the replay of a round from the clients' memories.

    `picks`: "all" of the list; "adaptive": as many as the client's taste is steady (F3CRec Eq. 2-4); "discrepancy":
    `list_size` of them, the likelier the further they have fallen (SPP). `pool`: the items that exist, ascending.
    """

    settings: ContinualSettings
    picks: Picks
    pool: npt.NDArray[np.int64]
    catalogue: int
    seed: int

    def replay(
        self, program: LocalProgram, shared: Tensors, private: Tensors, clients: Clients, number: int
    ) -> Replay | None:
        """See `edgefr.engine.work.Memory`. None when nobody remembers anything."""
        lists = private[ITEMS].numpy()
        holders = np.flatnonzero(lists[:, 0] >= 0)
        if not len(holders):
            return None
        index = torch.from_numpy(holders)
        own = {name: value[index] for name, value in private.items()}
        chosen = np.zeros(lists.shape, bool)
        chosen[holders] = self._chosen(program, shared, own, clients[holders], number)
        counts = chosen.sum(axis=1)
        items = Ragged(lists[chosen], np.concatenate([[0], np.cumsum(counts)]))
        size = self.settings.kd_weight / (counts[items.rows] if self.settings.kd_reduction == "mean" else 1.0)
        weight = np.broadcast_to(np.asarray(size, np.float32), items.values.shape)  # F3CRec Eq. 5, 6
        return Replay(items, private[LABELS].numpy()[chosen], np.ascontiguousarray(weight))

    def _chosen(
        self, program: LocalProgram, shared: Tensors, own: Tensors, clients: Clients, number: int
    ) -> npt.NDArray[np.bool_]:
        lists = own[ITEMS].numpy()
        if self.picks == "all":
            return lists >= 0
        now = self.ranks(program, shared, own)
        keys = keyed.fold(keyed.key(self.seed, "replay", number), clients)
        sizes = (lists >= 0).sum(axis=1)
        if self.picks == "adaptive":
            return without_replacement(
                keys, lists, memory_sizes(preference_shift(now), sizes, self.settings.shift_scale)
            )
        then = np.arange(now.shape[1]) % self.settings.list_size + 1
        fallen = np.maximum(now - then, 0)  # places lost since a proxy ranked it
        return without_replacement(keys, lists, np.minimum(sizes, self.settings.list_size), np.log1p(fallen) + 1e-6)

    def ranks(self, program: LocalProgram, shared: Tensors, own: Tensors) -> npt.NDArray[np.int64]:
        """Today's ranks of the remembered items among all that exist, with the broadcast: [C, N]."""
        lists = own[ITEMS].numpy()
        places = np.where(lists >= 0, np.searchsorted(self.pool, np.maximum(lists, 0)), -1)
        device = next(iter(shared.values())).device
        history = Ragged.empty(len(lists))
        scorer = ModelScorer(program, shared, without_memory(own), history, self.pool, self.catalogue, device)
        return ranks(scorer(np.arange(len(lists)), None), places)


def remember_best(
    state: dict[str, Tensor], clients: Clients, scores: Scores, pool: npt.NDArray[np.int64], at: int, size: int
) -> None:
    """Clients remember their `size` best items and the predictions for them (Eq. 1), from column `at` on; in place."""
    for first in range(0, len(clients), _AT_ONCE):
        some = clients[first : first + _AT_ONCE]
        values = torch.from_numpy(scores(some))
        top, place = values.topk(min(size, values.shape[1]), dim=1)
        _put(state, some, at, torch.from_numpy(pool)[place], torch.sigmoid(top))


def remember_errors(
    state: dict[str, Tensor],
    clients: Clients,
    scores: Scores,
    pool: npt.NDArray[np.int64],
    sampler: Sampler,
    number: int,
    size: int,
) -> None:
    """Clients remember the training examples they predict worst, with labels (Zhu et al. 2023); in place."""
    for first in range(0, len(clients), _AT_ONCE):
        some = clients[first : first + _AT_ONCE]
        drawn = sampler.epoch(some, "errors", number)
        row = np.repeat(np.arange(len(some)), drawn.counts)
        logits = scores(some)[row, np.searchsorted(pool, drawn.items)]
        error = np.abs(drawn.label - 1 / (1 + np.exp(-logits.astype(np.float64))))
        table = np.zeros((len(some), int(pool[-1]) + 1))
        label = np.zeros(table.shape, np.float32)
        table[row, drawn.items], label[row, drawn.items] = error + 1e-9, drawn.label  # an item drawn twice is one
        worst, items = torch.from_numpy(table).topk(min(size, table.shape[1]), dim=1)
        items = torch.where(worst > 0, items, -1)
        _put(state, some, 0, items, torch.from_numpy(label).gather(1, items.clamp(min=0)))


def without_repeats(state: dict[str, Tensor], clients: Clients) -> None:
    """Empty the later places of items that the clients remember twice; in place."""
    index = torch.from_numpy(clients)
    lists = state[ITEMS][index]
    ascending, place = lists.sort(dim=1, stable=True)  # of equal items the later place comes later
    again = torch.zeros_like(lists, dtype=torch.bool)
    again[:, 1:] = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    state[ITEMS][index] = torch.where(torch.zeros_like(again).scatter(1, place, again), -1, lists)


def _put(state: dict[str, Tensor], clients: Clients, at: int, items: Tensor, labels: Tensor) -> None:
    """New lists in place of the clients' old ones."""
    index, end = torch.from_numpy(clients), at + items.shape[1]
    state[ITEMS][index, at:] = -1
    state[ITEMS][index, at:end] = items.to(torch.int32)
    state[LABELS][index, at:end] = labels.float()
