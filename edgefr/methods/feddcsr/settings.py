"""These are the hyper-parameters of FedDCSR."""

from pydantic import BaseModel, ConfigDict, Field


class FedDCSRSettings(BaseModel):
    """FedDCSR has a variational encoder that domains share, and each one of its own (Zhang et al., SDM 2024)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=4096, description="width of item vectors and of what sequences come to")
    length: int = Field(16, ge=2, le=1024, description="positions of a sequence: the newest items of a user (items)")
    lr: float = Field(3e-3, gt=0, description="learning rate of Adam, one of each domain's own")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first item vectors")
    apart: float = Field(2.0, ge=0, description="weight of keeping shared and exclusive representations apart (beta)")
    exclusive: float = Field(
        1.0, ge=0, description="weight of predicting by the exclusive representation alone (gamma)"
    )
    contrast: float = Field(
        1.0, ge=0, description="weight of the contrast between a sequence and itself in another order (lambda)"
    )
    margin: float = Field(0.3, gt=0, description="margin by which the two representations must differ")
    temperature: float = Field(1.0, gt=0, description="what cosines are divided by in the contrast")
    annealing: int = Field(
        10_000, ge=1, description="steps until the divergence from the prior has its whole weight, 1"
    )
    epochs: int = Field(20, ge=1, le=100_000, description="rounds, of an epoch in each domain, at most")
    patience: int = Field(5, ge=1, description="rounds without a better validation after which learning ends")
    folds: int = Field(
        2, ge=2, le=100, description="parts of the users: each is tested as cold by a model without its target items"
    )
