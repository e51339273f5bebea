"""Blocks: a stage per block, each learned until validation stops improving (F3CRec Alg. 2), with a carry between them.

A block's best round is tested on every block so far. What clients remember of a block is the strategy's
(`methods.f3crec.keeping`); which round a block hands on, and what starts anew, is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.ragged import Ragged, joined, without
from edge.replay import preference_shift
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.blocks import Block
from edgefr.data.splits.split import Which
from edgefr.engine.federation import Federation
from edgefr.engine.model import Model
from edgefr.experiment.experiment import Experiment
from edgefr.methods.f3crec.block_strategy import BlockEnd
from edgefr.methods.f3crec.memory import ITEMS, ReplayMemory
from edgefr.metrics.settings import CEILINGS, UNLEARNED
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ceilings import ceilings
from edgefr.simulation.evaluation.measure import MeasurementPlace
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.stages.leave_one_out import TEXTS, text_references, untrained
from edgefr.simulation.stages.stage import Stage
from export.program import Tensors
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running


def over_blocks(experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
    """Return a stage per block, in their order.

    The rounds of block t are numbered from t times the rounds of a block.
    """
    rounds, patience = experiment.rounds, experiment.continual.patience
    return tuple(BlockStage(block, rounds, at * rounds, patience) for at, block in enumerate(prepared.blocks))


def previous_of(
    federation: Federation, shared: Tensors, pool: npt.NDArray[np.int64]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what a rule that looks back looks at in a block: tables as the block before left them, and their rows.

    `pool`: the items that there were in that block.
    """
    tables = [name for name, spec in federation.program.specs.items() if spec.kind == "rows" and name in shared]
    found = {}
    for name in tables:
        known = torch.zeros(len(shared[name]), dtype=torch.bool, device=federation.device)
        known[torch.from_numpy(pool).to(federation.device)] = True
        if federation.plan.guarantees:  # which rows nobody has moved yet is what the noise on all rows hides
            known[:] = True
        found[name] = (shared[name], known)
    return found


