"""This proves bounds on epsilon from right and wrong guesses of attacks, and says how well their scores tell apart.

A bound from an audit is a lower one: a mechanism leaks at least so much (up to the stated confidence).
"""

import importlib
import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
CONFIDENCE = 0.95
CUTS = 200
"""Thresholds that `best_cut` tries, at equally spaced ranks of the scores."""


def clopper_pearson(hits: npt.ArrayLike, trials: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Return the exact interval of a rate after `hits` [...] in `trials`; an end is missed at (1 - confidence) / 2.

    Clopper & Pearson (1934). Raises `ValueError` for counts that cannot be.

    >>> [round(float(end), 4) for end in clopper_pearson(0, 100)]
    [0.0, 0.0362]
    """
    found = np.asarray(hits, dtype=np.float64)
    if trials < 1 or (found < 0).any() or (found > trials).any():
        raise ValueError(f"{found} hits in {trials} trials cannot be")
    tail, beta = (1.0 - confidence) / 2.0, _stats().beta
    low = np.where(found == 0, 0.0, beta.ppf(tail, np.maximum(found, 1), trials - found + 1))
    high = np.where(found == trials, 1.0, beta.ppf(1.0 - tail, found + 1, np.maximum(trials - found, 1)))
    return low, high


def epsilon_lower_bound(
    true_positives: int,
    positives: int,
    false_positives: int,
    negatives: int,
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
    sides: Literal[1, 2] = 1,
) -> float:
    """Return the epsilon below which a guesser's rates rule all out, with this confidence; 0 if they show nothing.

    (epsilon, delta)-DP means TPR <= e^epsilon FPR + delta, and TNR <= e^epsilon FNR + delta (Kairouz, Oh & Viswanath
    2015). `sides`: 1 uses the first alone; 2 takes the better of both, and splits the error over both.

    >>> round(epsilon_lower_bound(500, 1000, 5, 1000), 3), epsilon_lower_bound(500, 1000, 500, 1000)
    (3.696, 0.0)
    """
    level = 1.0 - (1.0 - confidence) / sides
    best = float(_bounds(true_positives, positives, false_positives, negatives, delta, level))
    if sides == 2:
        right, wrong = negatives - false_positives, positives - true_positives
        best = max(best, float(_bounds(right, negatives, wrong, positives, delta, level)))
    return best


def _bounds(
    right: npt.ArrayLike, of_right: int, wrong: npt.ArrayLike, of_wrong: int, delta: float, confidence: float
) -> Floats:
    """Return log((low end of the true rate - delta) / high end of the false rate), not below 0. Counts broadcast."""
    low = clopper_pearson(right, of_right, confidence)[0] - delta
    high = clopper_pearson(wrong, of_wrong, confidence)[1]
    return np.log(np.maximum(low / high, 1.0))


class Cut(NamedTuple):
    """This is a rule for guessing: scores over `at` (without `above`: under it) are guessed to be of world one."""

    at: float
    above: bool

    def guesses(self, scores: npt.ArrayLike) -> int:
        """Count how many scores are guessed to be of world one."""
        values = np.asarray(scores)
        return int((values > self.at).sum() if self.above else (values < self.at).sum())


def best_cut(ones: npt.ArrayLike, zeros: npt.ArrayLike, delta: float = 0.0, confidence: float = CONFIDENCE) -> Cut:
    """Return the rule whose bound is largest on these scores; world zero's is world one's with worlds exchanged."""
    one, zero = np.sort(np.asarray(ones, np.float64)), np.sort(np.asarray(zeros, np.float64))
    ranked = np.sort(np.concatenate([one, zero]))
    cuts = np.unique(ranked[np.linspace(0, len(ranked) - 1, CUTS).astype(int)])
    best = []
    for above in (True, False):
        side: Literal["left", "right"] = "right" if above else "left"
        right, wrong = (np.searchsorted(world, cuts, side) for world in (one, zero))
        if above:
            right, wrong = len(one) - right, len(zero) - wrong
        found = _bounds(right, len(one), wrong, len(zero), delta, confidence)
        best.append((float(found.max()), Cut(float(cuts[int(found.argmax())]), above)))
    return max(best, key=lambda rule: rule[0])[1]


def game_bound(
    ones: npt.ArrayLike, zeros: npt.ArrayLike, delta: float = 0.0, confidence: float = CONFIDENCE
) -> tuple[float, dict[str, int]]:
    """Return the epsilon lower bound of a distinguishing game, and the counts it is made of.

    `ones`, `zeros`: the attacker's scores of draws of either world, independent of one another. The rule, and the world
    that is guessed at, are chosen on the first half of each; the bound is that of the second half alone, so choosing
    costs no confidence.

    >>> game_bound(np.arange(1000) % 7, np.arange(1000) % 7)[0]
    0.0
    """
    worlds = [np.asarray(ones, np.float64), np.asarray(zeros, np.float64)]
    seen, kept = [w[: len(w) // 2] for w in worlds], [w[len(w) // 2 :] for w in worlds]

    def counts(halves: list[Floats], world: int, cut: Cut) -> tuple[int, int, int, int]:
        right, wrong = halves[world], halves[1 - world]
        return cut.guesses(right), len(right), cut.guesses(wrong), len(wrong)

    def bound(halves: list[Floats], world: int, cut: Cut) -> float:
        return epsilon_lower_bound(*counts(halves, world, cut), delta, confidence)

    rules = [(world, best_cut(seen[world], seen[1 - world], delta, confidence)) for world in (0, 1)]
    rule = max(rules, key=lambda r: bound(seen, *r))
    names = ("true_positives", "positives", "false_positives", "negatives")
    return bound(kept, *rule), dict(zip(names, counts(kept, *rule), strict=True))


def one_run_bound(
    canaries: int, guesses: int, correct: int, delta: float = 0.0, confidence: float = CONFIDENCE
) -> float:
    """Return the epsilon below which `correct` of `guesses` right guesses about `canaries` coins rule everything out.

    One run with many canaries, each in or out by a fair coin of its own (Steinke, Nasr & Jagielski 2023, Theorem 5.2):
    under epsilon-DP the number of right guesses is dominated by Binomial(guesses, e^epsilon / (1 + e^epsilon)), up to a
    term of delta. The number of guesses must be fixed before anyone looks.

    >>> round(one_run_bound(100, 100, 100), 3), one_run_bound(100, 100, 50)
    (3.493, 0.0)
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(f"{correct} of {guesses} guesses about {canaries} canaries cannot be right")
    error = 1.0 - confidence

    def possible(epsilon: float) -> bool:
        return _chance(canaries, guesses, correct, epsilon, delta) > error

    if guesses == 0 or possible(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not possible(high):
        low, high = high, 2.0 * high
        if high > 700.0:
            return low
    while high - low > 1e-6:
        middle = (low + high) / 2.0
        low, high = (low, middle) if possible(middle) else (middle, high)
    return low


def _chance(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of so many right guesses under (epsilon, delta)-DP."""
    binomial, rate = _stats().binom, 1.0 / (1.0 + math.exp(-epsilon))
    chance = float(binomial.sf(correct - 1, guesses, rate))
    if delta > 0 and correct > 0:
        below = np.cumsum(binomial.pmf(np.arange(correct - 1, -1, -1), guesses, rate))  # P[correct > W >= correct - i]
        chance += 2.0 * canaries * delta * float((below / np.arange(1, correct + 1)).max())
    return min(chance, 1.0)


def auc(positives: npt.ArrayLike, negatives: npt.ArrayLike) -> float:
    """Return the probability that a positive's score is above a negative's, ties half; nan if one of them is missing.

    >>> auc([3, 2], [1, 2]), auc([1], [1])
    (0.875, 0.5)
    """
    one, zero = np.asarray(positives, np.float64), np.asarray(negatives, np.float64)
    if not (len(one) and len(zero)):
        return math.nan
    ranks = _stats().rankdata(np.concatenate([one, zero]))
    return float((ranks[: len(one)].sum() - len(one) * (len(one) + 1) / 2.0) / (len(one) * len(zero)))


def auc_interval(
    positives: npt.ArrayLike, negatives: npt.ArrayLike, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the ends of an interval around `auc`, by the placements of each score among the others' (DeLong 1988).

    Nothing between 0 and 1 is left out where one of them has fewer than two scores.

    >>> [round(end, 2) for end in auc_interval(np.arange(50), np.arange(50) - 10)]
    [0.58, 0.78]
    >>> auc_interval([1.0], [0.0, 2.0])
    (0.0, 1.0)
    """
    one, zero = np.asarray(positives, np.float64), np.asarray(negatives, np.float64)
    if min(len(one), len(zero)) < 2:
        return 0.0, 1.0
    whole, rank = _stats().rankdata(np.concatenate([one, zero])), _stats().rankdata
    above = (whole[: len(one)] - rank(one)) / len(zero)
    below = 1.0 - (whole[len(one) :] - rank(zero)) / len(one)
    width = math.sqrt(above.var(ddof=1) / len(one) + below.var(ddof=1) / len(zero))
    half, middle = float(_stats().norm.ppf(0.5 + confidence / 2.0)) * width, float(above.mean())
    return max(0.0, middle - half), min(1.0, middle + half)


def tpr_at_fpr(positives: npt.ArrayLike, negatives: npt.ArrayLike, fpr: float = 0.01) -> float:
    """Return the share of positives above a threshold that at most a share `fpr` of the negatives is above.

    A guesser reaches `fpr`; with fewer than 1 / fpr negatives none of them may be above.

    >>> tpr_at_fpr([5.0, 1.0], np.arange(4.0)), tpr_at_fpr([5.0, 2.5], np.arange(4.0), fpr=0.25)
    (0.5, 1.0)
    """
    one, zero = np.asarray(positives, np.float64), np.sort(np.asarray(negatives, np.float64))
    if not (len(one) and len(zero)):
        return math.nan
    allowed = int(fpr * len(zero) + 1e-9)
    return float((one > zero[len(zero) - 1 - allowed]).mean())


class Leak(NamedTuple):
    """This says how well scores tell members from others, beside what they would reach if they knew nothing.

    `auc` and `tpr` are means over groups; `*_null` the 95 % quantile of the same statistic after labels were dealt out
    anew. `best_auc` and its null: as if somebody told the attacker of every group which sign of its scores is right.
    """

    auc: float
    auc_null: float
    tpr: float
    tpr_null: float
    best_auc: float
    best_auc_null: float


def leak(groups: list[tuple[Floats, Bools]], generator: np.random.Generator, deals: int = 100) -> Leak:
    """AUC and TPR at 1 % FPR of groups of (scores, is a member), means over groups, with their permutation nulls.

    A group is what one attack compares (the items of one user, say); one without members or without others is left out.

    >>> from privacy import keyed
    >>> found = leak([(np.arange(40.0), np.arange(40) >= 20)] * 5, keyed.generator(0, "doctest"))
    >>> found.auc, found.tpr, found.auc_null < 0.75
    (1.0, 1.0, True)
    """
    kept = [(scores, member) for scores, member in groups if member.any() and not member.all()]
    if not kept:
        return Leak(*[math.nan] * 6)
    found = _means(kept)
    dealt = np.array([_means([(scores, generator.permutation(m)) for scores, m in kept]) for _ in range(deals)])
    null = np.quantile(dealt, CONFIDENCE, axis=0)
    return Leak(found[0], float(null[0]), found[1], float(null[1]), found[2], float(null[2]))


def _means(groups: list[tuple[Floats, Bools]]) -> tuple[float, float, float]:
    areas = np.array([auc(scores[member], scores[~member]) for scores, member in groups])
    rates = [tpr_at_fpr(scores[member], scores[~member]) for scores, member in groups]
    return float(areas.mean()), float(np.mean(rates)), float(np.maximum(areas, 1.0 - areas).mean())


def _stats() -> Any:
    return importlib.import_module("scipy.stats")
