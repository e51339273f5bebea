"""`compare` tests every pair of runs over users and over seeds, and says what else differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefr.config.arguments import checked
from edgefr.config.display import COLUMNS, Brief
from edgefr.metrics.paired import Apart, apart, family
from edgefr.metrics.significance import holm, paired_t
from edgefr.report.pages import Page, Spread
from edgefr.simulation.runs.run import Run
from edgefr.studies.comparisons.pages import Pair, RunMetrics, latex, page
from edgefr.studies.comparisons.sides import (
    Side,
    baselines,
    by_method,
    check_alike,
    differences,
    metrics_of,
    ranking_of,
    shared_seeds,
    sides,
)

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False)
class Comparison(Brief):
    """A comparison has a row per run, a pair per two runs and metric, and what else differs between the runs.

    `differs`: values of the experiments that are not the same, by dotted name and then by run. `baselines`: what
    references reached that all runs share, which is not tested here.
    """

    rows: Sequence[RunMetrics]
    pairs: Sequence[Pair]
    differs: dict[str, dict[str, str]]
    ranking: str
    notes: Sequence[str]
    baselines: Sequence[RunMetrics] = ()

    @cached_property
    def page(self) -> Page:
        """Return the tables, the figure and the notes."""
        return page(self.rows, self.baselines, self.pairs, self.differs, self.ranking, self.notes)

    @property
    def markdown(self) -> str:
        """Return the tables as Markdown."""
        return self.page.markdown()

    @property
    def latex(self) -> str:
        """Return the tables as LaTeX, which needs the package booktabs."""
        return latex(self.rows, self.baselines, self.pairs, self.ranking)

    @property
    def frame(self) -> DataFrame:
        """Return a row per pair and metric: difference, interval, p-values, effect sizes."""
        import pandas as pd

        return pd.DataFrame(list(self.page.records))

    def write(self, folder: str | Path) -> list[Path]:
        """Write comparison.md, .csv, .tex, .png and .svg into a folder."""
        return self.page.write(Path(folder), (), self.latex)

    def brief(self) -> list[RenderableType]:
        """Return the table of the runs and that of the pairs, as wide as they fit."""
        return [sheet.first(COLUMNS) for sheet in self.page.sheets[:2]]


@checked
def compare(
    runs: Sequence[Run | str | Path],
    metrics: Sequence[str] = (),
    *,
    ranking: str | None = None,
    out: str | Path | None = None,
) -> Comparison:
    """Compare finished runs of the same data, protocol and users, each pair over users and over seeds.

    A run is a folder of `simulate`, or one with a run per seed. Over users: the paired bootstrap's 95 % interval of the
    difference (Efron, 1979) and Wilcoxon's signed-rank test, with Cohen's d and the rank-biserial correlation. Over
    seeds that all have: the paired t-test. p-values are corrected for all pairs and metrics together (Holm, 1979).
    `metrics`: some of the runs' (none: all). `ranking`: full or sampled (None: full where all have it). `out`: a folder
    for tables (Markdown, LaTeX, CSV) and a figure. Raises `InputError` for folders that are no whole runs, and for runs
    whose data, protocol, seeds or users differ.

    Example: ``edgefr.compare(["runs/fedmf", "runs/pfedrec"]).frame``
    """
    found = by_method(sides([each.path if isinstance(each, Run) else Path(each) for each in runs]))
    seeds = shared_seeds(found)
    kind = ranking_of(found, seeds, ranking)
    check_alike(found, seeds, kind)
    names, notes = _distinct_metrics(found, seeds, kind, metrics_of(found, seeds, kind, metrics), bool(metrics))
    pairs = _pairs(found, seeds, kind, names)
    rows = [_reached(side, kind, names, pairs) for side in found]
    verdicts = [f"{_first(side)}: {line}" for side in found for line in side.first.verdicts]
    lines = [*notes, *_seed_notes(found, seeds), *verdicts]
    values = {side.name: side.first.values for side in found}
    settings = dict.fromkeys(setting for own in values.values() for setting in own)
    table = {setting: {side: own.get(setting, "") for side, own in values.items()} for setting in settings}
    differs = {setting: row for setting, row in table.items() if len(set(row.values())) > 1}
    known = baselines(found, seeds, kind, names).items()
    beside = [RunMetrics(name, {m: Spread.of(own) for m, own in of.items()}, {m: [] for m in of}) for name, of in known]
    comparison = Comparison(rows, pairs, differs, kind, lines, beside)
    if out is not None:
        comparison.write(out)
    return comparison


def _first(side: Side) -> str:
    """Return the name of a side's first run: of several seeds, which one it is."""
    return side.name if len(side.runs) == 1 else f"{side.name}, seed {next(iter(side.runs))}"


def _distinct_metrics(
    found: Sequence[Side], seeds: Sequence[int], ranking: str, metrics: Sequence[str], asked: bool
) -> tuple[list[str], list[str]]:
    """Return the metrics without those that are an earlier one for every user, which would be tested twice."""
    measured = [of for side in found for seed in seeds for _, of in side.runs[seed].users[ranking].values()]
    kept, notes = list[str](), list[str]()
    for name in metrics:
        same = next((k for k in kept if all(np.array_equal(of[name], of[k]) for of in measured)), None)
        if same is None or asked:
            kept.append(name)
        else:
            notes.append(f"{name} is {same} for every user of these runs, and is left out")
    return kept, notes


def _pairs(found: Sequence[Side], seeds: Sequence[int], ranking: str, metrics: Sequence[str]) -> list[Pair]:
    """Test every pair in every metric, all as one family of tests over users and one over seeds."""
    keys, over_users, over_seeds = dict[str, tuple[Side, Side, str]](), dict[str, Apart](), dict[str, float]()
    for one, other in combinations(found, 2):
        parts = differences(one, other, seeds, ranking, metrics)
        for metric, tested in zip(metrics, apart(parts), strict=True):
            key = f"{len(keys)}"
            keys[key] = one, other, metric
            mine, theirs = (side.by_seed(metric, ranking) for side in (one, other))
            over_users[key] = tested
            over_seeds[key] = paired_t([mine[seed] for seed in seeds], [theirs[seed] for seed in seeds])
    by_user, by_seed = family(over_users), holm(over_seeds)
    return [Pair(one.name, other.name, name, by_user[key], by_seed[key]) for key, (one, other, name) in keys.items()]


def _reached(side: Side, ranking: str, metrics: Sequence[str], pairs: Sequence[Pair]) -> RunMetrics:
    values = {metric: Spread.of(list(side.by_seed(metric, ranking).values())) for metric in metrics}
    above = dict[str, list[str]]({metric: [] for metric in metrics})
    for pair in pairs:
        if pair.above == side.name:
            above[pair.metric].append(pair.other if pair.one == side.name else pair.one)
    return RunMetrics(side.name, values, above)


def _seed_notes(found: Sequence[Side], seeds: Sequence[int]) -> list[str]:
    """Say over which seeds pairs were made, where that is not all there is."""
    lines = [f"runs are paired by {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"]
    if len(seeds) == 1:
        lines.append("one seed: variation between trainings is not tested (edgefr simulate --seeds 5)")
    elif not all(side.one_data for side in found):
        lines.append("the data are generated by the seed, so that every seed has users of its own")
    return lines
