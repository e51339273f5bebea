"""These are the hyper-parameters of NeuMF."""

from pydantic import BaseModel, ConfigDict, Field, field_validator


class NeuMFSettings(BaseModel):
    """NeuMF is GMF and an MLP with vectors of their own, fused in the last layer (He et al. 2017, §3.4)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    dim: int = Field(32, ge=1, le=4096, description="width of GMF's user and item vectors")
    tower: list[int] = Field(
        [64, 32, 16], min_length=1, description="widths of the MLP, its input first: a user's and an item's vector"
    )
    lr: float = Field(2e-3, gt=0, description="learning rate of Adam")
    l2: float = Field(0.001, ge=0, description="weight of the squared length of the vectors that a batch reads")
    init_scale: float = Field(0.01, gt=0, description="standard deviation of the first vectors")
    epochs: int = Field(100, ge=1, le=100_000, description="passes over everybody's interactions, at most")
    patience: int = Field(10, ge=1, description="epochs without a better validation after which learning ends")

    @field_validator("tower")
    @classmethod
    def _two_vectors(cls, tower: list[int]) -> list[int]:
        if min(tower) < 1 or tower[0] % 2:
            raise ValueError(f"widths are at least 1, and the first is even, of two vectors; got {tower}")
        return tower
