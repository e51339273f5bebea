"""A protocol's card is what an experiment knows of it before anything runs; this is the table of all.

This module needs no torch. Owns: the card and the settings' base. Does not own: cuts and stages
(`edgefr.simulation.protocols`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import Field

from privacy.table import Choice, Table


class Protocol:
    """A protocol is everything that its name means.

    `reads`: what clients learn from: "items" (sets), "sessions" in order, or a "sequence" of all that a user has.
    `own`: settings or sections that only this protocol reads. `defaults`: experiment values that differ from the
    general ones. `hands_on`: a stage starts from the one before, so strategies against forgetting apply.
    `counts_examples`: DP-SGD on a device is accounted for. `validates_once`: rounds are validated by NDCG at the first
    cut-off alone. `tuned`: rounds are one stage with a learning curve (`edgefr tune`). `pools`: central references are
    measured. `several`: several items of a user are held out, so that they are ranked in full alone.
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
    several: bool = False

    def refuses(self, row: Any) -> str | None:
        """Say why a row of the methods cannot be run over this protocol, and what to set; None where it can."""
        if row.central is not None and not self.pools:
            mend = " or ".join(name for name, other in PROTOCOLS.items() if other.pools)
            return f"{row.name} is a central reference: set protocol.name={mend}"
        if row.reads not in self.reads:
            mend = " or ".join(name for name, other in PROTOCOLS.items() if row.reads in other.reads)
            return f"{row.name} learns from {row.reads}: set protocol.name={mend}"
        return None

    def check(self, experiment: Any) -> None:
        """Refuse, by `edgefr.config.validation.fault`, an experiment that this protocol cannot run."""

    def released(self, experiment: Any) -> bool:
        """Say whether anything follows from the experiment's `fidelity`."""
        return bool(experiment.own.released_values(self.name))


PROTOCOLS: Table[Protocol] = Table("protocol", Protocol, home="edgefr.simulation.protocols", group="edgefr.protocols")
"""Every protocol by its name."""


class ProtocolSettings(Choice):
    """These settings are a protocol's: how it splits, and what a held-out item is ranked against."""

    table: ClassVar[Table[Any]] = PROTOCOLS
    key: ClassVar[str] = "name"

    name: str = Field("leave-one-out", description="leave-one-out, cross-domain, blocks, sessions or holdout")

    @property
    def learned(self) -> int:
        """Return how many of a run's stages have rounds in which updates leave devices."""
        return 1

    @property
    def returns(self) -> bool:
        """Say whether a client meets the same session again."""
        return False

    @property
    def draws_apart(self) -> bool:
        """Say whether negatives for training are drawn from other items than those that are recommended."""
        return False

    @property
    def pause_s(self) -> int | None:
        """Return the inactivity after which a device begins a new session (seconds); None: nothing is cut there."""
        return None
