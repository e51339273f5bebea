"""Measured points: what noise left of utility, by method and data set, read from the table that ships.

Owns: the table, and how its runs become points. Does not own: what follows for a run that was not measured (`expect`).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from edgefr.report.pages import Spread

TABLE = Path(__file__).parent / "measured.csv"
"""One row per run; `experiments/privacy/expected.py` measures it again."""
METRIC = "NDCG@10"
DELTA = 1e-5


def noise_to_signal(std_on_mean: float, clip: float, values: int, rounds: int) -> float:
    """Return the length of all rounds' noise over the largest length of all rounds' mean update.

    Noise of several rounds adds up by its square, and clipped updates that keep their direction by their length: so it
    is std · √values / (clip · √rounds), where std is that of the noise on each value of the mean. The noise of a given
    epsilon grows with √rounds, so rounds cancel out of it.

    >>> round(noise_to_signal(std_on_mean=0.0027, clip=1.0, values=6400, rounds=20), 4)
    0.0483
    """
    return std_on_mean * math.sqrt(values) / (clip * math.sqrt(rounds))


@dataclass(frozen=True)
class Point:
    """This is one setting with all its seeds. `share`: its metric over that of the best that needs no learning.

    `kept`: the part of what the same run without noise gains over chance that is left. `source` is the data set that
    `data` is of: sizes and rounds of one source are no other data.
    """

    method: str
    data: str
    cohort: int
    items: int
    values: int
    rounds: int
    epsilon: float
    noise: float
    share: Spread
    kept: Spread

    @property
    def source(self) -> str:
        """Return the data set."""
        return self.data.split(",")[0]


@dataclass(frozen=True)
class Curve:
    """A curve holds the points of one method on one data set, by rising noise."""

    points: tuple[Point, ...]

    @property
    def source(self) -> str:
        """Return the data set that it was measured on."""
        return self.points[0].source

    def covers(self, noise: float) -> bool:
        """Say whether a point lies on each side."""
        return self.points[0].noise <= noise <= self.points[-1].noise

    def at(self, noise: float, what: str) -> tuple[float, float]:
        """Return `share` or `kept` (mean, deviation over seeds) between the two nearest points.

        It is linear in the logarithm of the noise, and in the noise itself below the smallest that is not zero.
        """
        for low, high in zip(self.points, self.points[1:], strict=False):
            if noise <= high.noise:
                if low.noise > 0:
                    part = math.log(max(noise, low.noise) / low.noise) / math.log(high.noise / low.noise)
                else:
                    part = noise / high.noise
                ends = [getattr(point, what) for point in (low, high)]
                mean, sd = (
                    (1 - part) * a + part * b for a, b in ((ends[0].mean, ends[1].mean), (_sd(ends[0]), _sd(ends[1])))
                )
                return mean, sd
        raise ValueError(f"noise {noise} is beyond the curve")


def _sd(spread: Spread) -> float:
    return 0.0 if math.isnan(spread.sd) else spread.sd


@cache
def curves(table: Path = TABLE) -> dict[str, tuple[Curve, ...]]:
    """Return the curves by method, of methods that were measured on two data sets at least."""
    with open(table, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, list[Curve]] = {}
    for (method, _), own in groupby(sorted(rows, key=_curve_of), key=_curve_of):
        points = sorted(_points(list(own)), key=lambda point: point.noise)
        if len(points) > 1:
            found.setdefault(method, []).append(Curve(tuple(points)))
    return {method: tuple(own) for method, own in found.items() if len({curve.source for curve in own}) > 1}


def _curve_of(row: dict[str, str]) -> tuple[str, str]:
    return row["method"], row["data"]


def _points(rows: Sequence[dict[str, str]]) -> list[Point]:
    """Return a point per epsilon, at the rate that was best on validation items of the first seed."""
    first = min(int(row["seed"]) for row in rows)
    chosen: dict[str, dict[str, str]] = {}
    for row in rows:
        best = chosen.get(row["epsilon"])
        if int(row["seed"]) == first and (best is None or float(row["validation"]) > float(best["validation"])):
            chosen[row["epsilon"]] = row
    runs = {e: {r["seed"]: r for r in rows if _same(r, best)} for e, best in chosen.items()}
    plain = runs.get("inf", {})
    return [_point(best, list(runs[e].values()), plain) for e, best in chosen.items() if runs[e].keys() <= plain.keys()]


def _same(row: dict[str, str], other: dict[str, str]) -> bool:
    return (row["epsilon"], row["rate"]) == (other["epsilon"], other["rate"])


def _point(first: dict[str, str], runs: Sequence[dict[str, str]], plain: dict[str, dict[str, str]]) -> Point:
    share = [float(run["test"]) / float(run["reference"]) for run in runs]
    kept = [_gain(run) / _gain(plain[run["seed"]]) for run in runs]
    values, rounds = int(first["values"]), int(first["rounds"])
    return Point(
        first["method"],
        first["data"],
        int(first["clients"]),
        int(first["items"]),
        values,
        rounds,
        float(first["epsilon"]),
        noise_to_signal(float(first["std_on_mean"]), float(first["clip"]), values, rounds),
        Spread.of(share),
        Spread.of(kept),
    )


def _gain(run: dict[str, str]) -> float:
    return float(run["test"]) - float(run["chance"])
