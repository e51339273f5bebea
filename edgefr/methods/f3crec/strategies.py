"""Strategies: what keeps old knowledge, as what a client replays, what pulls it back, and a rule of the server.

One table, no subclasses: F3CRec, its ablations (Tables 3 and 6) and the baselines of its §5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from privacy.errors import unknown


@dataclass(frozen=True)
class Strategy:
    """One row. `remembers`: what clients keep at the end of a block; `replays`: which of it enters a round.

    `remembers`: "best" items by their own model (F3CRec Eq. 1), training "errors" (RLP2), or best items of two
    "proxies" (SPP). `anchored`: a term pulls parameters to those of the previous block (Reg). `server`: values of the
    experiment's `aggregation` that the strategy asks for.
    """

    about: str
    remembers: Literal["nothing", "best", "errors", "proxies"] = "nothing"
    replays: Literal["all", "adaptive", "discrepancy"] = "all"
    anchored: bool = False
    server: Mapping[str, Any] = field(default_factory=dict)


_TEMPORAL = {"rule": "temporal-mean"}

STRATEGIES: dict[str, Strategy] = {
    "ft": Strategy("fine-tuning: the original loss on the new block"),
    "reg": Strategy("a squared pull towards the parameters of the previous block", anchored=True),
    "kd": Strategy("distils the whole list of best items of the previous block", remembers="best"),
    "rlp2": Strategy("replays the examples it predicted worst (error memory; Zhu et al. 2023)", remembers="errors"),
    "spp": Strategy(
        "replays what stability and plasticity proxies ranked high and the model has dropped (Lee et al. 2024)",
        remembers="proxies",
        replays="discrepancy",
    ),
    "f3crec": Strategy(
        "adaptive replay memory and item-wise temporal mean", remembers="best", replays="adaptive", server=_TEMPORAL
    ),
    "f3crec-no-client": Strategy("F3CRec without its client part (w/o c.c, Table 3)", server=_TEMPORAL),
    "f3crec-no-adaptive": Strategy(
        "F3CRec replaying the whole list (w/o a.r.m, Table 3)", remembers="best", server=_TEMPORAL
    ),
    "f3crec-no-server": Strategy(
        "F3CRec without its server part (w/o s.c, Table 6)", remembers="best", replays="adaptive"
    ),
    "f3crec-no-itemwise": Strategy(
        "F3CRec with one weight for all items (w/o i.t.m, Table 6)",
        remembers="best",
        replays="adaptive",
        server=_TEMPORAL | {"itemwise": False},
    ),
}


def strategy(name: str) -> Strategy:
    """The row of the table. Raises `InputError` with the nearest names when there is none.

    >>> strategy("kd").remembers
    'best'
    """
    if name not in STRATEGIES:
        raise unknown("strategy", name, STRATEGIES)
    return STRATEGIES[name]
