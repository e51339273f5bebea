"""These are the hyper-parameters of PFedRec."""

from typing import Annotated, Literal

from pydantic import Field

from edgefr.methods.objectives import RoundedSettings
from privacy.setting_scope import ReadWith


class PFedRecSettings(RoundedSettings):
    """PFedRec has a private scorer and a shared item table (Zhang et al. 2023; F3CRec §5.1)."""

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors")
    init_scale: float = Field(
        1.0, gt=0, description="standard deviation of the first item vectors (the default of torch's embeddings)"
    )
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the private scorer (F3CRec §5.1: 0.01 to 0.1)")
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows; none: lr x number of items x item_times (an item's mean-BCE "
        "gradient shrinks with the number of examples and clients)",
    )
    item_times: Annotated[float, ReadWith("item_lr", None)] = Field(
        170.0,
        gt=0,
        description="how many times lr x number of items is the rate of item rows: 170 in F3CRec's port of the "
        "method, 80 in PFedRec's own code",
    )
    turns: Literal["phases", "batches"] = Field(
        "phases",
        description="phases: the scorer learns in all of a round's batches, then the items; batches: they take turns "
        "batch by batch, as PFedRec's own code does",
    )
