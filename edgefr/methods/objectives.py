"""An objective is the loss of a client's scores of positives and negatives: cross-entropy, BPR, softmax.

A method takes its name as `model.loss`. Owns: objectives and where they may run. Does not own: scores (a program's
`score`), draws of negatives (`edge.sampling`). The table is here without torch, so that names can be checked early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field

from edge.sampling import EVERYTHING, Selection
from edgefr.config.validation import fault
from edgefr.experiment.continual import strategy
from edgefr.methods.fcucr.parts import sampled_softmax
from privacy.setting_scope import ReadWith, Settings, named_in
from privacy.table import Table

if TYPE_CHECKING:
    from torch import Tensor

    from edgefr.experiment.method import Context

Compared = Callable[["Tensor", "Tensor"], "Tensor"]
"""A positive's loss [..., P] by its score [..., P] and its negatives' [..., P, k]."""


@dataclass(frozen=True)
class Objective:
    """`compared` is each positive's loss; None: examples are judged one by one, by their labels.

    `learns`: shared numbers of its own, 0 at first, which rounds train.
    """

    name: str
    citation: str
    compared: Compared | None = None
    learns: tuple[str, ...] = ()

    @property
    def which(self) -> Selection:
        """Return which examples a phase has to keep together for it."""
        return EVERYTHING if self.compared is None else Selection(pairs=True)


def _bpr(positive: Tensor, negative: Tensor) -> Tensor:
    from torch.nn.functional import softplus

    return softplus(negative - positive.unsqueeze(-1)).mean(-1)


LOG_SCALE, OFFSET = "loss.log_scale", "loss.offset"
"""What `bce-scaled` learns: a score counts as exp(log_scale) x score + offset, in which order is the same."""

OBJECTIVES: Table[Objective] = Table("loss", Objective)
"""Every objective by its name."""

for _objective in (
    Objective("bce", "binary cross-entropy of every example against its label; TransFR Eq. 6"),
    Objective(
        "bce-scaled",
        "binary cross-entropy of scores with a scale and an offset; Platt, Advances in Large Margin Classifiers 1999",
        learns=(LOG_SCALE, OFFSET),
    ),
    Objective("bpr", "Rendle et al., UAI 2009: how likely a positive is above each of its negatives", _bpr),
    Objective("softmax", "a positive among its own negatives; Jean et al., ACL 2015", sampled_softmax),
):
    OBJECTIVES.register(_objective)


class ObjectiveSettings(Settings):
    """These are the settings of methods that learn from scores of positives and sampled negatives."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    loss: Annotated[str, named_in(OBJECTIVES)] = Field(
        "bce",
        description="bce: every example by itself, as the papers have it; bce-scaled: of exp(s) x score + o, whose s "
        "and o all learn together; bpr or softmax: a positive is compared with the negatives drawn for it. These are "
        "drawn uniformly, so that a correction for how often an item is drawn is the same for all of them and cancels",
    )
    loss_lr: Annotated[float, ReadWith("loss", "bce-scaled")] = Field(
        0.1, gt=0, description="learning rate of the scale and the offset"
    )
    temperature: Annotated[float, ReadWith("loss", "softmax")] = Field(
        1.0, gt=0, description="what scores are divided by before the softmax"
    )
    negative_weight: Annotated[float, ReadWith("loss", "softmax")] = Field(
        1.0,
        gt=0,
        description="as how many items a negative counts in the softmax; the catalogue's size over the negatives makes "
        "them stand for all of it (Bengio & Senecal, 2003)",
    )

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[self.loss]


class RoundedSettings(ObjectiveSettings):
    """These are the settings of methods whose own code takes a loss of sigmoids that were rounded."""

    bce_of: Annotated[Literal["scores", "probabilities"], ReadWith("loss", "bce")] = Field(
        "scores",
        description="what the loss is computed from; probabilities: as torch.nn.BCELoss in the method's own code, "
        "where a score beyond 17 has no gradient left in float32",
    )


def check(context: Context) -> None:
    """Refuse, by `fault`, losses that compare without negatives, or learn numbers that replay or noise do not cover."""
    objective = OBJECTIVES[context.model["loss"]]
    learns, compares = bool(objective.learns), objective.compared is not None
    if compares and context.negatives < 1:
        raise fault("a positive is compared with its negatives: set 1 or more, or model.loss=bce", "negatives")
    if context.privacy.examples is not None and (learns or compares):
        what = "losses of one example that learn nothing themselves" if learns else "losses of single examples: use bce"
        raise fault(f"privacy.examples is for {what}", "model", "loss")
    if strategy(context.strategy).remembers != "nothing" and (learns or compares):
        what = "is labelled by plain scores" if learns else "has no negatives of its own"
        raise fault(f"what {context.strategy} replays {what}: use bce", "model", "loss")
