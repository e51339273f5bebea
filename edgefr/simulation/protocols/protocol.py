"""A run asks its protocol for the tasks it cuts, the stages over them, and what they came to.

A protocol is one entry of `PROTOCOLS`: its card (`edgefr.data.protocol`) with this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.protocol import Protocol
from edgefr.experiment.experiment import Experiment

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running, Stage


class RunProtocol(Protocol, ABC):
    """A protocol as a run uses it."""

    @abstractmethod
    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        """Return the tasks that an experiment makes of a data set as it was loaded, with candidates; no texts yet."""

    @abstractmethod
    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        """Return the stages of a run in their order, over the tasks of `cut`; they know what to compare with."""

    def unserved(self, experiment: Experiment) -> str | None:
        """Say why real devices cannot go on with a run over it, and what to do; None where they can."""
        return f"real devices cannot go on with runs over {self.name} yet: use protocol.name=leave-one-out"

    def results(self, sim: Running) -> dict[str, Any]:
        """Return the parts of a summary that say what the stages of a finished run came to."""
        from edgefr.simulation.summary.summary import summarise_splits

        return summarise_splits(sim)


def protocol_of(experiment: Experiment) -> RunProtocol:
    """Return the experiment's protocol as a run uses it."""
    entry = experiment.protocol.entry
    assert isinstance(entry, RunProtocol)
    return entry
