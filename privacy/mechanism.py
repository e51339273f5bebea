"""This says what a mechanism is, and draws noise:

one client's own, and that of a sum of clients as one draw of its law.

A mechanism is one entry of `MECHANISMS`, in a file of its own under `privacy/mechanisms`, and holds everything that its
name means. Each sampler says how far to trust it. The one in floating point leaks a little about the value it hides
(Mironov, CCS 2012): it is for simulation. What protects real people is drawn by `Noise.exact`, which takes nothing that
could be drawn again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from privacy.errors import InputError, unknown
from privacy.noise_key import NoiseBase, NoiseStream
from privacy.table import Table

LARGEST = 1e100
"""Of noise over sensitivity, either way round: beyond it squares leave the range of floats."""


Norm = Literal["l1", "l2"]


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
UInts = npt.NDArray[np.uint64]

ORDERS: Floats = 1.0 + np.logspace(-4, 3, 282)
"""Renyi orders; the low ones matter for little noise."""

PIECE = 1 << 14
"""Values of clients that are drawn at once: what they are made of stays in a processor's cache."""

LOST = 32 * float(np.finfo(np.float64).eps)
"""What evaluating a logarithm of about one may be off by, at most."""


def divergences(log_sums: Floats) -> Floats:
    """Return Renyi divergences at `ORDERS` of the logarithms of sums of p^a q^(1 - a), rounded up.

    Beside very much noise these are smaller than the last bit of what they are made of: zero would promise everything.
    """
    above: Floats = (np.maximum(log_sums, 0.0) + LOST * (1.0 + np.abs(log_sums))) / (ORDERS - 1.0)
    return np.minimum.accumulate(above[::-1])[::-1]  # what bounds one order bounds all below it


@dataclass(frozen=True)
class Sampler:
    """A sampler draws simulated noise.

    `trust`: how far to trust it. `on_grid`: it draws whole steps of a grid, so that real devices can draw the same law.
    """

    name: str
    trust: str
    on_grid: bool


SAMPLERS: Table[Sampler] = Table("sampler", Sampler)
SAMPLERS.register(Sampler("float", "float, simulation-grade; no device draws it", on_grid=False))
SAMPLERS.register(
    Sampler("grid", "grid; simulated here, exact with the system's secure bits on real devices", on_grid=True)
)


class Mechanism(ABC):
    """This is everything that a mechanism's name means to a ledger; what it draws is said by `Additive`.

    `settings`: what an experiment says of it (None: it is accounted for, and no experiment chooses it). `trusts`: under
    which trust it may run. `guarantees`: whether it bounds anything. `unknown`: what cannot be said about it.
    `citation`: where its guarantee is proved. `sampled`: whether a bound under Poisson sampling is known here.
    """

    name: str
    settings: type[BaseModel] | None
    trusts: tuple[str, ...]
    guarantees: bool
    unknown: str
    citation: str
    sampled: bool = False

    @abstractmethod
    def curve(self, event: Event) -> Floats:
        """Return the Renyi divergence of an event at `ORDERS`: float64 [orders]; inf where nothing is guaranteed."""

    @abstractmethod
    def pure(self, event: Event) -> float:
        """Return the epsilon of an event with delta 0; inf where there is none."""

    def check(self, event: Event) -> None:
        """Raise `InputError` for an event that this mechanism cannot have made."""
        if event.steps:
            raise InputError(f"{self.name} is on no grid, so its sensitivity has no steps; got {event.steps}")

    def gaussian(self, event: Event) -> float | None:
        """Return the noise multiplier of the Gaussian mechanism that is exactly as private; None: none is."""
        return None

    def by_zcdp(self, event: Event) -> bool:
        """Say whether the curve is one of zero-concentrated privacy, which holds whatever the dimension."""
        return False

    def in_library(self, event: Event) -> Callable[[Any], Any] | None:
        """Return what makes the same event of dp-accounting's, given that module; None: it knows none."""
        return None


class NoGuarantee(Mechanism):
    """This is a mechanism that bounds nothing."""

    trusts = ("central", "local")
    guarantees = False
    unknown = "everything: without a clip the noise guarantees nothing"
    citation = "none: no claim"

    def curve(self, event: Event) -> Floats:
        return np.full(len(ORDERS), math.inf)

    def pure(self, event: Event) -> float:
        return math.inf


