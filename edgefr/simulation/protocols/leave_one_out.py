"""Leave-one-out is a protocol, within a domain and across: rounds over one split, then local training and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.experiment.experiment import Experiment
from edgefr.simulation.protocols.protocol import RunProtocol

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Stage


def over_splits(experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
    """Return rounds over the split that is learned from; then local training and tests on each split in its turn."""
    from edgefr.simulation.stages.leave_one_out import Local, Rounds

    if experiment.row.central is not None:
        from edgefr.simulation.stages.central import over_split

        return over_split(experiment, prepared)
    splits = list(prepared.splits.values())
    first = prepared.train_split
    local = (
        Local(split, 0, experiment.rounds, number=number, splits=len(splits), learned_on=first.name)
        for number, split in enumerate(splits)
    )
    return (Rounds(first, experiment.rounds, settings=experiment.evaluation), *local)


IN_ORDER = "what a user had last: train's newest items to validate, with the validation item to test"
"""What is known of a user whose items are read in their order, when a held-out item is asked for."""


class ByLeavingOneOut(RunProtocol):
    """Every user's newest item is the test, the second newest validates."""

    name = "leave-one-out"
    settings: type[ProtocolSettings] = LeaveOneOut
    reads = frozenset({"items", "sequence"})
    own: tuple[str, ...] = ("evaluation.keep", "evaluation.judged_by", "evaluation.tables")
    counts_examples = True
    tuned = True
    pools = True

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        protocol = experiment.protocol
        assert isinstance(protocol, LeaveOneOut | CrossDomain)
        if isinstance(protocol, LeaveOneOut):
            dataset = protocol.restrict(dataset)
        splits = {split.name: split for split in protocol.apply(dataset, experiment.seed)}
        words = protocol.describe(dataset) + _constant(protocol.negatives + 1, experiment.evaluation.k)
        return Prepared(dataset, splits, f"{words}; {IN_ORDER}" if experiment.row.in_order else words)

    def unserved(self, experiment: Experiment) -> str | None:
        return None

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:

        return over_splits(experiment, prepared)


class AcrossDomains(ByLeavingOneOut):
    """TransFR's cross-domain task has clients learn in one domain and tests in the other those who are in both."""

    name = "cross-domain"
    settings = CrossDomain
    own = (*ByLeavingOneOut.own, "encoder.fit", "model.adapter_fit")
    tuned = False  # what counts is the other domain, which no round measures

    def unserved(self, experiment: Experiment) -> str | None:
        return "a device learns from items of one domain: use protocol.name=leave-one-out"


def _constant(candidates: int, cutoffs: Sequence[int]) -> str:
    """Say which metrics of sampled ranking are 1 whatever is learned, since no candidate ranks below the cut-off."""
    names = [f"{name}@{k}" for k in cutoffs if k >= candidates for name in ("HR", "Recall")]
    many = f"{', '.join(names)} of {candidates} candidates are 1 whatever is learned: raise protocol.negatives"
    return f"; {many}" if names else ""
