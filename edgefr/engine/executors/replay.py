"""Clients can draw their replay anew in every step, by scores of all items from their present tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.host_transfer import there
from edge.replay import Replay, Step
from edge.sampling import segments
from edge.steps import Ints, Steps
from edgefr.engine.work import LocalWork, StepDraws
from export.batches import One
from export.program import LocalProgram, Phase, Tensors

Tables = Mapping[str, tuple[Tensor, Tensor | None]]
Values = Callable[[Ints], dict[str, Tensor]]

AT_ONCE = 1 << 22
"""Values of item rows that are laid out at once, beside the answer."""


def scores_of(program: LocalProgram, tensors: Tensors, items: Tensor, pool: Tensor, history: One | None) -> Tensor:
    """Return a client's scores of the pool, or those of several: `items` [..., P] index the rows of tables."""
    nothing = torch.zeros(items.shape, device=items.device)
    batch = One(items, pool, nothing, nothing, history)
    past = None if history is None else program.vectors(tensors, history)
    vectors = program.vectors(tensors, batch)
    return program.score(tensors, batch, vectors, program.user(tensors, batch, past, vectors))


@dataclass(frozen=True)
class Alone:
    """This is what one client replays: the same in every step, or, with `draws`, what is drawn for each."""

    replay: Replay | None
    draws: StepDraws | None

    def at(self, work: LocalWork, tensors: Tensors, phase: Phase, number: int, history: One | None) -> Replay | None:
        if self.draws is None or self.replay is None:
            return self.replay
        pool = there(self.draws.pool, work.device)
        with torch.no_grad():
            scores = scores_of(work.program, tensors, pool, pool, history).unsqueeze(0).cpu().numpy()
        weights = self.draws.weights(np.zeros(1, np.int64), scores, Step(work.place(phase), np.array([number])))
        return replace(self.replay, weight=weights[self.draws.lists >= 0].astype(np.float32))


class Shardwise:
    """These are draws of a shard's clients in a step; clients have rows for the pairs (slot, item) of `steps`.

    A remembered item is an entry of every step, with weight 0 of its own unless the batch has it; drawn weight is
    added.
    """

    def __init__(self, work: LocalWork, draws: StepDraws, steps: Steps):
        self.work, self.draws, self.steps = work, draws, steps
        self.pool = there(draws.pool, work.device)
        self.column = np.searchsorted(draws.pool, steps.touched)
        lists = draws.lists[steps.slots]
        found = lists == steps.touched[:, None]
        self.place = there(np.where(found.any(1), found.argmax(1), -1), work.device)  # in its list
        self.label = there(draws.labels, work.device)

    def mixed(self, label: Tensor, weight: Tensor, drawn: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels and weights [N] of a step's entries with the `drawn` weights [A, N of lists] added; `rows` [N].

        Cross-entropy is linear in the label, so one example stands for both.
        """
        slot = there(self.steps.slots, rows.device)[rows]
        place = self.place[rows]
        more = torch.where(place < 0, 0.0, drawn[slot, place.clamp(min=0)])
        total = weight + more
        mean = (weight * label + more * self.label[slot, place.clamp(min=0)]) / torch.where(total > 0, total, 1.0)
        return mean.to(label), total.to(weight)

    def drawn(self, tables: Tables, values: Values, step: Step, history: One | None) -> Tensor:
        """Return the weights [A, N of lists] of the first A clients in a step.

        `tables`: broadcast and changes [pairs, w] of each table; `values(slots)`: the clients' other tensors.
        """
        active = len(step.number)
        out = np.zeros((active, self.draws.lists.shape[1]))
        slots = np.flatnonzero(self.draws.lists[:active, 0] >= 0)
        width = sum(table.shape[1] for table, _ in tables.values())
        at_once = max(1, AT_ONCE // max(1, len(self.pool) * width))
        for some in np.split(slots, np.arange(at_once, len(slots), at_once)):
            if len(some):
                scores = self._scores(tables, values, some, history)
                out[some] = self.draws.weights(some, scores, Step(step.phase, step.number[some]))
        return there(out, self.pool.device)

    def _scores(self, tables: Tables, values: Values, slots: Ints, history: One | None) -> npt.NDArray[np.floating]:
        first, last = (np.searchsorted(self.steps.slots, slots, side=side) for side in ("left", "right"))
        row, place = segments(last - first)
        pair = first[row] + place
        where = there(row * len(self.pool) + self.column[pair], self.pool.device)
        own = values(slots)
        for name, (table, change) in tables.items():
            own[name] = table[self.pool].repeat(len(slots), 1)
            if change is not None:
                own[name].index_add_(0, where, change[there(pair, change.device)])
        items = torch.arange(len(slots) * len(self.pool), device=self.pool.device).view(len(slots), -1)
        past = None if history is None else _of(history, slots)
        with torch.no_grad():
            return scores_of(self.work.program, own, items, self.pool.expand_as(items), past).cpu().numpy()


def _of(history: One, slots: Ints) -> One:
    at = there(slots, history.items.device)
    return One(history.items[at], history.catalogue[at], history.label[at], history.weight[at])
