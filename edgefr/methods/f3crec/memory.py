"""Clients remember this of earlier blocks, and replay some of it in a round.

A memory is private state: `memory.items` int32 [clients, N] (-1: empty) and `memory.labels` float32 [clients, N], the
predictions (or labels) that the items had. Owns: filling it at the end of a block and drawing from it. Does not own:
how replayed examples are trained on (the engine adds them to every batch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.ragged import Ragged
from edge.replay import PICKS, Replay, ReplayRule, Step, best, ranks
from edge.sampling import Sampler
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import MEMORY, Clients, StepDraws, without_memory
from edgefr.experiment.continual import ContinualSettings
from export.program import LocalProgram, Tensors

ITEMS, LABELS = MEMORY + "items", MEMORY + "labels"
Scores = Callable[[Clients], npt.NDArray[np.float32]]
"""Scores of clients' own models on every item that exists: [C] -> [C, pool]."""

BCE_EPSILON = 1e-12
"""What torch divides the gradient of a binary cross-entropy by at least."""

_AT_ONCE = 1024


def empty(clients: int, width: int) -> dict[str, Tensor]:
    return {ITEMS: torch.full((clients, width), -1, dtype=torch.int32), LABELS: torch.zeros(clients, width)}


@dataclass(frozen=True)
class ReplayMemory:
    """Draws a round's replay from the clients' memories; `pool`: existing items. `each_step`: one draw per step."""

    settings: ContinualSettings
    picks: str
    pool: npt.NDArray[np.int64]
    catalogue: int
    seed: int
    each_step: bool = False

    @property
    def rule(self) -> ReplayRule:
        """Return the draw as a function on arrays, the one that a device runs."""
        return rule_of(self.settings, self.picks, self.seed)

    def replay(
        self, program: LocalProgram, shared: Tensors, private: Tensors, clients: Clients, number: int
    ) -> Replay | None:
        lists, labels, who = private[ITEMS].numpy(), private[LABELS].numpy(), holders(private)
        if not len(who):
            return None
        if self.each_step:
            return replace(self.rule, weight=0.0).replay(lists, labels, lists >= 0)
        own = {name: value[torch.from_numpy(who)] for name, value in private.items()}
        now = None if PICKS[self.picks].draw is None else self.ranks(program, shared, own)
        chosen = np.zeros(lists.shape, bool)
        chosen[who] = self.rule.chosen(lists[who], now, clients[who], number)
        return self.rule.replay(lists, labels, chosen)

    def draws(self, private: Tensors, clients: Clients, number: int) -> StepDraws | None:
        lists = private[ITEMS].numpy()
        if not self.each_step or not (lists[:, 0] >= 0).any():
            return None
        return InSteps(self.rule, lists, private[LABELS].numpy(), self.pool, clients, number)

    def ranks(self, program: LocalProgram, shared: Tensors, own: Tensors) -> npt.NDArray[np.int64]:
        """Today's ranks of the remembered items among all that exist, with the broadcast: [C, N]."""
        lists = own[ITEMS].numpy()
        device = next(iter(shared.values())).device
        history = Ragged.empty(len(lists))
        scorer = ModelScorer(program, shared, without_memory(own), history, self.pool, self.catalogue, device)
        return ranks(scorer(np.arange(len(lists)), None), _places(lists, self.pool))


def _places(lists: npt.NDArray[np.int32], pool: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where in the pool remembered items are, -1 where a list is empty."""
    return np.where(lists >= 0, np.searchsorted(pool, np.maximum(lists, 0)), -1)


@dataclass(frozen=True)
class InSteps:
    """These are the draws of single steps of a round, as in the released code. See `edgefr.engine.work.StepDraws`."""

    rule: ReplayRule
    lists: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float32]
    pool: npt.NDArray[np.int64]
    clients: Clients
    number: int

    def weights(
        self, slots: npt.NDArray[np.int64], scores: npt.NDArray[np.floating], step: Step
    ) -> npt.NDArray[np.float64]:
        lists = self.lists[slots]
        places = _places(lists, self.pool)
        chosen = self.rule.chosen(lists, ranks(scores, places), self.clients[slots], self.number, step)
        now = np.take_along_axis(scores, np.maximum(places, 0), axis=1)
        return self.rule.weights(chosen) * unsaturated(now)


def unsaturated(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return the share of its gradient that torch.nn.BCELoss leaves the cross-entropy of a sigmoid.

    It is 1 unless the prediction p rounds to 0 or 1: p (1 - p) is divided by itself or by 1e-12, whichever is larger.
    In float32 the gradient vanishes from a score of 17 on, which the released code's rates for items do reach.

    >>> unsaturated(np.array([0.0, 16.0, 18.0, -30.0], np.float32)).round(2).tolist()
    [1.0, 1.0, 0.0, 0.09000000357627869]
    """
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-scores))
    slope = p * (1 - p)
    return slope / np.maximum(slope, BCE_EPSILON)


