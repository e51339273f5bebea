"""Section `evaluation` says which metrics are measured, how items are ranked, and how often."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from edgefr.config.validation import Section
from edgefr.metrics.cutoffs import METRICS, metrics_at, of_ranks
from privacy.errors import unknown
from privacy.setting_scope import named_in

UNLEARNED = "before any round"
"""The stage of a run's model as it is before round 1: same program, same user encoder, same head."""

UNLEARNED_IN_CONTEXT = "before any round, context"
"""The same, where users' items of another domain than it was learned in are known to it."""

CONTEXT = "context"
"""The stage of the learned model with these items known, and nothing trained on them."""

ITEM_KNN, EASE = "item-kNN, central", "EASE, central"
CEILINGS = (EASE, ITEM_KNN)
"""Central ceilings: what pools everybody's training items reaches."""

PATIENCE = 30
"""Rounds without a better validation that end a run which keeps its best round because nobody asked otherwise."""

NOTHING = "none"
"""The mask of a ranking that leaves nothing out."""


class EvaluationSection(Section):
    """This section says what is measured, on whom, and how often."""

    k: list[Annotated[int, Field(ge=1)]] = Field(
        [10], min_length=1, description="cut-offs of HR@k, NDCG@k and Recall@k"
    )
    metrics: list[Annotated[str, named_in(METRICS)]] = Field(
        default_factory=list,
        description="further metrics beside HR, NDCG and Recall: of ranks (Precision, MRR, MAP), and of the lists that "
        "full ranking recommends (Coverage, Novelty, Diversity, Popularity, PopularityLift, Calibration, FairnessGap)",
    )
    every: int = Field(1, ge=1, description="rounds between points of the learning curve (validation items)")
    curve_ranking: Literal["sampled", "full"] | None = Field(
        None,
        description="what the learning curve ranks a held-out item against, and so by what the best round is told: "
        "sampled candidates, or the full catalogue; none: the full catalogue where fidelity is ours, one item "
        "of a user is held out and there are `full_ranking_users`, else sampled candidates; blocks are always ranked "
        "in full",
    )
    full_ranking_users: int = Field(
        1000, ge=0, description="users ranked against the whole catalogue, a keyed sample; 0: no full ranking"
    )
    curve_users: int = Field(
        5000,
        ge=1,
        description="users of the learning curve, a keyed sample; no more than `full_ranking_users` where the curve is "
        "ranked in full without `curve_ranking`",
    )
    keep: Literal["last", "best"] | None = Field(
        None,
        description="the round whose model is tested after leave-one-out: the last, or the best on validation items; "
        "none: the best where fidelity is ours, one domain is learned in and nothing is noised, else the last",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="rounds without a better validation that end leave-one-out's rounds, where the best is kept; none: "
        f"{PATIENCE}, or `every` where that is more; all rounds are done where `keep` was set",
    )
    judged_by: str = Field(
        "NDCG",
        description="the metric that says which round, or epoch of a central reference, is best: whole, as HR@20, or a "
        "name, which stands for its first cut-off; of equal rounds the latest, of equal epochs the first",
    )
    tables: Literal["server", "own"] = Field(
        "server",
        description="the item tables that clients recommend from: the server's, or each its own, as its last round "
        "left it (leave-one-out; so the released codes of PFedRec and GPFedRec evaluate)",
    )
    keep_blocks: bool = Field(False, description="keep every block's model and the clients' preference shifts (blocks)")

    @property
    def judge(self) -> str:
        """Return the metric that rounds are compared by, with its cut-off."""
        return self.judged_by if "@" in self.judged_by else f"{self.judged_by}@{self.k[0]}"

    @model_validator(mode="after")
    def _judged_by_what_is_measured(self) -> Self:
        known = metrics_at(self.k, self.metrics)
        of_lists = [name for name in self.metrics if name not in of_ranks(self.metrics)]
        if of_lists and not self.full_ranking_users:
            said = f"{of_lists[0]} is measured on lists of full ranking; set evaluation.full_ranking_users above 0"
            raise PydanticCustomError("unread", "{problem}", {"problem": said, "at": ("metrics",)})
        if self.judge not in known:
            problem = unknown("metric of evaluation.judged_by", self.judged_by, known)
            raise PydanticCustomError("unknown", "{problem}", {"problem": str(problem), "at": ("judged_by",)})
        return self
