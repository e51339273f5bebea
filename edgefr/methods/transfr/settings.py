"""These are the hyper-parameters of TransFR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from edgefr.config.validation import fault
from edgefr.experiment.continual import strategy
from edgefr.experiment.text_encoder import ENCODERS
from edgefr.methods import objectives
from edgefr.methods.objectives import ObjectiveSettings
from edgefr.methods.transfr.parts import ADAPTER_INITS, CLIENTS, HEADS
from privacy.setting_scope import ReadWith, ReadWithout, named_in

if TYPE_CHECKING:
    from edgefr.experiment.method import Context

Width = Annotated[int, Field(ge=1, le=65536)]
WIDEST, HIDDEN = 256, 64
LORA = ReadWith("client", "lora")
VECTOR = ReadWith("user_encoder", "vector")
LOCAL = ReadWithout("local_training_epochs", 0)


class TransFRSettings(ObjectiveSettings):
    """These are the settings of TransFR (Zhang et al., 2024), §3.2 and §4.1.4."""

    client: Annotated[str, named_in(CLIENTS)] = Field(
        "mlp",
        description="mlp: the text's frozen vector is read from a table; lora: the device runs the encoder itself and "
        "trains low-rank matrices in its attention, with the adapter on top",
    )
    lora_rank: Annotated[int, LORA] = Field(8, ge=1, le=1024, description="lora: rank r of the matrices")
    lora_alpha: Annotated[float, LORA] = Field(
        16.0, gt=0, description="lora: their product is scaled by lora_alpha / lora_rank"
    )
    lora_targets: Annotated[list[Literal["query", "key", "value"]], LORA] = Field(
        ["query", "value"], min_length=1, description="lora: projections of these layers that get a pair of matrices"
    )
    lora_layers: Annotated[int, LORA] = Field(
        2,
        ge=1,
        le=256,
        description="lora: so many of the encoder's last layers get matrices, at most all; what is below them is read "
        "once of every title and not in every step",
    )
    lora_lr: Annotated[float, LORA] = Field(1e-3, gt=0, description="lora: learning rate of the matrices")
    adapter: list[Width] | None = Field(
        [128, 64, 32],
        min_length=1,
        description=f"widths of the federated adapter after the text; none: one linear layer as wide as the text, at "
        f"most {WIDEST}, which starts with nearly all that the text says",
    )
    head: Annotated[list[Width] | None, ReadWithout("head_form", "adapter")] = Field(
        [64, 32],
        min_length=1,
        description=f"widths of the local head; the last must equal the adapter's; none: {HIDDEN} and the adapter's",
    )
    head_form: Annotated[str, named_in(HEADS)] = Field(
        "residual",
        description="residual: v + MLP(v), last layer starts at 0, so the head starts from what was learned together; "
        "plain: MLP(v) from random weights, as Eq. 12 reads; adapter: the head stands on the encoder in the adapter's "
        "place, in its form, and goes on from what rounds made of it, as §4.1.4 and Figure 5 have its widths",
    )
    adapter_init: Annotated[str, named_in(ADAPTER_INITS)] = Field(
        "pca",
        description="pca: the untrained adapter is the projection of the item texts on their main directions, so that "
        "training starts from what the texts say; random: He-normal weights. The paper does not say",
    )
    adapter_norm: Annotated[float, ReadWith("adapter_init", "pca")] = Field(
        2.0, gt=0, description="pca: root mean square length of the first item vectors"
    )
    keep: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of what rounds changed in the adapter that is kept: first + keep x (trained - first); less "
        "than 1 gives up some of what was learned in one domain for the sake of others (Wortsman et al., CVPR 2022)",
    )
    adapter_fit: Annotated[Literal["source", "all"], ReadWith("adapter_init", "pca")] = Field(
        "all",
        description="pca: across domains, whose texts' main directions these are: of the domain that is learned in, or "
        "of all items, those of the domain that is recommended in too",
    )
    user_encoder: Literal["vector", "mean"] = Field(
        "vector",
        description="vector: an independent p_u per user (the paper's choice); mean: p_u = mean of the vectors of the "
        "user's items (§3.2.3), an example's own item left out while training",
    )
    match: Literal["inner", "neural"] = Field(
        "inner",
        description="f of Eq. 13, what scores an item; inner: the inner product <p_u, q_i>; neural: an MLP of "
        "[p_u, q_i] with one hidden layer as wide as q_i, which rounds train with the adapter (He et al., WWW 2017)",
    )
    local_trains: Annotated[Literal["head", "head and user"], VECTOR, LOCAL] = Field(
        "head", description="what local training changes (Algorithm 1: head)"
    )
    local_training_epochs: int = Field(6, ge=0, le=1000, description="epochs of local training after the last round")
    sends: Annotated[Literal["update", "gradients"], ReadWith("client", "mlp")] = Field(
        "update",
        description="what a client sends of the adapter; update: how its own steps changed it; gradients: it leaves "
        "the adapter as it came in all of a round's epochs, adds up the gradients and sends their sum, by which the "
        "server steps at aggregation.server_lr (Algorithm 1, Eq. 5 and 8)",
    )
    reduction: Annotated[Literal["mean", "sum"], ReadWith("loss", "bce")] = Field(
        "mean",
        description="what a batch's loss is; mean: over its examples; sum: of them (Eq. 6), so that whoever has more "
        "moves further",
    )
    optimiser: Literal["adam", "sgd"] = Field("adam", description="optimiser on the device, fresh every round")
    lr: float = Field(1e-3, gt=0, description="learning rate on the device (the paper's eta_c)")
    user_lr: Annotated[float | None, VECTOR] = Field(
        0.03,
        gt=0,
        description="learning rate of the user vector; none: the same lr, as in the paper, with which a vector that "
        "trains in about two rounds hardly moves",
    )
    head_lr: Annotated[float | None, LOCAL] = Field(
        None, gt=0, description="learning rate of the head; none: the same lr"
    )
    init_scale: Annotated[float, VECTOR] = Field(0.1, gt=0, description="standard deviation of the first user vectors")

    def widths(self, text: int) -> tuple[list[int], list[int]]:
        """Return the widths of adapter and local head over texts of `text` values, each with its input first."""
        adapter = [text, *(self.adapter or [min(text, WIDEST)])]
        return adapter, [adapter[-1], *(self.head or [HIDDEN, adapter[-1]])]

    @field_validator("lora_targets")
    @classmethod
    def _once_each(cls, targets: list[str]) -> list[str]:
        if len(set(targets)) < len(targets):
            raise ValueError(f"name each projection once, got {targets}")
        return targets


def check(context: Context) -> None:
    """Refuse, by `fault`, clients that train an encoder's attention where it has none, and odd losses."""
    objectives.check(context)
    if context.model["keep"] < 1 and context.protocol.name == "blocks":
        raise fault(
            "blocks go on from one another, and each would give up more of the first: keep all, 1", "model", "keep"
        )
    _check_as_written(context)
    kind = context.encoder
    if CLIENTS[context.model["client"]].reads and not ENCODERS[kind].language_model:
        problem = f"it trains a language model's attention, and encoder.kind={kind} has none; set encoder.kind=student"
        raise fault(problem, "model", "client")


def _check_as_written(context: Context) -> None:
    """Refuse what goes with the paper's clients alone where others are asked for."""
    model = context.model
    weighed = context.privacy.examples is not None or strategy(context.strategy).remembers != "nothing"
    if model["reduction"] == "sum" and weighed:
        raise fault("privacy.examples and replays weigh examples themselves: use mean", "model", "reduction")
    if model["sends"] == "gradients" and model["optimiser"] != "sgd":
        raise fault("gradients add up as steps of sgd do: set model.optimiser=sgd", "model", "sends")
    if HEADS[model["head_form"]].own_adapter and CLIENTS[model["client"]].reads:
        problem = "it stands on the encoder's vectors, which a client that reads texts makes anew: use residual"
        raise fault(problem, "model", "head_form")
