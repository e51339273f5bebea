"""A finding is what one attack saw; an effort is how hard it may try."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from privacy.audits import Leak


@dataclass(frozen=True)
class Finding:
    """A finding is what one attack saw of `of` clients, draws or canaries.

    None where it does not say, `note` why it was not made.

    `unit`: what is told apart. `auc`, `tpr` (at 1 % FPR) beside what knowing nothing reaches at its 95 % quantile;
    `best_auc`: had somebody told the attacker the right sign for every client. `eps_lb95` bounds `releases` releases
    of a client, of which `claimed` is guaranteed; `counts` are what it is made of, `bounded` says by which theorem.
    """

    attack: str
    unit: str
    auc: float | None = None
    auc_null: float | None = None
    tpr: float | None = None
    tpr_null: float | None = None
    best_auc: float | None = None
    best_auc_null: float | None = None
    eps_lb95: float | None = None
    claimed: float | None = None
    releases: int = 1
    of: int = 0
    note: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    bounded: Literal["rates", "coins", ""] = ""
    seed: int = 0

    @classmethod
    def of_leak(cls, attack: str, unit: str, apart: Leak, **rest: Any) -> Finding:
        """Make a finding from how well scores told members from others."""
        return cls(attack, unit, *apart[:4], **rest)

    @property
    def exceeds(self) -> bool:
        """Say whether more was found than is guaranteed: a fault of mechanism or accounting."""
        return self.eps_lb95 is not None and self.claimed is not None and self.eps_lb95 > self.claimed

    def row(self) -> dict[str, Any]:
        """Return this for JSON: infinity is the word "inf", nan is None."""
        values = asdict(self) | {"exceeds": self.exceeds}
        return {k: _plain(v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value


@dataclass(frozen=True)
class Effort:
    """This says how much an audit may try: clients that are attacked, draws of games, and what keys these draws."""

    users: int = 50
    trials: int = 10_000
    seed: int = 0
