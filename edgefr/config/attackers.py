"""A card says of each attack what an experiment has to know; these are the settings of section `attackers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from edgefr.config.validation import Section
from privacy.setting_scope import named_in
from privacy.table import Table


@dataclass(frozen=True)
class Attack:
    """An attack has a name; `direction(known)` says where its clients want the target's row of the item table to point.

    It gets what attackers know (`edgefr.engine.attacks.attackers.Known`) and returns a vector [d] of any length; zeros:
    it has no wish yet. `paper`: whose idea it is.
    """

    name: str
    paper: str
    direction: Callable[[Any], Any]


ATTACKS: Table[Attack] = Table("attack", Attack, group="edgefr.attacks", home="edgefr.engine.attacks")
"""What hostile clients can upload."""


class AttackersSection(Section):
    """This section says which share of the clients is hostile, and what these upload in place of what they learned."""

    kind: Annotated[str, named_in(ATTACKS)] = Field(
        description="pieck-ipe: the target is moved towards popular items; pieck-uea: towards users who like these; "
        "fedrecattack: towards users who are guessed from public interactions"
    )
    share: float = Field(
        0.01, ge=0, lt=0.5, description="share of the clients that is hostile; 0: the target is measured alone"
    )
    target: str | None = Field(
        None, min_length=1, description="id of the item to be recommended; none: one of those that fewest people have"
    )
    strength: float = Field(
        2.0,
        gt=0,
        allow_inf_nan=False,
        description="length of the target's row that attackers want, in lengths of the longest other row",
    )
    beyond: bool = Field(
        False,
        description="attackers upload at any length, and ignore privacy.clip, as where nobody checks it; false: no "
        "longer than honestly, and clipped",
    )
