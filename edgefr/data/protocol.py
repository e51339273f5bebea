"""A protocol's card: what an experiment has to know of it before anything runs, and the table of all.

This module is light: an experiment is checked against its protocol without torch. Owns: the card and the settings'
base. Does not own: the cut of a data set and the stages of a run (`edgefr.simulation.protocols`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import Field

from privacy.table import Choice, Table


class Protocol:
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

    def check(self, experiment: Any) -> None:
        """Refuse, by `edgefr.config.validation.fault`, an experiment that cannot be had over this protocol."""

    def released(self, experiment: Any) -> bool:
        """Say whether anything follows from the experiment's `fidelity`."""
        return bool(experiment.own.released_values(self.name))


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
