"""What epsilon a number of noised releases costs, and how much noise an epsilon needs.

Every release is unsampled: a fixed-size cohort is drawn without replacement and the server knows who takes
part, so no amplification is claimed. The multiplier is normalised here, as noise scale / sensitivity of the
declared adjacency, and libraries are always used with their default relation, because they disagree about
what replace-one doubles.

Owns: the arithmetic of guarantees. Does not own: what the sensitivity is (`settings`), who released how
often.
"""

import importlib
import math
from typing import Any, NamedTuple

import numpy as np

from privacy.errors import InputError
from privacy.settings import Kind, Norm, PrivacySettings

PLD_GRID = 1e-3  # step of the discretised privacy loss; rounded up, so the epsilon is an upper bound
PLD_SMALLEST = 0.05  # multiplier below which the grid no longer resolves a Laplace's privacy loss
PLD_LARGEST = 2000.0  # pure epsilon above which the grid gets too long, and the answer means nothing anyway
ORDERS = 1.0 + np.logspace(-4, 3, 282)  # Renyi orders; the low ones matter for little noise
PRECISION = 1e-6  # relative, of a calibrated scale


class Guarantee(NamedTuple):
    """An epsilon at the settings' delta, and how it was computed."""

    epsilon: float
    method: str


def epsilon(settings: PrivacySettings, rounds: int, scale: float | None) -> Guarantee:
    """What `rounds` releases of one client guarantee, with noise of this absolute `scale` (None: no noise).

    Without a clip or without noise it is inf. Raises `InputError` when dp-accounting or scipy is not
    installed.

    >>> settings = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=4.0)
    >>> round(epsilon(settings, rounds=40, scale=4.0).epsilon, 4)
    7.5113
    """
    if settings.mechanism == "none" or scale is None:
        return Guarantee(math.inf, "no noise")
    if settings.clip is None:
        return Guarantee(math.inf, "no clip")
    if rounds == 0:
        return Guarantee(0.0, "nothing was released")
    return compose(settings.mechanism, settings.norm, scale / settings.sensitivity, rounds, settings.delta)


def noise_for(target: float, settings: PrivacySettings, rounds: int) -> float:
    """The smallest absolute noise scale with which `rounds` releases cost at most `target` epsilon.

    By bisection: the inverse of `epsilon` up to a relative 1e-6 of the scale, on the safe side. Raises
    `InputError` without a clip.

    >>> settings = PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, epsilon=8.0)
    >>> round(noise_for(8.0, settings, rounds=40), 2)
    7.59
    """
    if settings.mechanism == "none" or settings.clip is None:
        raise InputError("noise can be calibrated to an epsilon only with a mechanism and a clip: set both")

    def spent(multiplier: float) -> float:
        assert settings.mechanism != "none"
        return compose(settings.mechanism, settings.norm, multiplier, rounds, settings.delta).epsilon

    high = 1.0
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
    return high * settings.sensitivity


def compose(kind: Kind, norm: Norm, multiplier: float, rounds: int, delta: float) -> Guarantee:
    """The best bound known here for `rounds` releases with noise scale `multiplier` x sensitivity.

    Gaussian: exact; an L1 clip bounds the L2 norm too, so it serves either. Laplace under an L1 clip: the
    scalar mechanism of that sensitivity dominates, so its privacy-loss distribution counts, or pure
    composition where that is smaller. Laplace under an L2 clip: zCDP, whatever the dimension.
    """
    if kind == "gaussian":
        return Guarantee(gaussian_epsilon(multiplier, rounds, delta), "GDP closed form")
    accounting = _library("dp_accounting")
    if norm == "l2":
        event = accounting.ZCDpEvent(zcdp_of_laplace(multiplier))
        return Guarantee(rdp_epsilon(event, rounds, delta), "zCDP->RDP")
    pure = rounds / multiplier  # epsilon = sensitivity_1 / b per round; rounds add up
    event = accounting.LaplaceDpEvent(multiplier)
    bounds = [Guarantee(pure, "pure"), Guarantee(rdp_epsilon(event, rounds, delta), "RDP")]
    if multiplier >= PLD_SMALLEST and pure <= PLD_LARGEST:
        bounds.append(Guarantee(pld_epsilon(event, rounds, delta), "PLD"))
    return min(bounds, key=lambda bound: bound.epsilon)


def zcdp_of_laplace(multiplier: float) -> float:
    """rho of one vector Laplace release under an L2 clip, dimension-free; `multiplier` = b / sensitivity_2.

    A coordinate that moves by d_i is (d_i / b)-DP, hence (d_i / b)**2 / 2 zCDP (Bun & Steinke 2016, Prop.
    1.4), and the coordinates' sum is sensitivity_2**2 / (2 b**2).
    """
    return 0.5 / multiplier**2


def gaussian_epsilon(multiplier: float, rounds: int, delta: float) -> float:
    """Exact epsilon of `rounds` unsampled Gaussian releases: mu-GDP with mu = sqrt(rounds) / multiplier.

    Solves delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu) (Dong, Roth & Su 2022, Cor. 2.13), in
    logarithms.
    """
    log_ndtr = _library("scipy.special").log_ndtr
    mu = math.sqrt(rounds) / multiplier

    def log_delta(eps: float) -> float:
        first = float(log_ndtr(mu / 2 - eps / mu))
        ratio = eps + float(log_ndtr(-mu / 2 - eps / mu)) - first
        return first + math.log(-math.expm1(min(ratio, -1e-300)))

    if log_delta(0.0) <= math.log(delta):
        return 0.0
    above = max(1.0, mu * mu)
    while log_delta(above) > math.log(delta):
        above *= 2.0
    root = _library("scipy.optimize").brentq(lambda eps: log_delta(eps) - math.log(delta), 0.0, above, xtol=1e-12)
    return float(root)


def rdp_epsilon(event: Any, rounds: int, delta: float) -> float:
    """Upper bound by Renyi DP of a dp-accounting `event` repeated `rounds` times."""
    accountant = _library("dp_accounting.rdp").RdpAccountant(orders=ORDERS)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def pld_epsilon(event: Any, rounds: int, delta: float) -> float:
    """Upper bound by privacy-loss distributions (grid 1e-3) of an `event` repeated `rounds` times."""
    accountant = _library("dp_accounting.pld").PLDAccountant(value_discretization_interval=PLD_GRID)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def nominal_epsilon(std: float, delta: float, sensitivity: float = 1.0) -> float:
    """The epsilon papers print for one round of noise of this `std`: NOT a guarantee.

    The classical Gaussian bound (FCUCR's privacy analysis), proved only for epsilon < 1, for Gaussian noise,
    and for a sensitivity that papers assume (1) but do not enforce.

    >>> round(nominal_epsilon(0.1, 1e-5), 2)
    48.45
    """
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / std


def _library(name: str) -> Any:
    """An optional library, imported when it is needed: a device does without it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise InputError(f"privacy accounting needs {package}: pip install 'edgefr[cloud]'") from error
