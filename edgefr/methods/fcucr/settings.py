"""These are FCUCR's settings: the backbone, what makes it personal, and what the server's reply is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from edgefr.methods.fcucr.parts import DISTILL_WEIGHTS, ENCODERS, LOSSES, PROTOTYPE_FORMS, TEACHERS
from privacy.prototypes import Prototypes
from privacy.setting_scope import ReadWith, ReadWithout, Settings, named_in

if TYPE_CHECKING:
    from edgefr.experiment.method import Context
    from edgefr.methods.fcucr.prediction import Prediction

ATTENTION = ReadWith("encoder", "sasrec", "tisasrec")
TAUGHT = ReadWithout("teacher", "none")
RECEIVED = ReadWith("teacher", "received_global")
SENT = ReadWithout("prototypes", "none")
TRAINED = ReadWith("prototypes", "trained")
PERSONAL = ReadWith("personal", True)
SOFTMAX = ReadWith("loss", "softmax", "full-softmax")


class FCUCRSettings(Settings):
    """FCUCR is a sequential backbone with self-distillation and transferred prototypes.

    The backbones alone (Fed-SASRec, ...) are `teacher: none`, `prototypes: none`, `personal: false`; without TASD is
    `teacher: none`, without IUPR `prototypes: none`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: Annotated[str, named_in(ENCODERS)] = Field("sasrec", description="the sequential backbone")
    dim: int = Field(50, ge=1, description="width of item vectors and features (values)")
    length: int = Field(15, ge=1, le=1024, description="positions of a window: the newest items of a session (items)")
    heads: Annotated[int, ATTENTION] = Field(1, ge=1, description="attention heads; must divide dim (sasrec, tisasrec)")
    layers: Annotated[int, ATTENTION] = Field(1, ge=1, description="blocks of the encoder (sasrec, tisasrec)")
    spans: Annotated[int, ReadWith("encoder", "tisasrec")] = Field(
        256, ge=1, description="largest interval that is distinguished, in units of the smallest (tisasrec)"
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
    unit: bool = Field(
        False,
        description="whether item vectors, and what is compared with them, are read at unit length, as the session "
        "rivals read them (ours, not the paper's)",
    )
    starts: Literal["broadcast", "own"] = Field(
        "broadcast",
        description="what a client starts its first round from if that is the run's first: the broadcast, or a random "
        "net of its own (as released); own scales the encoder's first broadcast as init_scale says of item vectors",
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of values dropped while the encoder trains, and of prototypes (.2 as released)",
    )
    lr: float = Field(0.1, gt=0, description="learning rate of Adam")
    beta_2: float = Field(0.98, gt=0, lt=1, description="Adam's decay of the second moment")
    loss: Annotated[str, named_in(LOSSES)] = Field(
        "bce",
        description="bce: binary cross-entropy with sampled negatives; softmax: over the target and them; "
        "full-softmax: over the whole catalogue, of which a client then trains every row",
    )
    temperature: Annotated[float, SOFTMAX] = Field(
        1.0, gt=0, description="what scores are divided by in the loss (softmax, full-softmax)"
    )
    gradient_clip: float | None = Field(
        None,
        gt=0,
        description="largest joint length of a step's gradients, to which longer ones are cut; none: as they are. It "
        "steadies steps and guarantees nothing (privacy.clip does)",
    )
    personal: bool = Field(True, description="whether every client has its own prediction MLP")
    hidden: Annotated[int, PERSONAL] = Field(80, ge=1, description="width of the MLP's hidden layer (values)")
    mlp_init: Annotated[Literal["uniform", "xavier"], PERSONAL] = Field(
        "uniform", description="first weights of the MLP: uniform in 1/sqrt(fan-in), or Xavier-normal (as released)"
    )
    dice_scaled: Annotated[bool, PERSONAL] = Field(
        False, description="whether what Dice standardises has a trained scale and shift (as released)"
    )
    dice_over: Annotated[Literal["real", "all"], PERSONAL] = Field(
        "real", description="positions Dice standardises over: real: of items; all: padding too (as released)"
    )
    dice_running: Annotated[bool, PERSONAL] = Field(
        False,
        description="whether scores are made with running averages of Dice's mean and variance over training steps "
        "(as released), else with those of the window that is scored",
    )
    negatives_once: bool = Field(
        False, description="whether a round's negatives are drawn once (as released), else anew in every local epoch"
    )
    teacher: Annotated[str, named_in(TEACHERS)] = Field(
        "previous_local", description="whose features are kept (FCUCR Eq. 3); received_global: as released"
    )
    distill: Annotated[str, named_in(DISTILL_WEIGHTS), TAUGHT] = Field(
        "constant", description="weight of the distillation: constant, or min(loss / distillation, weight) as released"
    )
    distill_weight: Annotated[float, TAUGHT] = Field(10.0, ge=0, description="lambda of FCUCR Eq. 8, or the clamp")
    distill_first: Annotated[bool, RECEIVED] = Field(
        True, description="whether a client is distilled in its first round; in the released code it is not"
    )
    distill_over: Annotated[Literal["real", "all"], TAUGHT] = Field(
        "real", description="positions the distillation is the mean over: real, or all: padding too (as released)"
    )
    prototypes: Literal["received", "trained", "none"] = Field(
        "received",
        description="whose prototype is sent: of the received encoder before training, answered in the same round "
        "(FCUCR Alg. 1); of the trained one, answered in the next round (as released); none: nothing is sent",
    )
    pooling: Annotated[str, named_in(PROTOTYPE_FORMS), SENT] = Field(
        "mean", description="a prototype: mean of a window's features, or all of them one after another (as released)"
    )
    prototype_of: Annotated[Literal["end", "last_step"], TRAINED] = Field(
        "end",
        description="whose features a trained prototype is made of: those of the net at the end of a round; last_step: "
        "of the net before the round's last step, but for a client's first round (as released)",
    )
    query: Annotated[Literal["sent", "next"], TRAINED] = Field(
        "sent",
        description="what the server looks for neighbours of: the prototype that was sent, or a second one, of the "
        "session that the client meets next (as released)",
    )
    asks_when_recommending: Annotated[bool, SENT] = Field(
        True, description="whether a device sends a prototype to recommend (as released); else it uses the last reply"
    )
    receiver_noise: Annotated[float, SENT] = Field(
        0.0, ge=0, description="standard deviation of Gaussian noise on received replies, as released; no guarantee"
    )

    @model_validator(mode="after")
    def _prototypes_are_used(self) -> Self:
        if self.prototypes != "none" and not self.personal:
            raise ValueError("prototypes are read by the personal MLP: set personal to true, or prototypes to none")
        return self

    @model_validator(mode="after")
    def _bias_has_no_length(self) -> Self:
        if self.unit and self.item_bias:
            raise ValueError("a bias would count in the length of an item's row: set unit or item_bias to false")
        return self

    @property
    def reply(self) -> int:
        """Return the number of values of a prototype; 0: none is sent."""
        if self.prototypes == "none":
            return 0
        return PROTOTYPE_FORMS[self.pooling].size(self.dim, self.length)

    @property
    def beyond_devices(self) -> str | None:
        """Return what of the settings no device does while it learns; None: a device does all."""
        if self.query == "next":
            return "no device knows the session that it meets next (set model.query=sent)"
        if self.prototype_of == "last_step":
            return "no device keeps what its last step was taken on (set model.prototype_of=end)"
        if self.dice_running:
            return "no device averages over its steps (set model.dice_running=false)"
        return "no device drops values while it trains (set model.dropout=0)" if self.dropout else None

    @property
    def mlp(self) -> Prediction | None:
        """Return the prediction MLP; None: clients have none."""
        if not self.personal:
            return None
        from edgefr.methods.fcucr.prediction import Prediction

        return Prediction(
            self.dim,
            self.hidden,
            scaled=self.dice_scaled,
            padding=self.dice_over == "all",
            running=self.dice_running,
            xavier=self.mlp_init == "xavier",
        )


def messages(settings: FCUCRSettings, context: Context) -> Prototypes | None:
    """Return prototypes by these settings; None where none are sent."""
    if settings.prototypes == "none":
        return None
    transfers = -(-context.rounds // context.interval)
    queried = settings.prototypes == "trained" and settings.query == "next"
    return Prototypes(settings.reply, transfers, settings.asks_when_recommending, queried, settings.receiver_noise)
