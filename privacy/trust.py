"""Trust says whom clients trust with what they upload, and all that follows from it: one registered object each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privacy.table import Table

Adjacency = Literal["replace-one", "zero-out"]


@dataclass(frozen=True)
class Trust:
    """A trust has a name; `adversary` and `attacker` say in reports of privacy and of audits who looks at what.

    `sees_uploads`: the adversary sees every upload, so each has noise of its own; else the sum has, once. `adjacency`:
    which two worlds are compared, a client's data replaced by other data or its update by zeros; `reach`: how many
    clips the two can lie apart in what is noised.
    """

    name: str
    sees_uploads: bool
    adjacency: Adjacency
    reach: float
    adversary: str
    attacker: str

    @property
    def where(self) -> Literal["each upload", "the sum"]:
        """Say where noise is added."""
        return "each upload" if self.sees_uploads else "the sum"


TRUSTS: Table[Trust] = Table("trust", Trust)
"""Whom clients can trust."""

TRUSTS.register(
    Trust(
        "central",
        sees_uploads=False,
        adjacency="zero-out",  # one client's clipped update is there, or is zeros
        reach=1.0,
        adversary="observers of the broadcasts; not the server, which adds the noise and knows each sum without it",
        attacker="an observer of the sum who knows all other uploads",
    )
)
TRUSTS.register(
    Trust(
        "local",
        sees_uploads=True,
        adjacency="replace-one",  # another user's data may turn an update of norm C into its opposite
        reach=2.0,
        adversary="the server, which sees each noised upload",
        attacker="the server, which sees each upload",
    )
)
