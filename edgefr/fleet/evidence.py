"""Every figure of a fleet says where it comes from: measured, proxy, derived or estimate."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from privacy.setting_scope import Settings

Kind = Literal["M", "P", "D", "E"]
EVIDENCE = {"M": "measured", "P": "proxy", "D": "derived", "E": "estimate"}
_NUMBER = {"strict": True, "allow_inf_nan": False}
Positive = Annotated[float, Field(gt=0, **_NUMBER)]
NotNegative = Annotated[float, Field(ge=0, **_NUMBER)]
Fraction = Annotated[float, Field(ge=0, le=1, **_NUMBER)]
Count = Annotated[int, Field(gt=0, strict=True)]


def _sums_to_one(shares: dict[str, float]) -> dict[str, float]:
    total = sum(shares.values())
    if abs(total - 1.0) > 1e-6:
        problem = f"the shares sum to {total:.6g}, not 1; change them so that they do"
        raise PydanticCustomError("shares", "{problem}", {"problem": problem})
    return shares


Shares = Annotated[dict[str, Fraction], AfterValidator(_sums_to_one)]


class FleetPart(Settings):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Source(FleetPart):
    """A source says where figures come from."""

    url: str | None = Field(None, description="address of the page or file")
    doi: str | None = Field(None, description="digital object identifier of the paper")
    licence: str | None = Field(None, description="licence of the data, where it states one")
    note: str | None = Field(None, description="what to know about it")


class Evidence(FleetPart):
    """Evidence says how good a figure is: its kind and its source."""

    kind: Kind = Field(description="M measured, P measured on a proxy, D derived by arithmetic from M or P, E estimate")
    src: str | None = Field(None, description="key in `sources`; needed unless the kind is E")
    note: str | None = Field(None, description="what to know about the figure")

    @model_validator(mode="after")
    def _has_source(self) -> "Evidence":
        if self.kind != "E" and self.src is None:
            problem = f"kind {self.kind} needs a source; add src, or say kind: E (estimate)"
            raise PydanticCustomError("source", "{problem}", {"problem": problem})
        return self


class Figure(Evidence):
    """One number with its evidence, in the unit its field says. A bare number is an estimate."""

    v: Positive = Field(description="the value")
    lo: Positive | None = Field(None, description="low end over devices of the class, same unit")
    hi: Positive | None = Field(None, description="high end over devices of the class, same unit")
    proxy: str | None = Field(None, description="what was measured in its place, for kind P")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {"v": value, "kind": "E"} if is_number else value

    @model_validator(mode="after")
    def _ordered(self) -> "Figure":
        if not (self.lo or self.v) <= self.v <= (self.hi or self.v):
            problem = f"lo <= v <= hi does not hold: {self.lo}, {self.v}, {self.hi}"
            raise PydanticCustomError("range", "{problem}", {"problem": problem})
        return self
