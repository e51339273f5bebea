"""What the settings mean for a run, resolved before it starts: how much noise, where, what it guarantees."""

import math
from dataclasses import dataclass
from typing import Literal

from privacy.accounting import Guarantee, epsilon, noise_for
from privacy.errors import InputError
from privacy.mechanism import Noise
from privacy.settings import Norm, PrivacySettings


@dataclass(frozen=True)
class Plan:
    """The numbers a run uses.

    `noise`: absolute, per coordinate (None: none). `where` it is added: to each upload, or once to the
    cohort's sum. `clip` in `norm`. `sensitivity` under `adjacency`, in `norm`. `promised`: the guarantee of a
    client that takes part in all `rounds`.
    """

    noise: Noise | None
    where: Literal["each upload", "the sum", "nowhere"]
    clip: float | None
    norm: Norm
    adjacency: Literal["replace-one", "zero-out"]
    sensitivity: float
    promised: Guarantee
    rounds: int
    cohort: int
    clients: int

    @property
    def guarantees(self) -> bool:
        """Whether the run guarantees anything at all."""
        return math.isfinite(self.promised.epsilon)

    @property
    def std_on_mean(self) -> float:
        """Standard deviation of the noise on each coordinate of the cohort's mean update."""
        if self.noise is None:
            return 0.0
        return self.noise.std / (math.sqrt(self.cohort) if self.where == "each upload" else self.cohort)


def plan(
    settings: PrivacySettings,
    rounds: int,
    cohort: int,
    clients: int,
    weights: Literal["uniform", "size"] = "uniform",
) -> Plan:
    """Resolve `settings` for a run of `rounds` rounds of `cohort` clients out of `clients`.

    `weights` are the aggregation's: a weight that depends on a client's data size is not bounded by the clip,
    so no guarantee can be given with it. Raises `InputError` for impossible counts, and for size weights
    where a guarantee is asked for.

    >>> settings = PrivacySettings(mechanism="gaussian", clip=1.0, epsilon=8.0)
    >>> resolved = plan(settings, rounds=40, cohort=94, clients=943)
    >>> round(resolved.noise.scale, 3), resolved.where, resolved.guarantees
    (3.796, 'the sum', True)
    """
    for name, value in (("rounds", rounds), ("cohort", cohort)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    if cohort > clients:
        raise InputError(f"a cohort of {cohort} clients is more than the {clients} there are: ask for fewer per round")
    noise = _noise(settings, rounds)
    promised = epsilon(settings, rounds, noise.scale if noise else None)
    if weights == "size" and math.isfinite(promised.epsilon):
        raise InputError("size weights are not covered by the clip: with clip and noise set the weights to uniform")
    where: Literal["each upload", "the sum", "nowhere"] = "each upload" if settings.trust == "local" else "the sum"
    return Plan(
        noise=noise,
        where=where if noise else "nowhere",
        clip=settings.clip,
        norm=settings.norm,
        adjacency=settings.adjacency,
        sensitivity=settings.sensitivity,
        promised=promised,
        rounds=rounds,
        cohort=cohort,
        clients=clients,
    )


def _noise(settings: PrivacySettings, rounds: int) -> Noise | None:
    """The absolute noise that the settings name in one of their three ways."""
    if settings.mechanism == "none" or settings.epsilon == math.inf:
        return None
    if settings.scale is not None:
        return Noise(settings.mechanism, settings.scale)
    if settings.epsilon is not None:
        return Noise(settings.mechanism, noise_for(settings.epsilon, settings, rounds))
    assert settings.sigma is not None
    assert settings.clip is not None
    std = settings.sigma * settings.clip
    return Noise(settings.mechanism, std / math.sqrt(2.0) if settings.mechanism == "laplace" else std)
