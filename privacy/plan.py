"""A plan is what the settings mean for a run, resolved before it starts: how much noise, where, what it guarantees."""

import math
from dataclasses import dataclass
from typing import Literal

from privacy.accounting import Guarantee, composed, noise_for
from privacy.correlated_noise import MOST_VALUES, CorrelatedNoise
from privacy.errors import InputError
from privacy.grid import LARGEST
from privacy.guarantee import Event, event_of
from privacy.mechanism import Noise, Norm
from privacy.prototypes import Prototypes
from privacy.settings import PrivacySettings
from privacy.trust import TRUSTS, Adjacency

MOST = 10**12  # rounds and clients of a cohort
FAR = 64.0  # noise is farther from 0 than so many scales with a probability below 1e-27


@dataclass(frozen=True)
class PrivacyPlan:
    """The numbers a run uses.

    `noise`: absolute, per coordinate (None: none). `where` it is added: to each upload, or once to the
    cohort's sum. `clip` in `norm`. `sensitivity` under `adjacency`, in `norm`. `promised`: the guarantee of a
    client that takes part in all `rounds` that `apart` lets it. `event`: one release of one client, for a ledger.
    `project`: values that each release is projected to before the clip (None: it is not). `values`: those of a release,
    where it is known.
    `apart`: rounds of which a client takes part in one at most; `band`: rounds over which noise is correlated.
    `tells_clip`: rounds tell, with noise, what the clip did. `clip_quantile`: share of updates that the clip follows to
    leave whole (None: it stays).
    `at_least`: clients without whom a round's sum stays closed. `prototypes`: what clients send beside their updates,
    with its own clip, noise and event (None: nothing).
    """

    noise: Noise | None
    where: Literal["each upload", "the sum", "nowhere"]
    clip: float | None
    norm: Norm
    adjacency: Adjacency
    sensitivity: float
    promised: Guarantee
    rounds: int
    cohort: int
    clients: int
    event: Event
    project: int | None = None
    values: int | None = None
    at_least: int = 1
    prototypes: Prototypes | None = None
    apart: int = 1
    band: int = 1
    tells_clip: bool = False
    clip_quantile: float | None = None

    @property
    def told(self) -> tuple[Noise | None, float] | None:
        """Return the noise and the clip, if rounds tell what the clip did."""
        return (self.noise, self.clip) if self.tells_clip and self.clip is not None else None

    @property
    def guarantees(self) -> bool:
        """Say whether the run guarantees anything at all."""
        return math.isfinite(self.promised.epsilon)

    @property
    def std_on_mean(self) -> float:
        """Return the standard deviation of the noise on each coordinate of the mean update of a cohort as planned."""
        return self.std_on_mean_of(self.cohort)

    def correlated(self) -> CorrelatedNoise | None:
        """Return what makes noise that is correlated over rounds, before round 1; None: each round's is independent."""
        return None if self.noise is None or self.band == 1 else CorrelatedNoise(self.band, self.noise.step)

    def std_on_mean_of(self, clients: int) -> float:
        """Return the standard deviation of the noise on each coordinate of the mean update of so many clients."""
        if self.noise is None:
            return 0.0
        return self.noise.std / (math.sqrt(clients) if self.where == "each upload" else clients)


def plan(
    settings: PrivacySettings,
    rounds: int,
    cohort: int,
    clients: int,
    weights: Literal["uniform", "size"] = "uniform",
    values: int | None = None,
    prototypes: Prototypes | None = None,
) -> PrivacyPlan:
    """Resolve `settings` for a run of `rounds` rounds of `cohort` clients out of `clients`.

    `weights` are the aggregation's: a weight that depends on a client's data size is not bounded by the clip, so no
    guarantee can be given with it. `values`: how many a release has, for reports. `prototypes`: what clients send
    beside their updates, which is composed with them. Raises `InputError` for impossible counts, for a budget below the
    cost of one release, for size weights where a guarantee is asked for, and for noise of too many steps of its grid.

    >>> settings = PrivacySettings(mechanism="gaussian", clip=1.0, epsilon=8.0)
    >>> resolved = plan(settings, rounds=40, cohort=94, clients=943)
    >>> round(resolved.noise.scale, 2), resolved.where, resolved.guarantees
    (3.81, 'the sum', True)
    """
    _check_counts(settings, rounds, cohort, clients)
    if settings.band > 1:
        _check_correlated(values, prototypes)
    times = settings.releases(rounds)
    noise = settings.noise(settings.scale_for(lambda epsilon: noise_for(epsilon, settings, times, prototypes)))
    if settings.clip is not None and noise is not None and noise.step is not None:
        largest = cohort * (settings.clip + FAR * noise.scale)
        if largest > LARGEST * noise.step:
            raise InputError(
                f"a sum of {cohort} updates has too many steps of 2 ** {math.log2(noise.step):g} to be exact: raise "
                "privacy.grid_exponent"
            )
    event = event_of(settings, noise.scale if noise else None)
    once, released = [(event, 1)], [(event, times)]
    if prototypes is not None:
        prototypes = prototypes.under(settings, noise.scale if noise else None)
        once.append((prototypes.event, 1))
        released.append(prototypes.release)
    promised = composed(released, settings.delta)
    if settings.budget is not None and (least := composed(once, settings.delta).epsilon) > settings.budget:
        raise InputError(
            f"one release costs an epsilon of {least:.4g}, so nobody could take part with a privacy.budget of "
            f"{settings.budget:g}: raise it, or add more noise"
        )
    if {"uniform": False, "size": True}[weights] and math.isfinite(promised.epsilon):
        raise InputError("size weights are not covered by the clip: with clip and noise set the weights to uniform")
    return PrivacyPlan(
        noise=noise,
        where=TRUSTS[settings.trust].where if noise else "nowhere",
        clip=settings.clip,
        norm=settings.norm,
        adjacency=settings.adjacency,
        sensitivity=settings.sensitivity,
        promised=promised,
        rounds=rounds,
        cohort=cohort,
        clients=clients,
        event=event,
        project=settings.project,
        values=values,
        at_least=settings.at_least,
        prototypes=prototypes,
        apart=settings.apart,
        band=settings.band,
        tells_clip=settings.tells_clip,
        clip_quantile=settings.quantile,
    )


def _check_correlated(values: int | None, prototypes: Prototypes | None) -> None:
    if values is not None and values > MOST_VALUES:
        raise InputError(
            f"correlated noise is accounted for in releases of up to {MOST_VALUES:,} values, not {values:,}: "
            "set privacy.correlated to false, or a smaller model"
        )
    if prototypes is not None:
        raise InputError(
            "correlated noise does not cover what clients send beside their updates: set privacy.correlated to false"
        )


def _check_counts(settings: PrivacySettings, rounds: int, cohort: int, clients: int) -> None:
    for name, value in (("rounds", rounds), ("cohort", cohort)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
        if value > MOST:
            raise InputError(f"{name} must be at most {MOST}")
    if cohort > clients:
        raise InputError(f"a cohort of {cohort} clients is more than the {clients} there are: ask for fewer per round")
    if cohort > (most := -(-clients // settings.apart)):
        raise InputError(
            f"of {clients} clients that come once in any {settings.apart} rounds, {most} can be in a cohort, not "
            f"{cohort}: lower privacy.apart, or ask for fewer per round"
        )
    if settings.at_least > cohort:
        raise InputError(
            f"at_least {settings.at_least} is more than the {cohort} clients of a round, so no round would count: "
            "lower it, or ask for more clients per round"
        )
