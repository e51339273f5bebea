"""A strategy keeps old knowledge: what a client replays, what pulls it back, and a rule of the server.

One table, no subclasses: F3CRec, its ablations (Tables 3 and 6) and the baselines of its §5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edge.replay import PICKS
from privacy.table import Table

if TYPE_CHECKING:
    from edgefr.methods.f3crec.keeping import Keeping


@dataclass(frozen=True)
class Strategy:
    """A strategy is one row.

    `remembers`: what clients keep at the end of a block; `replays`: which of it enters a round (`edge.replay.PICKS`).

    `remembers`: "best" items by their own model (F3CRec Eq. 1), training "errors" (RLP2), or best items of two
    "proxies" (SPP). `anchored`: a term pulls parameters to those of the previous block (Reg). `server`: values of the
    experiment's `aggregation` that the strategy asks for.
    """

    name: str
    about: str
    remembers: Literal["nothing", "best", "errors", "proxies"] = "nothing"
    replays: str = "all"
    anchored: bool = False
    server: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reads(self) -> frozenset[str]:
        """Return the settings of `continual` that are this strategy's:

        those of every run over blocks are not among them.

        >>> sorted(STRATEGIES["reg"].reads)
        ['reg_weight']
        """
        out = {"reg_weight"} if self.anchored else set()
        if self.remembers != "nothing":
            out |= {"list_size", "kd_weight", "kd_reduction"}
        if self.remembers == "best":
            out |= {"labels"}
        out |= PICKS[self.replays].reads
        return frozenset(out | ({"proxy_rate"} if self.remembers == "proxies" else set()))

    @property
    def as_written(self) -> Mapping[str, Any]:
        """Return what `fidelity: paper` starts from: Eq. 5 sums over the memory, the released code does not."""
        return {"continual": {"kd_reduction": "sum"}} if "kd_reduction" in self.reads else {}

    def keeping(self) -> type[Keeping]:
        """Return what the strategy does at a block's beginning and end."""
        from edgefr.methods.f3crec import keeping

        if self.anchored:
            return keeping.Pull
        kinds = {"nothing": keeping.Keeping, "best": keeping.BestItems, "errors": keeping.Errors}
        return {**kinds, "proxies": keeping.Proxies}[self.remembers]


_TEMPORAL = {"rule": "temporal-mean"}

STRATEGIES: Table[Strategy] = Table("strategy", Strategy, group="edgefr.strategies")
"""Every strategy by its name."""

for _row in (
    Strategy("ft", "fine-tuning: the original loss on the new block"),
    Strategy("reg", "a squared pull towards the parameters of the previous block", anchored=True),
    Strategy("kd", "distils the whole list of best items of the previous block", remembers="best"),
    Strategy("rlp2", "replays the examples it predicted worst (error memory; Zhu et al. 2023)", remembers="errors"),
    Strategy(
        "spp",
        "replays what stability and plasticity proxies ranked high and the model has dropped (Lee et al. 2024)",
        remembers="proxies",
        replays="discrepancy",
    ),
    Strategy(
        "f3crec",
        "adaptive replay memory and item-wise temporal mean",
        remembers="best",
        replays="adaptive",
        server=_TEMPORAL,
    ),
    Strategy("f3crec-no-client", "F3CRec without its client part (w/o c.c, Table 3)", server=_TEMPORAL),
    Strategy(
        "f3crec-no-adaptive", "F3CRec replaying the whole list (w/o a.r.m, Table 3)", remembers="best", server=_TEMPORAL
    ),
    Strategy(
        "f3crec-no-server", "F3CRec without its server part (w/o s.c, Table 6)", remembers="best", replays="adaptive"
    ),
    Strategy(
        "f3crec-no-itemwise",
        "F3CRec with one weight for all items (w/o i.t.m, Table 6)",
        remembers="best",
        replays="adaptive",
        server=_TEMPORAL | {"itemwise": False},
    ),
):
    STRATEGIES.register(_row)


def strategy(name: str) -> Strategy:
    """Return the row of the table. Raises `InputError` with the nearest names when there is none.

    >>> strategy("kd").remembers
    'best'
    """
    return STRATEGIES[name]


def readers(setting: str) -> list[str]:
    """Return the strategies that read a setting of `continual`; none for one that every run over blocks reads.

    >>> readers("proxy_rate"), readers("patience")
    (['spp'], [])
    """
    return [name for name, row in STRATEGIES.items() if setting in row.reads]
