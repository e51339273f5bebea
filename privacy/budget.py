"""A budget says yes or no to the releases of many clients at once, by comparisons where these are enough.

The answer is that of `accounting.composed(...).epsilon <= budget`. What bounds epsilon is linear in how often each
event happened, so most clients are decided by a product of matrices, which leaves a `MARGIN`. Whoever is closer than
that, or near the budget with releases that have a privacy-loss distribution, is decided by `composed` itself, once:
more releases never cost less, so each answer decides for all below or above it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privacy.accounting import PLD_LARGEST, composed, conversion, gaussian_epsilon, has_pld
from privacy.guarantee import ORDERS, Event

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MARGIN, LEAST_MARGIN = 1e-6, 1e-9  # of epsilon, relative and absolute: far more than what rounding does to a bound
FEW = slice(None, None, 16)  # of the Renyi orders, which already decide for most clients
MOST = 1e6  # epsilon up to which Gaussian releases are compared
CHUNK = 4096  # clients whose whole Renyi curves are computed at once


class Budget:
    """`epsilon` at `delta` that nobody may exceed.

    >>> budget = Budget(1.5, 1e-5)
    >>> budget.keeps([Event("gaussian", multiplier=4.0)], np.array([[1, 2, 3]])).tolist()
    [True, True, False]
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        margin = MARGIN * epsilon + LEAST_MARGIN
        self._low, self._high = epsilon - margin, epsilon + margin
        self._kinds: list[Event] = []
        self._curves, self._pure = np.zeros((0, len(ORDERS))), np.zeros(0)
        self._within, self._beyond = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64)
        self._answers: dict[tuple[int, ...], bool] = {}

    def keeps(self, events: Sequence[Event], counts: npt.NDArray[np.integer]) -> Bools:
        """Say whether a client's releases cost at most the budget: bool [clients]. `counts` [events, clients]."""
        if self.epsilon == math.inf:
            return np.ones(counts.shape[1], np.bool_)
        rows = self._merged(events, counts)
        yes, no = self._compared(rows)
        open_ = np.flatnonzero(~yes & ~no)
        if len(open_):
            found, inverse = distinct(rows[:, open_])
            yes[open_] = self._looked_up(found)[inverse]
        return yes

    def _merged(self, events: Sequence[Event], counts: npt.NDArray[np.integer]) -> Ints:
        """`counts` by kind of event, whoever received it: int64 [kinds, clients]."""
        kinds = [replace(event, recipient="server") for event in events]
        for kind in kinds:
            if kind not in self._kinds:
                self._kinds.append(kind)
                known = kind.row.guarantees  # the others are refused before a curve is looked at
                self._curves = np.vstack([self._curves, kind.curve if known else np.zeros(len(ORDERS))])
                self._pure = np.append(self._pure, kind.pure)
                self._within = np.pad(self._within, ((0, 0), (0, 1)))
                self._beyond = np.pad(self._beyond, ((0, 0), (0, 1)))
                self._answers.clear()
        rows = np.zeros((len(self._kinds), counts.shape[1]), np.int64)
        for kind, row in zip(kinds, counts, strict=True):
            rows[self._kinds.index(kind)] += row
        return rows

    def _compared(self, rows: Ints) -> tuple[Bools, Bools]:
        """Say who is surely within the budget, and who surely is not."""
        gaussian = self._such(lambda kind: kind.row.gaussian(kind) is not None)
        lost = self._such(lambda kind: not kind.row.guarantees)
        only_gaussian: Bools = ~np.any(rows[~gaussian], axis=0)
        no: Bools = np.any(rows[lost], axis=0)
        yes: Bools = np.zeros(rows.shape[1], np.bool_)
        if only_gaussian.any():
            weights = np.array([0.0 if (m := kind.row.gaussian(kind)) is None else m**-2.0 for kind in self._kinds])
            mu_squared, (low, high) = weights @ rows, self._gaussian_limits
            yes |= only_gaussian & (mu_squared <= low)
            no |= only_gaussian & (mu_squared >= high)
        others = np.flatnonzero(~only_gaussian & ~no)
        if len(others):
            yes[others], no[others] = self._by_curve(rows[:, others])
        return yes, no

    def _by_curve(self, rows: Ints) -> tuple[Bools, Bools]:
        """Compare by pure composition and by Renyi curves, which say no only where nothing better is known."""
        none = np.isinf(self._pure)
        least = np.where(rows[none].any(axis=0), math.inf, np.where(none, 0.0, self._pure) @ rows)
        for orders in (FEW, slice(None)):
            left = np.flatnonzero(least > self._low)
            found, inverse = distinct(rows[:, left])
            parts = [found[:, start : start + CHUNK] for start in range(0, found.shape[1], CHUNK)]
            if parts:
                least[left] = np.minimum(least[left], np.concatenate([self._least(p, orders) for p in parts])[inverse])
        tight = ~rows[~self._such(has_pld)].any(axis=0) & (least <= PLD_LARGEST * (1 + MARGIN))
        return least <= self._low, ~tight & (least >= self._high)

    def _least(self, rows: Ints, orders: slice) -> Floats:
        """Return the least epsilon that Renyi curves give at some of the orders: float64 [clients].

        The budget itself, which decides nothing, where the total variation may be at most delta.
        """
        curves = self._curves[:, orders].T @ rows
        least: Floats = np.min(curves + conversion(self.delta)[orders, None], axis=0)
        least[curves[0] <= -math.log1p(-(self.delta**2)) * (1 + MARGIN)] = self.epsilon
        return least

    def _looked_up(self, rows: Ints) -> Bools:
        rows = rows.T
        known = np.array([self._answers.get(tuple(row), -1) for row in rows.tolist()], np.int8)
        while True:
            left = np.flatnonzero(known < 0)
            known[left] = self._known(rows[left])
            left = left[known[left] < 0]
            if not len(left):
                return known > 0
            row = rows[left[0]]
            cost = self._ask(row)
            known[left[0]] = cost <= self.epsilon
            if cost <= self.epsilon:
                self._explore(row, cost)

    def _known(self, rows: Ints) -> npt.NDArray[np.int8]:
        """Return 1 for rows below one that keeps the budget, 0 for those above one that does not, else -1."""
        out = np.full(len(rows), -1, np.int8)
        for row in self._within:
            out[(rows <= row).all(axis=1)] = 1
        for row in self._beyond:
            out[(rows >= row).all(axis=1)] = 0
        return out

    def _ask(self, row: Ints) -> float:
        """The epsilon of `row`, kept as an answer, and for all below or above it unless it is within the margin."""
        spent = [(kind, count) for kind, count in zip(self._kinds, row.tolist(), strict=True) if count]
        cost = composed(spent, self.delta).epsilon
        self._answers[tuple(row.tolist())] = cost <= self.epsilon
        if cost <= self._low:
            self._within = np.vstack([self._within[~(self._within <= row).all(axis=1)], row])
        elif cost >= self._high:
            self._beyond = np.vstack([self._beyond[~(self._beyond >= row).all(axis=1)], row])
        return cost

    def _explore(self, row: Ints, cost: float) -> None:
        """Find where the budget ends for more releases in the proportions of `row`, so as not to ask every round.

        By bisection up to where it would end if epsilon grew as the root of the number of releases.
        """
        low = total = int(row.sum())
        high = math.floor(total * min(self.epsilon / max(cost, 1e-9 * self.epsilon), 4.0) ** 2) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._ask(row * middle // total) <= self.epsilon else (low, middle)

    def _such(self, test: Callable[[Event], bool]) -> Bools:
        return np.array([test(kind) for kind in self._kinds], np.bool_)

    @cached_property
    def _gaussian_limits(self) -> tuple[float, float]:
        """Return two values of mu**2 of Gaussian releases:

        up to one they keep the budget, from the other on they do not.
        """
        low = _mu_squared(min(self._low, MOST), self.delta)
        return low, _mu_squared(self._high, self.delta) if self._high <= MOST else math.inf


def _mu_squared(epsilon: float, delta: float) -> float:
    """Return mu**2 of Gaussian releases that cost `epsilon`, by bisection."""
    low, high = 0.0, 1.0
    while gaussian_epsilon(1.0 / math.sqrt(high), 1, delta) < epsilon:
        low, high = high, 4.0 * high
    while high - low > 1e-3 * MARGIN * high and high > 1e-9:
        middle = (low + high) / 2.0
        below = gaussian_epsilon(1.0 / math.sqrt(middle), 1, delta) < epsilon
        low, high = (middle, high) if below else (low, middle)
    return low


def distinct(rows: npt.NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return the distinct columns of counts `rows` [events, n] in a fixed order, and which of them each column is: [n].

    >>> [part.tolist() for part in distinct(np.array([[1, 0, 1], [2, 3, 2]]))]
    [[[0, 1], [3, 2]], [1, 0, 1]]
    """
    code = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        width = int(row.max(initial=0)) + 1
        if int(code.max(initial=0) + 1) * width >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
        code = code * width + row
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return rows[:, first].astype(np.int64), inverse
