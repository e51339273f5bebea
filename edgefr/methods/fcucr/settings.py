"""These are FCUCR's settings: the backbone, what makes it personal, and what the server's reply is made of."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from edgefr.methods.fcucr.parts import DISTILL_WEIGHTS, ENCODERS, LOSSES, PROTOTYPE_FORMS, TEACHERS
from privacy.belongs import ReadWith, ReadWithout, Settings, named_in

ATTENTION = ReadWith("encoder", "sasrec", "tisasrec")
TAUGHT = ReadWithout("teacher", "none")
SENT = ReadWithout("prototypes", "none")


class FCUCRSettings(Settings):
    """FCUCR is a sequential backbone with self-distillation and transferred prototypes.

    The federated backbones alone (Fed-SASRec, ...) are `teacher: none`, `prototypes: none`, `personal: false`; without
    TASD is `teacher: none`, without IUPR `prototypes: none`.

    >>> FCUCRSettings(prototypes="none").teacher
    'previous_local'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: Annotated[str, named_in(ENCODERS)] = Field("sasrec", description="the sequential backbone")
    dim: int = Field(50, ge=1, description="width of item vectors and features (values)")
    length: int = Field(15, ge=1, le=1024, description="positions of a window: the newest items of a session (items)")
    heads: Annotated[int, ATTENTION] = Field(1, ge=1, description="attention heads; must divide dim (sasrec, tisasrec)")
    layers: Annotated[int, ATTENTION] = Field(1, ge=1, description="blocks of the encoder (sasrec, tisasrec)")
    spans: Annotated[int, ReadWith("encoder", "tisasrec")] = Field(
        256, ge=1, description="largest interval told apart, in units of the smallest (tisasrec)"
    )
    masked: Annotated[bool, ReadWith("encoder", "sasrec")] = Field(
        True, description="sasrec: whether padding is kept out of attention; the released code lets it in"
    )
    init_scale: float = Field(
        0.0003,
        gt=0,
        description="standard deviation of the first item vectors: what Xavier's are on 24,390 items once the nets of "
        "877 clients have been averaged, as the released code does; an update moves a row by little more",
    )
    item_bias: bool = Field(
        False, description="whether an item row has one more value, which is added to its score (ours, not the paper's)"
    )
    lr: float = Field(0.1, gt=0, description="learning rate of Adam")
    beta_2: float = Field(0.98, gt=0, lt=1, description="Adam's decay of the second moment")
    loss: Annotated[str, named_in(LOSSES)] = Field(
        "bce", description="bce: binary cross-entropy with sampled negatives; softmax: over the target and them"
    )
    personal: bool = Field(True, description="whether every client has its own prediction MLP")
    hidden: Annotated[int, ReadWith("personal", True)] = Field(
        80, ge=1, description="width of the MLP's hidden layer (values)"
    )
    teacher: Annotated[str, named_in(TEACHERS)] = Field(
        "previous_local", description="whose features are kept (FCUCR Eq. 3); received_global: as released"
    )
    distill: Annotated[str, named_in(DISTILL_WEIGHTS), TAUGHT] = Field(
        "constant", description="weight of the distillation: constant, or min(loss / distillation, weight) as released"
    )
    distill_weight: Annotated[float, TAUGHT] = Field(10.0, ge=0, description="lambda of FCUCR Eq. 8, or the clamp")
    prototypes: Literal["received", "trained", "none"] = Field(
        "received",
        description="whose prototype is sent: of the received encoder before training, answered in the same round "
        "(FCUCR Alg. 1); of the trained one, answered in the next round (as released); none: nothing is sent",
    )
    pooling: Annotated[str, named_in(PROTOTYPE_FORMS), SENT] = Field(
        "mean", description="a prototype: mean of a window's features, or all of them one after another (as released)"
    )
    asks_when_recommending: Annotated[bool, SENT] = Field(
        True, description="whether a device sends a prototype to recommend; else it uses the last reply (as released)"
    )
    receiver_noise: Annotated[float, SENT] = Field(
        0.0, ge=0, description="standard deviation of Gaussian noise on received replies, as released; no guarantee"
    )

    @model_validator(mode="after")
    def _prototypes_are_used(self) -> Self:
        if self.prototypes != "none" and not self.personal:
            raise ValueError("prototypes are read by the personal MLP: set personal to true, or prototypes to none")
        return self

    @property
    def reply(self) -> int:
        """Return the number of values of a prototype; 0: none is sent."""
        if self.prototypes == "none":
            return 0
        return PROTOTYPE_FORMS[self.pooling].size(self.dim, self.length)
