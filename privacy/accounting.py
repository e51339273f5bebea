"""Accounting says what epsilon a number of noised releases costs, and how much noise an epsilon needs.

A fixed-size cohort is drawn without replacement and the server knows who takes part, so nothing is amplified unless an
event says that its sampling is Poisson.
"""

import importlib
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from privacy.errors import InputError
from privacy.guarantee import ORDERS, Event, event_of
from privacy.prototypes import Prototypes
from privacy.settings import PrivacySettings

PLD_GRID = 1e-3  # step of the discretised privacy loss; rounded up, so the epsilon is an upper bound
PLD_SMALLEST = 0.05  # multiplier below which the grid no longer resolves a Laplace's privacy loss
PLD_LARGEST = 2000.0  # epsilon above which the grid gets too long, and the answer means nothing anyway
PLD_MOST = 100_000  # releases beyond which a distribution takes too long
SAMPLED_ORDERS = np.concatenate([np.arange(2.0, 64.0), np.logspace(6, 10, 17, base=2.0).round()])
"""Whole Renyi orders: under Poisson sampling the library's series for others need not converge."""
PRECISION = 1e-6  # relative, of a calibrated scale


class Guarantee(NamedTuple):
    """A guarantee is an epsilon at the settings' delta, and how it was computed."""

    epsilon: float
    method: str


def noise_for(
    target: float,
    settings: PrivacySettings,
    rounds: int,
    prototypes: Prototypes | None = None,
) -> float:
    """Return the smallest absolute noise scale with which `rounds` releases cost at most `target` epsilon.

    `prototypes` that are sent beside updates are releases too, with their noise in proportion. By bisection: the
    inverse of `composed` up to a relative 1e-6 of the scale, on the safe side. Raises `InputError` without a clip.

    >>> settings = PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, epsilon=8.0, sampler="float")
    >>> round(noise_for(8.0, settings, rounds=40), 2)
    7.59
    """
    if settings.law is None or settings.clip is None:
        raise InputError("noise can be calibrated to an epsilon only with a mechanism and a clip: set both")
    if not target > 0:
        raise InputError(f"epsilon must be above 0, got {target}")

    def spent(scale: float) -> float:
        released = [(event_of(settings, scale), rounds)]
        if prototypes is not None:
            released.append(prototypes.under(settings, scale).release)
        return composed(released, settings.delta).epsilon

    high = settings.sensitivity
    while spent(high) > target:
        high *= 2.0
    low = high / 2.0
    while spent(low) <= target:
        high, low = low, low / 2.0
    while high - low > PRECISION * high:
        middle = (low + high) / 2.0
        if spent(middle) > target:
            low = middle
        else:
            high = middle
    return high


