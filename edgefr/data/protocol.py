"""A protocol makes tasks of a data set and stages of a run: what one is, and the table of all.

A protocol is one entry of `PROTOCOLS`, in a file of its own under `edgefr/protocols`, and holds everything that its
name means. This module is light: an experiment is checked against its protocol without torch. Owns: the contract. Does
not own: the protocols, what a stage does (`edgefr.simulation.stages.schedule`), splits (`edgefr.data`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from privacy.table import Choice, Table

if TYPE_CHECKING:
    from edgefr.data.interactions import Dataset
    from edgefr.data.prepared import Prepared
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.loop import Training
    from edgefr.simulation.stages.stage import Stage


class Protocol(ABC):
    """A protocol is everything that its name means.

    `reads`: what clients can learn from over it, sets of "items", "sessions" in order, or a
    "sequence" of all that a user has. `own`: the settings of an
    experiment, or sections of them, that are read over it and not over every protocol. `defaults`: experiment values
    that differ from the general ones. `hands_on`: a stage starts from what the one before learned, so strategies
    against forgetting and rules that look back have something to keep. `counts_examples`: DP-SGD on a device is
    accounted for. `validates_once`: a round is validated by NDCG at the first cut-off, and by nothing else. `tuned`:
    its rounds are one stage, whose learning curve says what settings are worth (`edgefr tune`). `pools`: central
    references are measured over it.
    """

    name: str
    settings: type[ProtocolSettings]
    reads: frozenset[str]
    own: tuple[str, ...] = ()
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    hands_on: bool = False
    counts_examples: bool = False
    validates_once: bool = False
    tuned: bool = False
    pools: bool = False

    @abstractmethod
    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        """Return the tasks that an experiment makes of a data set as it was loaded, with candidates; no texts yet."""

    @abstractmethod
    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        """Return the stages of a run in their order, over the tasks of `cut`; they know what to compare with."""

    def check(self, experiment: Experiment) -> None:  # noqa: B027 - most protocols suit every experiment
        """Refuse, by `edgefr.config.validation.fault`, an experiment that cannot be had over this protocol."""

    def unserved(self, experiment: Experiment) -> str | None:
        """Say why real devices cannot go on with a run over it, and what to do; None where they can."""
        return f"real devices cannot go on with runs over {self.name} yet: use protocol.name=leave-one-out"

    def released(self, experiment: Experiment) -> bool:
        """Say whether anything follows from the experiment's `fidelity`."""
        return bool(experiment.own.released_values(self.name))

    def results(self, sim: Training) -> dict[str, Any]:
        """Return the parts of a summary that say what the stages of a finished run came to."""
        from edgefr.simulation.summary.summary import summarise_splits

        return summarise_splits(sim)


PROTOCOLS: Table[Protocol] = Table("protocol", Protocol, home="edgefr.simulation.protocols", group="edgefr.protocols")
"""Every protocol by its name."""


class ProtocolSettings(Choice):
    """These settings are a protocol's: how it splits, and what a held-out item is ranked against.

    >>> ProtocolSettings(name="leave-one-out", negatives=9)
    LeaveOneOut(name='leave-one-out', negatives=9, min_interactions=3, few='train', negatives_avoid_held_out=False)
    """

    table: ClassVar[Table[Any]] = PROTOCOLS
    key: ClassVar[str] = "name"

    name: str = Field("leave-one-out", description="leave-one-out, cross-domain, blocks or sessions")

    @property
    def learned(self) -> int:
        """Return how many of a run's stages have rounds in which updates leave devices."""
        return 1

    @property
    def returns(self) -> bool:
        """Say whether a client meets the same session again."""
        return False

    @property
    def pause_s(self) -> int | None:
        """Return the inactivity after which a device begins a new session (seconds); None: nothing is cut there."""
        return None
