"""Leave-one-out is a protocol: rounds over one split, then local training and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefr.data.interactions import Dataset
from edgefr.data.protocols import CrossDomain, LeaveOneOut
from edgefr.protocol import Protocol, ProtocolSettings

if TYPE_CHECKING:
    from edgefr.experiment import Experiment
    from edgefr.prepare import Prepared
    from edgefr.stages.stage import Stage


IN_ORDER = "what a user had last: train's newest items to validate, with the validation item to test"
"""What is known of a user whose items are read in their order, when a held-out item is asked for."""


class ByLeavingOneOut(Protocol):
    """Every user's newest item is the test, the second newest validates."""

    name = "leave-one-out"
    settings: type[ProtocolSettings] = LeaveOneOut
    reads = frozenset({"items", "sequence"})
    own: tuple[str, ...] = ("evaluation.keep", "evaluation.judged_by", "evaluation.tables")
    counts_examples = True
    tuned = True
    pools = True

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        from edgefr.prepare import Prepared

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
        from edgefr.stages.leave_one_out import over_splits

        return over_splits(experiment, prepared)


def _constant(candidates: int, cutoffs: Sequence[int]) -> str:
    """Say which metrics of sampled ranking are 1 whatever is learned, since no candidate ranks below the cut-off."""
    names = [f"{name}@{k}" for k in cutoffs if k >= candidates for name in ("HR", "Recall")]
    many = f"{', '.join(names)} of {candidates} candidates are 1 whatever is learned: raise protocol.negatives"
    return f"; {many}" if names else ""
