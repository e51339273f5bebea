"""Blocks of time are a protocol (F3CRec §5.1): a stage per block, each learned from what the one before handed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from edgefr.config.validation import fault
from edgefr.data.interactions import Dataset
from edgefr.data.splits.blocks import Blocks
from edgefr.simulation.protocols.protocol import RunProtocol
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.data.prepared_data import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.stages.stage import Running, Stage


class OverBlocks(RunProtocol):
    """This cuts a base block and equal increments, each split per user."""

    name = "blocks"
    settings = Blocks
    reads = frozenset({"items"})
    own = ("continual", "evaluation.keep_blocks")
    defaults: ClassVar[Mapping[str, Any]] = {
        "evaluation": {"k": [20], "full_ranking_users": 100_000, "curve_users": 100_000}
    }
    hands_on = True
    validates_once = True

    def check(self, experiment: Experiment) -> None:
        row, evaluation = experiment.row, experiment.evaluation
        if row.own_rows:
            raise fault(f"blocks do not carry the item rows of {row.name}'s own clients on", "protocol")
        if row.ordered and experiment.strategy != "ft":
            problem = f"{row.name} sees items in what came before them, which nothing remembered has: use ft"
            raise fault(problem, "strategy")
        if row.stateless:
            problem = f"blocks hand on what clients keep, and those of {row.name} keep nothing"
            raise fault(f"{problem}: set protocol.name=leave-one-out", "protocol")
        if experiment.continual.patience < evaluation.every:
            problem = f"it counts rounds, and only every {evaluation.every}th is measured; use at least that"
            raise fault(problem, "continual", "patience")
        if not evaluation.full_ranking_users:
            raise fault("blocks are tested by full ranking; use at least 1", "evaluation", "full_ranking_users")

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        from edgefr.data.prepared_data import Prepared

        protocol = experiment.protocol
        assert isinstance(protocol, Blocks)
        how = protocol.increment_split or ("chronological" if experiment.fidelity == "released" else "random")
        protocol, dataset = protocol.model_copy(update={"increment_split": how}), protocol.restrict(dataset)
        blocks = protocol.apply(dataset, experiment.seed)
        empty = [block.name for block in blocks if not (len(block.users("valid")) and len(block.users("test")))]
        if empty:
            raise InputError(
                f"nobody in block {empty[0]} has enough items to be tested; ask for fewer protocol.increments, "
                "a smaller protocol.base or more data"
            )
        return Prepared(dataset, {}, protocol.describe(dataset), blocks=blocks)

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        from edgefr.simulation.stages.blocks import over_blocks

        return over_blocks(experiment, prepared)

    def unserved(self, experiment: Experiment) -> str | None:
        how = experiment.over_blocks
        if how.reset_private:
            return "devices keep their private tensors from block to block: use continual.reset_private=false"
        if how.labels == "anew":
            return "who is away at a block's end makes no predictions: use continual.labels=kept"
        if how.item_rate == "present":
            return "a bundle's learning rates count the whole catalogue: use continual.item_rate=catalogue"
        return None

    def released(self, experiment: Experiment) -> bool:
        assert isinstance(experiment.protocol, Blocks)
        return experiment.protocol.increment_split is None or bool(experiment.row.between_blocks)

    def results(self, sim: Running) -> dict[str, Any]:
        from edgefr.simulation.summary.blocks import summarise_blocks

        return summarise_blocks(sim)
