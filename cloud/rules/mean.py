"""The mean of the cohort's updates (FedAvg), stepped along by the server's own optimiser (FedOpt)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cloud.optimisers import OPTIMISERS, Stepping
from cloud.rule import AggregationSettings, Answer, Received, Rule
from privacy.setting_scope import ReadWith, ReadWithout, Settings, named_in

STEPS = ReadWithout("optimiser", "sgd")


class MeanSettings(AggregationSettings, Settings):
    rule: Literal["mean"] = "mean"
    optimiser: Annotated[str, named_in(OPTIMISERS)] = Field(
        "sgd",
        description="how the server steps along the mean update: sgd, by server_lr times it; momentum (FedAvgM) or "
        "adam (FedAdam), by optimiser_lr",
    )
    optimises: Annotated[Literal["all", "tables"], STEPS] = Field(
        "all",
        description="tensors that momentum or adam moves: all, or item tables alone, whose rows few clients change; "
        "others move by server_lr times the mean",
    )
    optimiser_lr: Annotated[float, STEPS] = Field(
        0.02, gt=0, allow_inf_nan=False, description="learning rate of momentum or adam"
    )
    momentum: Annotated[float, ReadWith("optimiser", "momentum")] = Field(
        0.9, ge=0, lt=1, allow_inf_nan=False, description="share of its last step that momentum adds to the next"
    )
    floor: Annotated[float, ReadWith("optimiser", "adam")] = Field(
        1e-5, ge=0, allow_inf_nan=False, description="adam: size of a mean update below which it counts as noise"
    )

    @model_validator(mode="after")
    def _reads_its_step(self) -> Self:
        whole = OPTIMISERS[self.optimiser].keeps and self.optimises == "all"
        if whole and self.server_lr != type(self).model_fields["server_lr"].default:
            raise ValueError(f"{self.optimiser} moves every tensor, and reads optimiser_lr: drop server_lr")
        return self


class Mean(Rule):
    name = "mean"
    settings = MeanSettings
    citation = "FedAvg: McMahan et al. 2017; FedOpt: Reddi et al. 2021, Algorithm 1"
    is_sum = True

    def optimiser(self, settings: AggregationSettings) -> Stepping | None:
        assert isinstance(settings, MeanSettings)
        return OPTIMISERS[settings.optimiser].begin(settings)

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        after = received.by_mean(settings)
        if received.optimiser is None or received.total.weight == 0:
            return Answer(after)
        assert isinstance(settings, MeanSettings)
        names = {"tables": received.tables, "all": received.before}[settings.optimises]
        for name, sums in received.total.sums.items():
            if name in names:
                step = received.optimiser.step(name, sums / received.total.weight)
                before = received.before[name]
                after[name] = (before.double() + step).to(before)
        return Answer(after)
