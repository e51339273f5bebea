"""These settings are what an experiment says about privacy; each mechanism's file adds what it alone reads."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from privacy.errors import InputError
from privacy.grid import LONGEST_SCALE, step_for
from privacy.mechanism import MECHANISMS, SAMPLERS, Noise, Norm, law_of
from privacy.setting_scope import named_in
from privacy.table import Choice, Table
from privacy.trust import TRUSTS, Adjacency

TOLD = 1 / 20
"""A client says in two more values of its release whether the clip shortened its update and what part of its length was
kept, each from 0 to this part of the clip. That takes 1.0025 times the noise (Andrew et al. 2021, Section 3)."""


class ExampleSettings(BaseModel):
    """This is DP-SGD on the device: every example's gradient is clipped, and every step's sum is noised.

    One example is one interaction with the negatives drawn for it. This is a guarantee about an interaction, not about
    a client: it neither needs nor replaces clip and noise of whole updates. `delta` is that of the privacy settings.

    >>> ExampleSettings(clip=1.0, sigma=2.0).sigma
    2.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    clip: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="bound on the L2 norm of an example's gradient (all trained tensors jointly)",
    )
    sigma: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="standard deviation of the noise of a step's summed gradients / clip",
    )
    epsilon: float | None = Field(
        None, gt=0, description="epsilon to keep over all steps; the noise is calibrated to it; inf: clip, no noise"
    )

    @model_validator(mode="after")
    def _one_noise(self) -> Self:
        if (self.sigma is None) == (self.epsilon is None):
            found = "neither" if self.sigma is None else "both"
            raise ValueError(f"noise of examples needs exactly one of sigma, epsilon; got {found}")
        return self


