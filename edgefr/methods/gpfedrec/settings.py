"""These are the hyper-parameters of GPFedRec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from edgefr.config.validation import fault
from edgefr.methods.objectives import RoundedSettings
from edgefr.methods.objectives import check as check_objective
from privacy.setting_scope import ReadWith

if TYPE_CHECKING:
    from edgefr.experiment.method import Context


class GPFedRecSettings(RoundedSettings):
    """GPFedRec is PFedRec whose item rows are held near those of similar clients (Zhang et al., KDD 2024)."""

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors, and of a user vector")
    init_scale: float = Field(1.0, gt=0, description="standard deviation of the first item vectors")
    scorer: Literal["linear", "mlp"] = Field(
        "linear",
        description="linear: PFedRec's, one layer on the item; mlp: a user vector and layers on [user, item], as in "
        "GPFedRec's own code",
    )
    hidden: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], ReadWith("scorer", "mlp")] = Field(
        [32, 16, 8], min_length=1, description="widths of the scorer's hidden layers, from the input on"
    )
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the private scorer")
    user_lr: Annotated[float | None, ReadWith("scorer", "mlp")] = Field(
        None, gt=0, description="SGD learning rate of the user vector; none: lr x (80 - 1), as released"
    )
    item_lr: float | None = Field(
        None, gt=0, description="SGD learning rate of item rows; none: lr x (number of items x 80 - 1), as released"
    )
    pull: float = Field(
        1.0, ge=0, description="weight of the mean squared distance to the table the server made for the client"
    )
    pulls: Literal["batch", "table"] = Field(
        "batch",
        description="which rows it pulls in a step: those of the batch, or all of the client's table, as released; "
        "then clients' tables are laid out at the server, 4 bytes x clients x items x dim",
    )
    recommends: Literal["graph", "global"] = Field(
        "graph",
        description="the table a client recommends from: the one the server made for it, or the one all start from",
    )


def check(context: Context) -> None:
    """Refuse, by `edgefr.config.validation.fault`, choices of GPFedRec that do not go with others of an experiment."""
    check_objective(context)
    model = context.model
    if context.evaluation.tables == "own" and model["recommends"] == "graph":
        raise fault("clients recommend from their own tables (evaluation.tables); use global", "model", "recommends")
    if model["pulls"] == "table" and context.privacy.clip is not None:
        raise fault("a clip is of the rows that a client's examples read; use batch", "model", "pulls")