@dataclass(frozen=True)
class Simulated:
    """This says how a sampler draws a law for a simulation.

    `of_sum(noise, counts, generator)`: one draw of the sum of `counts` draws, at each place. `of_clients(noise, first,
    second)`: a draw of each pair of random words, uint64 (None: it makes none of words).
    """

    of_sum: Callable[[Noise, Floats, np.random.Generator], Floats]
    of_clients: Callable[[Noise, UInts, UInts], Floats] | None


@dataclass(frozen=True)
class Tail:
    """This bounds a vector of noise, but for a small chance: its length in `norm`, and each of its values."""

    norm: Literal["l1", "l2"]
    length: float
    value: float


class Additive(Mechanism):
    """This is a mechanism that adds independent noise to every coordinate.

    `samplers`: how it is simulated, by sampler. `on_device`: whether real noise of this law can be drawn (`exact`).
    `on_grid`: the law that takes its place on a grid (None: none). `symbol`: what its scale is called. `without_clip`:
    the mechanism that a ledger notes where nothing was clipped.
    """

    samplers: ClassVar[Mapping[str, Simulated]]
    on_device: bool
    on_grid: str | None = None
    symbol: str
    without_clip: str

    def exact(self, scale: int, size: int) -> Ints:
        """Draw real noise, `size` whole steps of a grid for a scale in whole steps, from the system's secure bits."""
        raise InputError(f"{self.name} noise has no exact sampler, which real updates need; use gaussian or laplace")

    def tail(self, scale: int, size: int, doubt: float) -> Tail | None:
        """Return what `size` exact draws exceed, in steps, with a chance of `doubt` for length and value each.

        None: it is not known, and a server then takes uploads under this noise however long they are.
        """
        return None

    @abstractmethod
    def std(self, noise: Noise) -> float:
        """Return the standard deviation of one draw."""

    @abstractmethod
    def scale_of(self, std: float) -> float:
        """Return the scale at which the noise has this standard deviation (on a grid: without its rounding)."""

    def strength(self, scale: float, sensitivity: float, norm: Norm, step: float | None) -> tuple[float, int]:
        """Return noise scale over sensitivity, and that sensitivity in steps of a grid (0: nobody asks)."""
        return scale / sensitivity, 0


MECHANISMS: Table[Mechanism] = Table("mechanism", Mechanism, home="privacy.mechanisms", group="edgefr.mechanisms")


def law_of(name: str) -> Additive:
    """Return the mechanism whose noise has this name. Raises `InputError` for one that draws none.

    >>> law_of("laplace").scale_of(1.0)
    0.7071067811865475
    """
    found = MECHANISMS[name]
    if not isinstance(found, Additive):
        laws = ", ".join(name for name, entry in MECHANISMS.items() if isinstance(entry, Additive))
        raise InputError(f"mechanism '{name}' draws no noise; use one of {laws}")
    return found