def composed(releases: Iterable[tuple[Event, int]], delta: float) -> Guarantee:
    """Return the best bound known here for all these releases (events and how often each) together, in any order.

    Gaussians alone: exact; an L1 clip bounds the L2 norm too, so it serves either. Laplace under an L1 clip: the scalar
    mechanism of that sensitivity dominates, so its privacy-loss distribution counts, or pure composition where that is
    smaller. Laplace under an L2 clip: zCDP, whatever the dimension. Raises `InputError` for a delta outside (0, 1).

    >>> found = composed([(Event("laplace", "l1", 4.0), 12), (Event("gaussian", multiplier=4.0), 5)], 1e-5)
    >>> round(found.epsilon, 2), found.method
    (4.1, 'PLD')
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must be between 0 and 1, got {delta}")
    spent = _merged(releases)
    if not spent:
        return Guarantee(0.0, "nothing was released")
    for event, _ in spent:
        if not event.row.guarantees:
            return Guarantee(math.inf, "no noise" if event.mechanism == "none" else "no clip")
    bounds = [without_libraries(spent, delta)]
    if bounds[0].method == "GDP closed form":
        return bounds[0]
    if any(event.sampling < 1 for event, _ in spent):
        sampled = rdp_epsilon(_library_event(spent), 1, delta, SAMPLED_ORDERS)
        bounds = [Guarantee(sampled, "RDP, Poisson sampling")]
    few = math.fsum(count for _, count in spent) <= PLD_MOST
    if few and all(has_pld(event) for event, _ in spent) and bounds[0].epsilon <= PLD_LARGEST:
        bounds.append(Guarantee(pld_epsilon(_library_event(spent), 1, delta), "PLD"))
    return min(bounds, key=lambda bound: bound.epsilon)


def without_libraries(releases: Iterable[tuple[Event, int]], delta: float) -> Guarantee:
    """Return the best bound of closed form, pure composition and Renyi, in microseconds; inf for sampled events."""
    spent = _merged(releases)
    if any(event.sampling < 1 for event, _ in spent):
        return Guarantee(math.inf, "not known without the library")
    mu = _gaussian_mu(spent)
    if mu is not None:
        return Guarantee(gaussian_epsilon(1.0 / mu, 1, delta), "GDP closed form")
    pure = math.fsum(count * event.pure for event, count in spent)
    curve = np.sum([count * event.curve for event, count in spent], axis=0) if spent else np.zeros(len(ORDERS))
    zcdp = all(event.row.by_zcdp(event) for event, _ in spent)
    bounds = [Guarantee(pure, "pure"), Guarantee(epsilon_of_curve(curve, delta), "zCDP->RDP" if zcdp else "RDP")]
    return min(bounds, key=lambda bound: bound.epsilon)


def chance_above(releases: Iterable[tuple[Event, int]], epsilon: float) -> float | None:
    """Return the probability that the privacy loss of these releases together is above `epsilon`.

    It is not the delta of that epsilon, which weighs larger losses more. None where the loss's distribution is not
    known: of a discrete Gaussian in many dimensions, and without any guarantee.

    >>> chance_above([(Event("gaussian", multiplier=1.0), 1)], 0.5)
    0.5
    """
    spent = _merged(releases)
    if not spent or math.isinf(epsilon) or not all(event.row.guarantees for event, _ in spent):
        return None
    mu = _gaussian_mu(spent)
    if mu is not None:  # the loss is normal, with mean mu^2 / 2 and variance mu^2 (Dong, Roth & Su 2022)
        return float(_library("scipy.special").ndtr(mu / 2 - epsilon / mu))
    if math.fsum(event.pure * count for event, count in spent) <= epsilon:
        return 0.0
    if math.fsum(count for _, count in spent) > PLD_MOST or not all(has_pld(event) for event, _ in spent):
        return None
    return _pld_chance_above(_library_event(spent), epsilon)


def _pld_chance_above(event: Any, epsilon: float) -> float:
    """Return the mass above `epsilon` of the privacy-loss distribution of a dp-accounting `event`, on its grid.

    Between two points of the grid delta(e) = mass - exp(e) x rest, so two values of delta give both.
    """
    accountant = _library("dp_accounting.pld").PLDAccountant(value_discretization_interval=PLD_GRID).compose(event)
    cell = math.floor(epsilon / PLD_GRID)
    low, high = ((cell + part) * PLD_GRID for part in (0.25, 0.75))
    first, second = (float(accountant.get_delta(at)) for at in (low, high))
    return first + (first - second) / math.expm1(high - low)


def _gaussian_mu(spent: list[tuple[Event, int]]) -> float | None:
    """Return mu of releases that are Gaussians alone (mu-GDP); None for others."""
    multipliers = [(event.row.gaussian(event), count) for event, count in spent]
    known = [count / multiplier**2 for multiplier, count in multipliers if multiplier is not None]
    return math.sqrt(math.fsum(known)) if spent and len(known) == len(spent) else None


def epsilon_of_curve(curve: npt.NDArray[np.float64], delta: float) -> float:
    """The smallest epsilon a Renyi curve at `ORDERS` gives (Canonne, Kamath & Steinke 2020, Prop. 12).

    It is 0 where already the total variation is at most delta (Bretagnolle & Huber 1979).
    """
    if delta**2 + math.expm1(-float(curve.min())) >= 0:
        return 0.0
    return max(0.0, float((curve + conversion(delta)).min()))


def conversion(delta: float) -> npt.NDArray[np.float64]:
    """Return what turns a Renyi divergence at each of `ORDERS` into an epsilon when it is added: float64 [orders]."""
    return np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)


def _merged(releases: Iterable[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """Return each event once, sorted, so that no bound depends on the order of releases."""
    counts: dict[Event, int] = {}
    for event, count in releases:
        if count < 0:
            raise ValueError(f"an event cannot have happened {count} times")
        counts[event] = counts.get(event, 0) + count
    return sorted((event, count) for event, count in counts.items() if count)


def has_pld(event: Event) -> bool:
    """Say whether the library has its privacy-loss distribution, at a resolution that is worth asking for."""
    return event.row.in_library(event) is not None and event.multiplier >= PLD_SMALLEST


def _library_event(spent: list[tuple[Event, int]]) -> Any:
    accounting = _library("dp_accounting")
    parts = []
    for event, count in spent:
        made = event.row.in_library(event)
        if made is None:
            raise InputError(f"{event.mechanism} cannot be composed with Poisson-sampled releases: account them apart")
        one = made(accounting)
        if event.sampling < 1:
            one = accounting.PoissonSampledDpEvent(event.sampling, one)
        parts.append(accounting.SelfComposedDpEvent(one, count))
    return accounting.ComposedDpEvent(parts)


def gaussian_epsilon(multiplier: float, rounds: int, delta: float) -> float:
    """Return the exact epsilon of `rounds` unsampled Gaussian releases: mu-GDP with mu = sqrt(rounds) / multiplier.

    Solves delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu) (Dong, Roth & Su 2022, Cor. 2.13), in logarithms.
    """
    mu, target = math.sqrt(rounds) / multiplier, math.log(delta)

    def log_delta(eps: float) -> float:
        first = log_normal(mu / 2 - eps / mu)
        ratio = eps + log_normal(-mu / 2 - eps / mu) - first
        return first + math.log(-math.expm1(min(ratio, -1e-300)))

    if log_delta(0.0) <= target:
        return 0.0
    low, high = 0.0, max(1.0, mu * mu)
    while log_delta(high) > target:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * max(high, 1.0):
        middle = (low + high) / 2.0
        low, high = (middle, high) if log_delta(middle) > target else (low, middle)
    return high


def log_normal(x: float) -> float:
    """Return the logarithm of the standard normal distribution function at `x`.

    Far below zero by Laplace's continued fraction (Abramowitz & Stegun 1964, 26.2.14).

    >>> round(log_normal(0.0), 6), round(log_normal(-40.0), 6)
    (-0.693147, -804.608442)
    """
    if x > -8.0:
        return math.log(math.erfc(-x / math.sqrt(2.0)) / 2.0)
    tail = -x
    for k in range(40, 0, -1):
        tail = -x + k / tail
    return -x * x / 2.0 - math.log(tail * math.sqrt(2.0 * math.pi))


def rdp_epsilon(event: Any, rounds: int, delta: float, orders: npt.NDArray[np.float64] = ORDERS) -> float:
    """Return the upper bound by Renyi DP of a dp-accounting `event` repeated `rounds` times."""
    accountant = _library("dp_accounting.rdp").RdpAccountant(orders=orders)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def pld_epsilon(event: Any, rounds: int, delta: float) -> float:
    """Return the upper bound by privacy-loss distributions (grid 1e-3) of an `event` repeated `rounds` times."""
    accountant = _library("dp_accounting.pld").PLDAccountant(value_discretization_interval=PLD_GRID)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def nominal_epsilon(std: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the epsilon that papers print for one round of noise of this `std`: NOT a guarantee.

    The classical Gaussian bound (FCUCR's privacy analysis), proved only for epsilon < 1, for Gaussian noise,
    and for a sensitivity that papers assume (1) but do not enforce.

    >>> round(nominal_epsilon(0.1, 1e-5), 2)
    48.45
    """
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / std


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise InputError(f"privacy accounting needs {package}: pip install 'edgefr[cloud]'") from error
