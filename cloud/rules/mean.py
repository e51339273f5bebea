"""The mean of the cohort's updates (FedAvg), by a fixed step or by an Adam of the server's own (FedAdam)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from cloud.rule import Answer, Received, Rule
from cloud.settings import AggregationSettings
from privacy.belongs import ReadWith, Settings

if TYPE_CHECKING:
    from cloud.adaptive import ServerAdam


class MeanSettings(AggregationSettings, Settings):
    """These settings say how the server steps along the mean."""

    rule: Literal["mean"] = "mean"
    adaptive: Literal["none", "tables", "all"] = Field(
        "none",
        description="tensors that the server moves by Adam on the mean update (FedAdam) instead of by server_lr times "
        "it: item tables, whose rows few clients change, or all",
    )
    adaptive_lr: Annotated[float, ReadWith("adaptive", "tables", "all")] = Field(
        0.02, gt=0, allow_inf_nan=False, description="adaptive: learning rate of that Adam"
    )
    adaptive_floor: Annotated[float, ReadWith("adaptive", "tables", "all")] = Field(
        1e-5, ge=0, allow_inf_nan=False, description="adaptive: size of a mean update below which it counts as noise"
    )

    @model_validator(mode="after")
    def _reads_its_step(self) -> Self:
        if self.adaptive == "all" and self.server_lr != type(self).model_fields["server_lr"].default:
            raise ValueError("adaptive all moves every tensor by Adam, which reads adaptive_lr: drop server_lr")
        return self


class Mean(Rule):
    """This rule takes the mean."""

    name = "mean"
    settings = MeanSettings
    citation = "FedAvg: McMahan et al. 2017; FedAdam: Reddi et al. 2021, Algorithm 2"
    is_sum = True

    def optimiser(self, settings: AggregationSettings) -> ServerAdam | None:
        from cloud.adaptive import ServerAdam

        assert isinstance(settings, MeanSettings)
        return None if settings.adaptive == "none" else ServerAdam(settings.adaptive_lr, settings.adaptive_floor)

    def answer(self, settings: AggregationSettings, received: Received) -> Answer:
        after = received.by_mean(settings)
        if received.adam is None or received.total.weight == 0:
            return Answer(after)
        assert isinstance(settings, MeanSettings)
        names = {"tables": received.tables, "all": received.before}[settings.adaptive]
        for name, sums in received.total.sums.items():
            if name in names:
                step = received.adam.step(name, sums / received.total.weight)
                before = received.before[name]
                after[name] = (before.double() + step).to(before)
        return Answer(after)
