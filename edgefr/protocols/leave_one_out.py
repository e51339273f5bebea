"""Leave-one-out is a protocol: rounds over one split, then local training and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefr.data.interactions import Dataset
from edgefr.data.protocols import CrossDomain, LeaveOneOut
from edgefr.protocol import Protocol, ProtocolSettings

if TYPE_CHECKING:
    from edgefr.experiment import Experiment
    from edgefr.prepare import Prepared
    from edgefr.stages.stage import Stage


class ByLeavingOneOut(Protocol):
    """Every user's newest item is the test, the second newest validates."""

    name = "leave-one-out"
    settings: type[ProtocolSettings] = LeaveOneOut
    reads = frozenset({"items"})
    counts_examples = True

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        from edgefr.prepare import Prepared

        protocol = experiment.protocol
        assert isinstance(protocol, LeaveOneOut | CrossDomain)
        splits = {split.name: split for split in protocol.apply(dataset, experiment.seed)}
        return Prepared(dataset, splits, protocol.describe(dataset))

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        from edgefr.stages.leave_one_out import over_splits

        return over_splits(experiment, prepared)
