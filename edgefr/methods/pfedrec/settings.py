"""These are the hyper-parameters of PFedRec."""

from pydantic import BaseModel, ConfigDict, Field


class PFedRecSettings(BaseModel):
    """PFedRec has a private scorer in the place of a user vector, and a shared item table. Zhang et al.

    2023; F3CRec §5.1.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors")
    init_scale: float = Field(
        1.0, gt=0, description="standard deviation of the first item vectors (the default of torch's embeddings)"
    )
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the private scorer (F3CRec §5.1: 0.01 to 0.1)")
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows; none: lr x number of items x 170, as the released F3CRec code "
        "does (an item's mean-BCE gradient shrinks with the number of examples and clients)",
    )
