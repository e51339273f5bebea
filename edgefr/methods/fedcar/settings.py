"""These are FedCAR's settings: the context, its encoder, what travels for the contrast, and the learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from edgefr.config.validation import fault
from edgefr.methods.fedcar.parts import NEGATIVES, NORMS, EncoderForm
from privacy.prototypes import RELAYED, Prototypes
from privacy.setting_scope import ReadWithout, Settings, named_in

if TYPE_CHECKING:
    from edgefr.experiment.method import Context

IN_CONTEXT = ReadWithout("context", 0)
CONTRASTED = ReadWithout("negative", "none")


class FedCARSettings(Settings):
    """FedCAR scores a candidate in the context of the client's last items by a private layer (Wang et al., AAAI 2026).

    Its ablation (Table 3): context alone is ``negative: none``, neither is ``context: 0`` beside it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors (values)")
    context: int = Field(
        5, ge=0, le=1024, description="the paper's L: items before a candidate that it is seen with; 0: none"
    )
    heads: Annotated[int, IN_CONTEXT] = Field(
        1, ge=1, description="heads of the encoder's self-attention; must divide dim. The paper does not say"
    )
    feed_forward: Annotated[int | None, IN_CONTEXT] = Field(
        None, ge=1, description="width of the encoder's hidden layer (values); none: dim. The paper does not say"
    )
    norm: Annotated[str, named_in(NORMS), IN_CONTEXT] = Field(
        "post", description="where the encoder normalises: post (Vaswani et al., 2017), pre or none"
    )
    attention: Annotated[Literal["plain", "projected"], IN_CONTEXT] = Field(
        "plain",
        description="how a candidate attends to the context: plain (Eq. 13 as it stands has nothing to learn) or with "
        "learned projections of query, keys and values",
    )
    init_scale: float = Field(1.0, gt=0, description="standard deviation of the first item vectors, as PFedRec's")
    lr: float = Field(0.1, gt=0, description="SGD learning rate of the private score function")
    encoder_lr: Annotated[float | None, IN_CONTEXT] = Field(
        None, gt=0, description="SGD learning rate of the encoder in the first phase; none: lr, as the paper has it"
    )
    item_lr: float | None = Field(
        None,
        gt=0,
        description="SGD learning rate of item rows; none: lr x number of items x 80, as PFedRec's code (the paper's "
        "one rate for everything moves no row in 100 rounds)",
    )
    negative: Annotated[str, named_in(NEGATIVES)] = Field(
        "encoder",
        description="what another client sends for the contrast: encoder (Fig. 2: it is applied to the own context), "
        "vectors (its own c, Eq. 17), both (encoder and the rows of its last items, which tell what these are), none "
        "(no contrast)",
    )
    margin: Annotated[float, CONTRASTED] = Field(1.0, ge=0, description="delta of Eq. 20")
    contrast_lr: Annotated[float | None, CONTRASTED] = Field(
        None, gt=0, description="SGD learning rate of the encoder in the second phase; none: encoder_lr"
    )
    negative_noise: Annotated[float, CONTRASTED] = Field(
        0.1, ge=0, description="lambda of Eq. 18: scale of the Laplace noise on what is sent for the contrast"
    )
    alternates: Annotated[bool, CONTRASTED] = Field(
        True, description="whether a batch of the contrast follows each batch of the first phase, or all after all"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.dim % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.dim}: set heads to a divisor of dim")
        if not self.context and self.negative != "none":
            raise ValueError("without a context nothing is contrasted: set negative to none beside context 0")
        return self


def form_of(settings: FedCARSettings) -> EncoderForm:
    """Return the form of the encoder by these settings."""
    s = settings
    return EncoderForm(s.dim, s.context, s.heads, s.feed_forward or s.dim, NORMS[s.norm], s.attention == "projected")


AT = ("privacy", "tensors")


def check(context: Context) -> None:
    """Refuse, by `fault`, a contrast whose encoder no round trains: nobody would read its messages."""
    some = context.privacy.tensors
    if context.model["negative"] != "none" and some is not None and not any(map(_of_encoder, some)):
        raise fault("the contrast trains the encoder, and none of it is here: add some, or model.negative=none", *AT)


def _of_encoder(name: str) -> bool:
    return name.startswith("encoder.")


def messages(settings: FedCARSettings, context: Context) -> Prototypes | None:
    """Return messages by these settings; None where nothing is contrasted."""
    if settings.negative == "none":
        return None
    return Prototypes(
        NEGATIVES[settings.negative].values(form_of(settings)),
        context.total_rounds,
        nominal=settings.negative_noise,
        what="message for another's contrast",
        through="relay",
        off="model.negative=none",
        recipients=RELAYED,
    )