@dataclass(frozen=True)
class BlockStage(Stage):
    """This stage is one block, from what the block before handed on to its tests and to what its clients remember."""

    task: Block

    keeps_best = True
    compared = (UNLEARNED, "popularity", "popularity, all blocks", "chance", *TEXTS, *CEILINGS)

    @property
    def label(self) -> str:  # type: ignore[override]
        return f"block {self.task.name}"

    @cached_property
    def past(self) -> Ragged:
        """Everything that the users have had so far to train on."""
        return joined(self.task.past, self.task.train)

    def validate(self, run: Running, model: Model) -> dict[str, float]:
        asked = MeasurementPlace(run.stages[0], self.task.name, run.position.round)
        return run.measured.validation(asked, self.task, self._scorer(run, model))

    def unlearned(self, run: Running, model: Model) -> None:
        self._test(run, UNLEARNED, lambda on: self._scorer(run, model, on), (self.task,))

    def after_round(self, run: Running) -> None:
        """Save the preference shifts (F3CRec Eq. 2) of this block's clients after its first round, if that is asked.

        NaN stands for a client that remembers nothing.
        """
        f, asked = run.federation, run.experiment.evaluation.keep_blocks and run.keeping.row.remembers == "best"
        if not (asked and run.position.round == 1 and isinstance(f.memory, ReplayMemory)):
            return
        users = self.task.users("train")
        users = users[(f.private[ITEMS][torch.from_numpy(users), 0] >= 0).numpy()]
        own = {name: value[torch.from_numpy(users)] for name, value in f.private.items()}
        shifts = torch.full((len(run.prepared.dataset.users),), torch.nan)
        ranks = f.memory.ranks(f.program, f.shared, own)
        shifts[torch.from_numpy(users)] = torch.from_numpy(preference_shift(ranks).astype(np.float32))
        run.saved[f"block{self.task.number}.shift"] = shifts

    # --- from block to block --------------------------------------------------------------------------------------

    def begin(self, run: Running) -> None:
        """Make program, replay and server rule ready (Alg. 2, 4-8), and take over what the block before hands on."""
        f = run.federation
        present = run.experiment.over_blocks.item_rate == "present"
        plain = run.plain_program(len(self.task.pool) if present else None)
        if self.task.number == 0:
            f.program = plain
            return
        run.keeping.begin(f, plain, self.task.pool.astype(np.int64), len(run.prepared.dataset.catalogue))
        if not run.position.begun:
            assert run.best is not None
            self._carry(run, run.best)
            run.best = None

    def _carry(self, run: Running, best: Model) -> None:
        """Take over the last block's model. New items and new users start from their initial values."""
        f, e, plain = run.federation, run.experiment, run.plain_program()
        f.previous = previous_of(f, best.shared, run.prepared.blocks[self.task.number - 1].pool.astype(np.int64))
        if {"best": True, "last": False}[e.over_blocks.carry or ""]:
            f.shared = {name: value.clone() for name, value in best.shared.items()}
            f.private.update({name: value.clone() for name, value in best.private.items()})
        first = plain.init_shared(e.seed)
        for name, (_, old) in f.previous.items():  # rows of new items were moved by nobody
            f.shared[name] = torch.where(old.unsqueeze(1), f.shared[name], first[name].to(f.device))
        if e.over_blocks.reset_private:
            here = torch.from_numpy(self.task.users("train"))  # whoever is away keeps what it has
            for name, value in plain.init_private(e.seed, here).items():
                f.private[name] = f.private[name].index_copy(0, here, value)
        run.keeping.take_over(f, best, self.task)

    def end(self, run: Running, model: Model, progress: Progress | None) -> Model:
        """Test the best round on every block so far, and let clients remember."""
        number, blocks = self.task.number, run.prepared.blocks
        together = model
        self._test(run, run.stages[0], lambda on: self._scorer(run, together, on), blocks[: number + 1])
        if len(run.stages) > 1:
            model = run.personal(self.task, model, run.experiment.rounds * len(blocks) + 1 + number)
            self._test(run, run.stages[1], lambda on: self._scorer(run, model, on), blocks[: number + 1])
        for name, score in self.references(run, "test").items():
            self._test(run, name, lambda on, score=score: score, (self.task,))  # type: ignore[misc]
        if run.experiment.evaluation.keep_blocks:
            run.saved |= {f"block{number}.{name}": value.clone() for name, value in together.flat().items()}
        if number < len(blocks) - 1:
            draws = run.sampler(self.task)
            run.keeping.end(BlockEnd(self.task, together, run.federation, draws, lambda m: self._all_scores(run, m)))
        return model

    def references(self, run: Running, which: Which) -> dict[str, Scorer]:
        """Return popularity in the block's training items, in all so far, and chance; texts; and central ceilings."""
        block, seed = self.task, run.experiment.seed
        out = {
            "popularity": references.popularity_of(block.train, block.pool),
            "popularity, all blocks": references.popularity_of(self.past, block.pool),
            "chance": references.random(seed, block),
        }
        out |= text_references(block, run.prepared, clock=False)
        return {**untrained(run, block, self.past), **out, **ceilings(block, self.past, self.past)}

    def statistics(self) -> dict[str, Any]:
        return self.task.statistics()

    def _test(self, run: Running, name: str, score: Callable[[Block], Scorer], blocks: tuple[Block, ...]) -> None:
        for on in blocks:
            run.measured.lists(MeasurementPlace(name, self.task.name), self.task, on, score(on))

    def _scorer(self, run: Running, model: Model, on: Block | None = None) -> Scorer:
        """Return the model's scores for users who have had everything so far, but for what block `on` asks about."""
        return run.scorer(model, self.task, self.past if on is None else self.known(on))

    def known(self, on: Block) -> Ragged:
        """Return what a model may read of its users when it is asked for what block `on` holds out.

        An earlier block's held-out items are in the past of a later one: a model that reads it would be told them.
        """
        return self.past if on.number == self.task.number else without(self.past, joined(on.valid, on.test))

    def _all_scores(self, run: Running, model: Model) -> Any:
        score = self._scorer(run, model)
        return lambda users: score(users, None)

    def context(self, number: int) -> Ragged:
        return self.past
