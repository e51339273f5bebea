"""A server rule is what the server makes of a cohort's updates, and everything else its name means.

A rule is one entry of `RULES`, in a file of its own under `cloud/rules`. This module is light: an experiment is checked
against its rule without torch, which a rule imports when it works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from privacy.errors import InputError
from privacy.table import Choice, Table

if TYPE_CHECKING:
    from torch import Tensor

    from cloud.aggregate import Accumulator
    from cloud.optimisers import Stepping
    from cloud.uploads import Uploads


STEP = 16.0
"""Length of the server's longest step under a clip, by `server_lr=auto`."""


@dataclass(frozen=True)
class Received:
    """A round brought this to the server.

    `before`: the tensors that it trains, as they were broadcast. `total`: the sum of the cohort's updates. `uploads`:
    every one of them (None where a sum is enough). `tables`: which tensors have a row per item. `previous`: tables at
    the end of the previous block and which rows they had then, bool [rows]. `optimiser`: the server's
    own. `laid`: tables of which clients changed every row, as they are now, [clients, rows, width] by name.
    """

    before: dict[str, Tensor]
    total: Accumulator
    uploads: Uploads | None = None
    tables: Sequence[str] = ()
    previous: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    optimiser: Stepping | None = None
    laid: Mapping[str, Tensor] = field(default_factory=dict)

    def by_mean(self, settings: AggregationSettings) -> dict[str, Tensor]:
        """Return the next broadcast by the mean of the updates."""
        return self.total.apply(self.before, settings.rate)


@dataclass(frozen=True)
class Answer:
    """The server sends this next.

    `after`, to everybody; where `mix` is given, client u of the cohort gets its own table, the broadcast plus Σ_v
    mix[u, v] times client v's change: float64 [clients, clients].
    """

    after: dict[str, Tensor]
    mix: Tensor | None = None


class Rule(ABC):
    """A rule is everything that its name means.

    `is_sum`: it needs only the sum of clipped updates, which is what noise and guarantees are made for. `looks_back`:
    it reads the previous block's tables. `personal`: every client gets an answer of its own, so a cohort starts from
    one broadcast. `grams`: it reads changes of a table's Gram matrix. `citation`: where it is from.
    """

    name: str
    settings: type[AggregationSettings]
    citation: str
    is_sum: ClassVar[bool]
    looks_back: ClassVar[bool] = False
    personal: ClassVar[bool] = False
    grams: ClassVar[bool] = False

    @abstractmethod
    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        """Return the next broadcast after a round. An empty cohort changes nothing."""

    def bound(self, settings: AggregationSettings) -> float | None:
        """Return a fixed bound on the L2 norm of an update; None: there is none.

        Whoever sums updates clips each of them to it, a server those of devices too, so that a sum is enough.
        """
        return None

    def optimiser(self, settings: AggregationSettings) -> Stepping | None:
        """Return the state of the server's own optimiser, which a checkpoint keeps; None: it has none."""
        return None


class Robust(Rule):
    """This is a rule that sees every upload of the cohort, and makes one update of them."""

    is_sum = False

    @abstractmethod
    def combine(
        self, settings: AggregationSettings, uploads: Uploads, shared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the cohort's update: one float64 tensor per tensor of `shared`, in its shape and place."""

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        """Return the broadcast moved by the cohort's update."""
        from cloud.aggregate import moved

        uploads = received.uploads
        if uploads is None:
            raise ValueError(f"rule {self.name} needs every upload")
        if not uploads.clients:
            return Answer(received.before)
        update = self.combine(settings, uploads, received.before)
        return Answer(moved(received.before, update, uploads.clients, settings.rate))


RULES: Table[Rule] = Table("rule", Rule, home="cloud.rules", group="edgefr.rules")


class AggregationSettings(Choice):
    """These settings say how the server turns a cohort's updates into the next broadcast.

    Each rule's file adds what it alone reads.

    >>> AggregationSettings(rule="temporal-mean", beta=0.5).is_sum, AggregationSettings(rule="krum").is_sum
    (True, False)
    """

    model_config = ConfigDict(allow_inf_nan=False)
    table: ClassVar[Table[Any]] = RULES
    key: ClassVar[str] = "rule"

    rule: str = Field(
        "mean",
        description="mean: FedAvg; temporal-mean: the mean, pulled to the previous block's table (F3CRec); against "
        "hostile clients: median, trimmed-mean (by coordinate), norm-bounded (mean of shortened updates), krum; graph: "
        "each client gets the mean of clients that are like it, and all get the mean of these means (GPFedRec); gram: "
        "FCF's gradient over the whole catalogue",
    )
    weights: Literal["uniform", "size"] = Field(
        "uniform",
        description="a client's weight: 1, or its number of training interactions (mean, temporal-mean and gram only)",
    )
    server_lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] = Field(
        1.0,
        description="learning rate of the server on the mean update: 1 is plain FedAvg; auto goes with privacy.clip: "
        f"{STEP:g} over it",
    )

    def under(self, clip: float | None) -> Self:
        """Return the settings with the number that `server_lr=auto` is under a clip.

        A mean of updates that a clip shortened is as long as the clip allows, so a rate of `STEP` over the clip moves
        the model by at most `STEP` in a round, whatever the clip.

        >>> AggregationSettings(server_lr="auto").under(0.5).rate
        32.0
        """
        if self.server_lr != "auto":
            return self
        if clip is None:
            raise InputError("aggregation.server_lr=auto goes with a clip")
        return self.model_copy(update={"server_lr": STEP / clip})

    @property
    def rate(self) -> float:
        """Return the server's rate as a number."""
        assert self.server_lr != "auto"
        return self.server_lr

    @property
    def by_size(self) -> bool:
        """Say whether a client counts by its number of training interactions, which it then has to tell."""
        return {"uniform": False, "size": True}[self.weights]

    @property
    def is_sum(self) -> bool:
        """Say whether the rule needs only the sum of clipped updates, which noise and guarantees are made for."""
        return bool(self.entry.is_sum)

    @model_validator(mode="after")
    def _weights_that_are_known(self) -> Self:
        if self.by_size and not self.is_sum:
            raise ValueError(
                f"weights=size cannot go with rule={self.rule}: a hostile client could claim any size; use uniform"
            )
        return self
