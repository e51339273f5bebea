"""A device keeps its own ledger of what it has released, and stops by itself where its policy says so."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt

from edge.policy import Policy
from privacy.accounting import without_libraries
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.mechanism import Norm

DAY = 24 * 60 * 60  # seconds
LATEST = 253_402_300_799  # unix seconds of the last time that has a date, in the year 9999
LONGEST_NAME = 100  # bytes of a mechanism's name
COLUMNS: dict[str, npt.DTypeLike] = {
    "round": np.int64,
    "seconds": np.int64,
    "mechanism": np.uint8,  # [n, LONGEST_NAME], zeros after the name
    "norm": np.uint8,  # place in NORMS
    "multiplier": np.float64,
    "steps": np.int64,
    "clip": np.float64,  # inf: none
}
NORMS: tuple[Norm, ...] = get_args(Norm)
Array = npt.NDArray[Any]


class Release(NamedTuple):
    """This is one release: of which round, when, what it was, and how long it could be.

    `seconds`: unix time, never before an earlier release's. `clip`: inf where nothing was clipped.
    """

    round: int
    seconds: int
    event: Event
    clip: float


@dataclass(frozen=True)
class Spending:
    """This is the ledger: all releases of a device, oldest first. It does not change; `after` makes the next one.

    >>> once = Spending().after(1, Event("discrete-laplace", "l1", 4.0, steps=100), 1.0, now=1_800_000_000)
    >>> once.spent(1e-5) <= 0.25, once.may(once.releases[0].event, 1_800_000_060, Policy(epsilon=0.1)) is None
    (True, False)
    """

    releases: tuple[Release, ...] = ()

    @property
    def newest(self) -> int:
        """Return the newest time seen, unix seconds: a clock that is set back changes nothing that is counted."""
        return self.releases[-1].seconds if self.releases else 0

    def spent(self, delta: float) -> float:
        """Return the epsilon at `delta` of all releases together, inf where one of them had no noise.

        Its bounds need no library, so every device computes the same; a server's may be a little lower. Raises
        `InputError` for a mechanism that needs a library.
        """
        return _epsilon([release.event for release in self.releases], delta)

    def may(self, event: Event, now: int, policy: Policy) -> str | None:
        """Return the reason, in one line, why a release may not leave now; None: it may. `now`: unix seconds.

        The rate is by the device's clock: one that is set back allows nothing more, one that jumps ahead begins a new
        day. The limit of epsilon does not depend on it.
        """
        today = min(max(now, self.newest), LATEST)
        recent = sum(release.seconds > today - DAY for release in self.releases)
        if recent >= policy.releases_per_day:
            at = datetime.fromtimestamp(today, UTC)
            return (
                f"policy releases_per_day: {recent} updates have left in the 24 hours to {at:%Y-%m-%d %H:%M} UTC; "
                f"wait, or allow more with releases_per_day{policy.where}"
            )
        epsilon = _epsilon([*(release.event for release in self.releases), event], policy.delta)
        if epsilon <= policy.epsilon or (math.isinf(epsilon) and policy.unprotected):
            return None
        if math.isinf(epsilon):
            which = "this one" if _epsilon([event], policy.delta) == math.inf else "an earlier one"
            return f"policy unprotected: {which} has no bound; allow it with unprotected: true{policy.where}"
        return (
            f"policy epsilon: {self.spent(policy.delta):.4g} of {policy.epsilon:g} is spent, and one more release "
            f"would make it {epsilon:.4g}; nothing more leaves this device, unless you raise epsilon{policy.where}"
        )

    def after(self, number: int, event: Event, clip: float | None, now: int) -> Spending:
        """Return the ledger with a release of round `number` added; write it down before the update leaves."""
        if event.sampling < 1:
            raise ValueError("a device knows that it took part, so nothing is amplified by sampling")
        made = Release(
            number,
            min(max(now, self.newest), LATEST),
            replace(event, recipient="server"),
            math.inf if clip is None else clip,
        )
        return Spending((*self.releases, made))

    def arrays(self) -> dict[str, Array]:
        """Return it as plain arrays by column, one row a release."""
        rows = self.releases
        columns: dict[str, Any] = {
            "round": [row.round for row in rows],
            "seconds": [row.seconds for row in rows],
            "mechanism": np.array([_padded(row.event.mechanism) for row in rows], np.uint8).reshape(-1, LONGEST_NAME),
            "norm": [NORMS.index(row.event.norm) for row in rows],
            "multiplier": [row.event.multiplier for row in rows],
            "steps": [row.event.steps for row in rows],
            "clip": [row.clip for row in rows],
        }
        return {name: np.asarray(columns[name], dtype) for name, dtype in COLUMNS.items()}

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Self:
        """Read a ledger from its arrays. Raises `InputError` for arrays that no ledger has written."""
        try:
            _check(arrays)
            columns = {name: arrays[name].tolist() for name in COLUMNS}
            names = [bytes(name).rstrip(b"\0").decode() for name in columns["mechanism"]]
            norms = [NORMS[norm] for norm in columns["norm"]]
            events = map(functools.cache(Event), names, norms, columns["multiplier"], columns["steps"])
            made = tuple(map(Release, columns["round"], columns["seconds"], events, columns["clip"]))
        except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
            raise InputError(
                f"the device's ledger of releases is damaged ({str(error) or type(error).__name__}), and without it "
                "nothing may leave; restore its state from a copy"
            ) from error
        return cls(made)


def _epsilon(events: Sequence[Event], delta: float) -> float:
    counted = Counter(events)
    if not all(event.row.guarantees for event in counted):
        return math.inf
    return without_libraries(counted.items(), delta).epsilon


def _padded(name: str) -> Array:
    content = name.encode()
    if not 0 < len(content) <= LONGEST_NAME:
        raise InputError(f"mechanism '{name[:20]}...' has a name of {len(content)} bytes; give it up to {LONGEST_NAME}")
    return np.frombuffer(content.ljust(LONGEST_NAME, b"\0"), np.uint8)


def _check(arrays: Mapping[str, Array]) -> None:
    if set(arrays) != set(COLUMNS):
        raise ValueError(f"its columns are {', '.join(sorted(arrays)) or 'missing'}")
    count = len(arrays["round"])
    for name, dtype in COLUMNS.items():
        shape = (count, LONGEST_NAME) if name == "mechanism" else (count,)
        if arrays[name].dtype != dtype or arrays[name].shape != shape:
            raise ValueError(f"column {name} is {arrays[name].dtype} {arrays[name].shape}")
    seconds = arrays["seconds"]
    if (arrays["round"] < 0).any() or (seconds < 0).any() or (seconds > LATEST).any() or (np.diff(seconds) < 0).any():
        raise ValueError("its rounds or times cannot be")
    if not (arrays["clip"] > 0).all() or not np.isfinite(arrays["multiplier"]).all():
        raise ValueError("its clips or noise cannot be")