def rule_of(settings: ContinualSettings, picks: str, seed: int) -> ReplayRule:
    """Return the rule by which an experiment's clients replay."""
    return ReplayRule(picks, settings.list_size, settings.shift_scale, settings.kd_weight, settings.kd_reduction, seed)


def holders(state: Tensors) -> Clients:
    """Return the clients that remember anything, ascending."""
    return np.flatnonzero(state[ITEMS][:, 0].numpy() >= 0)


def _blocks(clients: Clients, scores: Scores) -> Iterator[tuple[Clients, npt.NDArray[np.float32]]]:
    """Yield some clients after others with their scores, so that no more are in memory at once."""
    for first in range(0, len(clients), _AT_ONCE):
        some = clients[first : first + _AT_ONCE]
        yield some, scores(some)


def remember_best(
    state: dict[str, Tensor], clients: Clients, scores: Scores, pool: npt.NDArray[np.int64], at: int, size: int
) -> None:
    """Store each client's `size` best items with predictions (Eq. 1), from column `at` on; in place."""
    for some, found in _blocks(clients, scores):
        columns, labels = best(found, size)
        _put(state, some, at, torch.from_numpy(pool[columns]), torch.from_numpy(labels))


def relabel(state: dict[str, Tensor], clients: Clients, scores: Scores, pool: npt.NDArray[np.int64]) -> None:
    """Replace remembered labels by today's predictions, in place; lists stay (the released code's `target_mat`)."""
    for some, found in _blocks(clients, scores):
        index = torch.from_numpy(some)
        lists = state[ITEMS][index].numpy()
        labels = _sigmoid(np.take_along_axis(found, np.searchsorted(pool, np.maximum(lists, 0)), axis=1))
        state[LABELS][index] = torch.from_numpy(np.where(lists >= 0, labels, 0.0)).to(state[LABELS])


def remember_errors(
    state: dict[str, Tensor],
    clients: Clients,
    scores: Scores,
    pool: npt.NDArray[np.int64],
    sampler: Sampler,
    number: int,
    size: int,
) -> None:
    """Store the training examples that each client predicts worst, with labels (Zhu et al. 2023); in place."""
    for some, found in _blocks(clients, scores):
        drawn = sampler.epoch(some, "errors", number)
        row = np.repeat(np.arange(len(some)), drawn.counts)
        error = np.abs(drawn.label - _sigmoid(found[row, np.searchsorted(pool, drawn.items)]))
        table = np.zeros((len(some), int(pool[-1]) + 1))
        label = np.zeros(table.shape, np.float32)
        table[row, drawn.items], label[row, drawn.items] = error + 1e-9, drawn.label  # an item drawn twice is one
        worst, items = torch.from_numpy(table).topk(min(size, table.shape[1]), dim=1)
        items = torch.where(worst > 0, items, -1)
        _put(state, some, 0, items, torch.from_numpy(label).gather(1, items.clamp(min=0)))


def _sigmoid(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))))


def without_repeats(state: dict[str, Tensor], clients: Clients) -> None:
    """Empty the later places of items that the clients remember twice; in place."""
    index = torch.from_numpy(clients)
    lists = state[ITEMS][index]
    ascending, place = lists.sort(dim=1, stable=True)  # of equal items the later place comes later
    again = torch.zeros_like(lists, dtype=torch.bool)
    again[:, 1:] = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    state[ITEMS][index] = torch.where(torch.zeros_like(again).scatter(1, place, again), -1, lists)


def _put(state: dict[str, Tensor], clients: Clients, at: int, items: Tensor, labels: Tensor) -> None:
    index, end = torch.from_numpy(clients), at + items.shape[1]
    state[ITEMS][index, at:] = -1
    state[ITEMS][index, at:end] = items.to(torch.int32)
    state[LABELS][index, at:end] = labels.to(state[LABELS])
