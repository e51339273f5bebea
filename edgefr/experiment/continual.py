"""A strategy keeps old knowledge: what a client replays, what pulls it back, and a rule of the server.

One table, no subclasses: F3CRec, its ablations (Tables 3 and 6) and the baselines of its §5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from edge.replay import PICKS
from privacy.table import Table

BETWEEN_BLOCKS: Mapping[str, Any] = {
    "carry": "best",
    "reset_private": False,
    "redraw": "round",
    "labels": "kept",
    "item_rate": "catalogue",
}
"""What a run over blocks does where nobody asks, and where the released code of its backbone does nothing else."""


class ContinualSettings(BaseModel):
    """These settings say how knowledge of earlier blocks is kept (F3CRec §4, §5.1)."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    list_size: int = Field(30, ge=1, le=10_000, description="N: items a client remembers of a block (Eq. 1)")
    kd_weight: float = Field(0.1, ge=0, description="weight of replayed examples beside the new ones (Eq. 6)")
    kd_reduction: Literal["mean", "sum"] = Field(
        "mean", description="replayed examples of a client: mean (released code) or sum (Eq. 5 as printed)"
    )
    shift_scale: float = Field(0.006, ge=0, description="epsilon: how fast the memory shrinks with the shift (Eq. 3)")
    redraw: Literal["round", "step"] | None = Field(
        None,
        description="how often a client draws what it replays: once a round, or, as released, for every step by the "
        "scores that its tensors then give, of which those that are rounded to 0 or 1 teach nothing; none: by fidelity",
    )
    labels: Literal["kept", "anew"] | None = Field(
        None,
        description="predictions that remembered items have: kept from the last block that a client was in, or made "
        "anew for everybody at the end of every block; none: by fidelity",
    )
    reg_weight: float = Field(0.1, ge=0, description="weight of the pull towards the previous block (strategy reg)")
    proxy_rate: float = Field(
        0.7, ge=0, lt=1, description="share of the old proxy that the stability proxy keeps per block (strategy spp)"
    )
    patience: int = Field(30, ge=1, description="rounds without a better validation NDCG that end a block")
    item_rate: Literal["catalogue", "present"] | None = Field(
        None,
        description="items that multiply the learning rate of item rows where model.item_lr is not set: all of the "
        "catalogue, or those of the blocks so far; none: by fidelity",
    )
    carry: Literal["best", "last"] | None = Field(
        None, description="round a block hands on: best on validation, or last; none: by fidelity"
    )
    reset_private: bool | None = Field(
        None, description="private tensors start anew in every block; none: by fidelity and backbone"
    )


@dataclass(frozen=True)
class Strategy:
    """A strategy is one row.

    `remembers`: what clients keep at a block's end: "best" items by their own model (F3CRec Eq. 1), training "errors"
    (RLP2), or best items of two "proxies" (SPP). `replays`: which of it enters a round (`edge.replay.PICKS`).
    `anchored`: a term pulls parameters to those of the previous block (Reg). `server`: values of `aggregation` that it
    needs.
    """

    name: str
    about: str
    remembers: Literal["nothing", "best", "errors", "proxies"] = "nothing"
    replays: str = "all"
    anchored: bool = False
    server: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reads(self) -> frozenset[str]:
        """Return the settings of `continual` that this strategy reads beyond those of every run over blocks.

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

    def keeping(self) -> Any:
        """Return the class that keeps knowledge between blocks, for a strategy of one's own; None: by `remembers`.

        It derives from `edgefr.methods.f3crec.block_strategy.Keeping`.
        """
        return None


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