@dataclass(frozen=True)
class Noise:
    """This is independent noise per coordinate, of the mechanism `kind`.

    `scale`: the std of a Gaussian, the b of a Laplace; on a grid whole steps of it. `step`: of the grid (None: none),
    to which whoever adds the noise has rounded first (`grid.to_grid`).

    >>> round(Noise("laplace", 0.5).std, 4)
    0.7071
    """

    kind: str
    scale: float
    step: float | None = None

    def __post_init__(self) -> None:
        if self.sampler not in law_of(self.kind).samplers:
            needs = {False: "needs a grid", True: "is not on a grid"}[self.step is not None]
            raise InputError(f"{self.kind} noise {needs}, and sampler {self.sampler} does not draw it so")
        if self.step is not None and not 1 <= self.scale / self.step == self.steps:
            raise InputError(f"noise of {self.scale:g} is not a whole number of steps of {self.step:g}")

    @property
    def sampler(self) -> str:
        return "float" if self.step is None else "grid"

    @property
    def steps(self) -> int:
        """Return the scale in whole steps of the grid."""
        assert self.step is not None
        return round(self.scale / self.step)

    @property
    def std(self) -> float:
        return law_of(self.kind).std(self)

    def exact(self, size: int) -> Ints:
        """Draw real noise for `size` values: whole steps of the grid, int64, from the system's secure bits.

        Nothing keys it, so nobody draws it twice. Raises `InputError` for a law that no device can draw.
        """
        if self.step is None:
            raise InputError(
                f"{self.kind} noise in floating point does not protect real updates: set privacy.sampler=grid"
            )
        return law_of(self.kind).exact(self.steps, size)

    def of_sum(self, count: npt.ArrayLike, shape: tuple[int, ...], stream: NoiseStream) -> Floats:
        """Simulate the sum of `count` independent draws per coordinate, drawn at once: float64 of `shape`.

        `count` is a whole number, or an array that broadcasts to `shape` (0: no noise there).

        >>> from privacy.noise_key import NoiseKey
        >>> Noise("laplace", 0.1).of_sum(1000, (2, 3), NoiseKey.new().stream(0, "doctest")).shape
        (2, 3)
        """
        if not isinstance(stream, NoiseStream):
            raise TypeError(f"noise is drawn from a stream of the run's noise key, not from {type(stream).__name__}")
        given = np.asarray(count, dtype=np.float64)
        if np.any(given < 0):
            raise ValueError(f"a sum cannot have {given.min():g} terms")
        counts = np.broadcast_to(given, shape)
        return law_of(self.kind).samplers[self.sampler].of_sum(self, counts, stream.generator)

    def of_clients(self, base: NoiseBase, clients: npt.ArrayLike, size: int) -> Floats:
        """Simulate each client's own noise for one upload of `size` values: float64 [C, size].

        `base` is the round's, e.g. ``key.base(seed, "noise", round)``. A client's draw does not depend on who else is
        in the call. Raises `InputError` for a law that has no keyed draws.

        >>> from privacy.noise_key import NoiseKey
        >>> Noise("gaussian", 1.0).of_clients(NoiseKey.new().base(0, "noise", 3), [7, 9], 5).shape
        (2, 5)
        """
        if not isinstance(base, NoiseBase):
            raise TypeError(f"noise is keyed by the run's noise key, not by {type(base).__name__}")
        drawn = law_of(self.kind).samplers[self.sampler].of_clients
        if drawn is None:
            raise InputError(f"{self.kind} noise has no keyed draws of single clients; use gaussian or laplace")
        whose = np.asarray(clients)
        out, at_once = np.empty((len(whose), size)), max(1, PIECE // max(size, 1))
        for at in range(0, len(whose), at_once):
            words = base.words(whose[at : at + at_once], size)
            out[at : at + at_once] = drawn(self, words[..., 0], words[..., 1])
        return out


@dataclass(frozen=True, order=True)
class Event:
    """One release of one client to one recipient, as an accountant sees it.

    `multiplier`: noise scale (std of a Gaussian, b of a Laplace, 1 / epsilon of a pure mechanism) over the sensitivity
    in `norm`; 0 where nothing is guaranteed. `steps`: that sensitivity in steps of the grid (discrete Laplace alone).
    `sampling`: rate of Poisson sampling, 1 for none; it may be below 1 only if nobody who attacks sees who takes part.

    >>> Event("gaussian", multiplier=4.0).pure
    inf
    >>> Event("laplace", "l1", 4.0).pure
    0.25
    """

    mechanism: str
    norm: Norm = "l2"
    multiplier: float = 0.0
    steps: int = 0
    sampling: float = 1.0
    recipient: str = "server"

    def __post_init__(self) -> None:
        row = self.row
        if self.norm not in ("l1", "l2"):
            raise unknown("norm", self.norm, ("l1", "l2"))
        if row.guarantees and not 1 / LARGEST <= self.multiplier <= LARGEST:  # false for NaN
            raise InputError(
                f"noise over sensitivity must lie between {1 / LARGEST:g} and {LARGEST:g}, got {self.multiplier:g}"
            )
        if not 0 < self.sampling <= 1:
            raise InputError(f"a sampling rate must be above 0 and at most 1, got {self.sampling}")
        if self.sampling < 1 and not row.sampled:
            raise InputError(
                f"no bound for {self.mechanism} under Poisson sampling is known here: use gaussian with sampler float"
            )
        row.check(self)

    @property
    def row(self) -> Mechanism:
        return MECHANISMS[self.mechanism]

    @property
    def pure(self) -> float:
        """Return the epsilon with delta 0; inf where there is none."""
        return self.row.pure(self)

    @property
    def curve(self) -> Floats:
        """Return the Renyi divergence at `ORDERS`, not sampled: float64 [orders]; inf where nothing is guaranteed."""
        if self.sampling < 1:
            raise InputError("a Renyi curve under Poisson sampling is the library's: compose it with accounting")
        return self.row.curve(self)