class PrivacySettings(Choice):
    """Clip and noise of the updates, and whom the clients trust.

    `mechanism` names the entry of `MECHANISMS` whose settings these are. The noise is named in one of three ways:
    `sigma` (relative to the clip), `epsilon` (calibrated for all rounds) or `scale` (absolute, as papers print it).
    Without a clip nothing is guaranteed, whatever the noise.

    >>> PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, epsilon=8.0).sensitivity
    2.0
    """

    model_config = ConfigDict(ser_json_inf_nan="strings")
    table: ClassVar[Table[Any]] = MECHANISMS
    key: ClassVar[str] = "mechanism"

    mechanism: str = Field(
        "none",
        description="law of the noise: none, gaussian, laplace, discrete-gaussian, discrete-laplace; paper-laplace: as "
        "papers add it, to updates nobody clipped",
    )
    trust: Annotated[str, named_in(TRUSTS)] = Field(
        "central",
        description="local: each client noises its own upload; central: the server noises the sum once",
    )
    clip: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="bound on the norm of a client's whole update (all tensors jointly)",
    )
    norm: Norm = Field("l2", description="norm that is clipped")
    prototype_clip: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="bound on the norm of a prototype, in norm; none: as clip. Its noise is that of the update times "
        "this bound over clip",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of (epsilon, delta); should be below 1 / clients")
    budget: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="epsilon at delta that no client may exceed: whoever would sits out; none: no limit",
    )
    project: int | None = Field(
        None,
        ge=1,
        description="values of a release: the whole update goes through a public random projection to so many, new "
        "in every round, and is clipped after it; none: the update itself",
    )
    tensors: list[str] | None = Field(
        None,
        min_length=1,
        description="shared tensors that rounds train and release, by name; the others stay as they were broadcast; "
        "none: all",
    )
    at_least: int = Field(
        1,
        ge=1,
        description="central trust: the sum of a round with fewer clients stays closed, and nothing is learned from it",
    )
    apart: int = Field(
        1,
        ge=1,
        le=1000,
        description="rounds of which a client takes part in one at most, wherever they begin; 1: it may take part in "
        "every round",
    )
    examples: ExampleSettings | None = Field(
        None, description="DP-SGD on the device: a guarantee about single interactions; none: plain steps"
    )

    @classmethod
    def _besides(cls, key: str, values: Mapping[str, Any]) -> str:
        lacks = key in ("sigma", "epsilon") and values.get("clip") is None
        return f"; {key} needs a clip too: set clip" if lacks else ""

    @model_validator(mode="after")
    def _is_trusted(self) -> Self:
        trusts = self.entry.trusts
        if self.trust not in trusts:
            fit = " or ".join(trusts)
            raise ValueError(f"{self.mechanism} cannot run under trust {self.trust}: set trust to {fit}")
        return self

    @model_validator(mode="after")
    def _clips_both(self) -> Self:
        if self.prototype_clip is not None and self.clip is None:
            raise ValueError("prototype_clip goes beside a clip of the update, without which nothing is kept: set clip")
        return self

    @model_validator(mode="after")
    def _has_a_sum(self) -> Self:
        if self.at_least > 1 and TRUSTS[self.trust].sees_uploads:
            raise ValueError(
                f"at_least closes a sum, and under {self.trust} trust the server sees each upload: drop it"
            )
        return self

    @model_validator(mode="after")
    def _budget_can_be_kept(self) -> Self:
        if self.budget is not None and not self.bounded:
            raise ValueError("a budget needs a clip and noise: without them one release costs more than any budget")
        return self

    @property
    def law(self) -> str | None:
        """Return the mechanism whose noise is drawn (None: none)."""
        return None

    @property
    def step(self) -> float | None:
        """Step of the grid that updates are rounded to, in their units (None: there is no grid)."""
        return None

    @property
    def band(self) -> int:
        """Return the number of rounds over which noise is correlated (1: each round's is independent)."""
        return 1

    def releases(self, rounds: int) -> int:
        """Return how often a client releases in so many rounds, at most."""
        return -(-rounds // self.apart)

    @property
    def bounded(self) -> bool:
        """Say whether anything is guaranteed: there is noise, on updates of bounded length."""
        return self.law is not None and self.clip is not None

    def scale_for(self, calibrated: Callable[[float], float]) -> float | None:
        """Return the absolute scale of the noise (None: no noise). `calibrated` says which one keeps an epsilon."""
        return None

    def noise(self, scale: float | None) -> Noise | None:
        """Return noise of this absolute scale, as these settings draw it (None: none)."""
        return None if self.law is None or scale is None else Noise(self.law, scale)

    @property
    def adjacency(self) -> Adjacency:
        """Say which two worlds are compared: a client's data replaced by other data, or its update by zeros."""
        return TRUSTS[self.trust].adjacency

    @property
    def quantile(self) -> float | None:
        """Return the share of updates that the clip is moved to leave whole (None: it stays)."""
        return None

    @property
    def tells_clip(self) -> bool:
        """Say whether the server is told, with noise, what the clip did to a round's updates (`TOLD`)."""
        return False

    @property
    def stretch(self) -> float:
        """Return the sensitivity of all that a client releases over that of its update alone."""
        return 1.0

    @property
    def sensitivity(self) -> float:
        """Farthest one client's update can move what is noised, in `norm`: 2 C local, C central, inf without a clip.

        Rounding to a grid, toward zero, makes no update longer, so it adds nothing.
        """
        return math.inf if self.clip is None else TRUSTS[self.trust].reach * self.clip


class NoiseSettings(PrivacySettings):
    """Every mechanism reads these that adds noise to clipped updates; its entry's settings are a subclass.

    >>> settings = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=4.0)
    >>> settings.law, settings.step == 2.0**-15
    ('discrete-gaussian', True)
    """

    sigma: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="standard deviation of the noise / clip; a Laplace scale is b = sigma * clip / sqrt(2)",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="epsilon to keep over all rounds; the noise is calibrated to it; inf: clip, no noise",
    )
    scale: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="absolute noise, in units of the update: std of a Gaussian, b of a Laplace",
    )
    sampler: Annotated[str | None, named_in(SAMPLERS)] = Field(
        None,
        description="grid: update and noise are whole steps of 2 ** grid_exponent, the noise of real devices exact; "
        "float: simulation-grade, and bundles only recommend; none: grid where updates are clipped",
    )
    grid_exponent: int | None = Field(
        None, ge=-60, le=20, description="k of the grid 2 ** k; none: 15 below the clip's own power of two"
    )

    @model_validator(mode="after")
    def _one_noise(self) -> Self:
        given = [name for name in ("sigma", "epsilon", "scale") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            clip = "" if given or self.clip is not None else "; sigma and epsilon need a clip too: set clip"
            raise ValueError(f"{self.mechanism} noise needs exactly one of sigma, epsilon, scale; got {found}{clip}")
        if self.clip is None and given[0] != "scale":
            raise ValueError(
                f"{given[0]} needs a clip: set clip, or give the noise as scale (which guarantees nothing)"
            )
        return self

    @model_validator(mode="after")
    def _sound_grid(self) -> Self:
        if self.grid_exponent is not None and not self.on_grid:
            raise ValueError("a grid_exponent is read by sampler grid alone, of clipped updates: drop it, or set both")
        if self.on_grid and self.clip is None:
            raise ValueError("sampler grid needs a clip: without one the noise protects nothing")
        drawn, law = "grid" if self.on_grid else "float", self.law
        assert law is not None
        if self.sampler not in (None, drawn):
            raise ValueError(f"sampler {self.sampler} draws noise of no mechanism here: set sampler to grid or float")
        if drawn not in (samplers := law_of(law).samplers):
            fit = f"set sampler to {' or '.join(samplers)}" + (", and a clip" if drawn == "float" else "")
            raise ValueError(f"sampler {drawn} draws no {law} noise: {fit}")
        return self

    @property
    def on_grid(self) -> bool:
        """Say whether updates and noise are whole steps of a grid: as `sampler` says, else where that is possible."""
        if self.sampler is None:
            return self.clip is not None and law_of(self.mechanism).on_grid is not None
        return SAMPLERS[self.sampler].on_grid

    @property
    def law(self) -> str | None:
        return (law_of(self.mechanism).on_grid if self.on_grid else None) or self.mechanism

    @property
    def step(self) -> float | None:
        """Return the step of the grid, a power of two, so that sums of its multiples are exact."""
        if not self.on_grid or self.clip is None:
            return None
        return step_for(self.clip) if self.grid_exponent is None else 2.0**self.grid_exponent

    @property
    def bounded(self) -> bool:
        """Say whether anything is guaranteed: an infinite epsilon asks for no noise."""
        return super().bounded and self.epsilon != math.inf

    def scale_for(self, calibrated: Callable[[float], float]) -> float | None:
        """Return the absolute scale, named in one of the three ways (None for an infinite epsilon).

        On a grid it is rounded up to whole steps, which is more noise than was asked for, never less.
        """
        if self.scale is not None:
            return self._whole(self.scale)
        if self.epsilon is not None:
            return None if self.epsilon == math.inf else self._whole(calibrated(self.epsilon))
        assert self.sigma is not None
        assert self.clip is not None
        assert self.law is not None
        return self._whole(law_of(self.law).scale_of(self.sigma * self.clip))

    def noise(self, scale: float | None) -> Noise | None:
        return None if self.law is None or scale is None else Noise(self.law, self._whole(scale), self.step)

    def _whole(self, scale: float) -> float:
        """Return a scale in whole steps of the grid, where there is one. Raises `InputError` for too many of them."""
        if self.step is None:
            return scale
        steps = max(1, math.ceil(scale / self.step))
        if steps > LONGEST_SCALE:
            raise InputError(
                f"noise of {scale:g} is {steps:,} steps of 2 ** {math.log2(self.step):g}, and an upload of 32-bit "
                f"numbers takes {LONGEST_SCALE:,}: raise privacy.grid_exponent"
            )
        return steps * self.step
