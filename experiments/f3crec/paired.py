"""Compare the methods of a folder of runs with fine-tuning, by pairs: over seeds, and over users and seeds together.

    python experiments/f3crec/paired.py runs/f3crec

The folder is what `edgefr reproduce f3crec --table 2 --out` or `official.py` left. A method's value is the mean over D1
to D3 of NDCG@20 right after each block. p over seeds is a paired t-test; the interval and p over users and seeds come
from 10,000 resamples in which seeds and users are drawn with replacement, a block's users being those tested in it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgefr.metrics.significance import paired_t
from edgefr.simulation.runs.run import Run

METRIC, BLOCKS, RESAMPLES = "NDCG@20", ("D1", "D2", "D3"), 10_000
Values = Mapping[str, Mapping[str, float]]


def users_of(run: Run) -> dict[str, dict[str, float]]:
    """Return every tested user's value right after each block, by block and user."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(run.path / "private" / "users.parquet").to_pylist()
    own = [row for row in table if row["stage"] == "federated"]
    return {block: {row["user"]: row[METRIC] for row in own if row["on"] == block} for block in BLOCKS}


def by_method(folder: Path) -> dict[tuple[str, str], dict[int, Run]]:
    """Return finished runs by (backbone, strategy), then seed."""
    out: dict[tuple[str, str], dict[int, Run]] = {}
    for path in sorted((folder / "runs").iterdir()):
        if (path / "summary.json").is_file():
            e = Run(path).experiment
            out.setdefault((str(e.backbone), e.strategy), {})[e.seed] = Run(path)
    return out


def over_users_and_seeds(one: list[Values], two: list[Values]) -> tuple[float, float, float]:
    """Return the ends of the 95 % interval of the difference, and its two-sided p.

    `one` and `two` have an entry per seed: users' values by block. Users tested with only some seeds count there.
    """
    everybody = sorted({user for seed in one for block in seed.values() for user in block})
    place = {user: at for at, user in enumerate(everybody)}
    difference = np.full((len(one), len(BLOCKS), len(everybody)), np.nan)
    for s, (own, other) in enumerate(zip(one, two, strict=True)):
        for b, block in enumerate(BLOCKS):
            for user in own[block].keys() & other[block].keys():
                difference[s, b, place[user]] = own[block][user] - other[block][user]
    draws, known = np.random.default_rng(0), ~np.isnan(difference)
    filled = np.where(known, difference, 0.0)
    found = np.empty(RESAMPLES)
    for at in range(RESAMPLES):
        users = draws.multinomial(len(everybody), np.full(len(everybody), 1 / len(everybody)))
        seeds = draws.integers(0, len(one), len(one))
        found[at] = float(np.mean((filled[seeds] @ users) / np.maximum(known[seeds] @ users, 1)))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high), float(min(1.0, 2 * min((found <= 0).mean(), (found >= 0).mean())))


def averages(runs: Mapping[int, Run]) -> npt.NDArray[np.float64]:
    """Return a method's value with each seed."""
    return np.array([run.summary["metrics"][METRIC] for run in runs.values()])


def main(folder: Path) -> None:
    """Print a line per method."""
    found = by_method(folder)
    print(
        "| backbone | strategy | seeds | N@20 | R@20 | over FT | p over seeds | difference over users and seeds | p |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (backbone, strategy), runs in found.items():
        base = {seed: run for seed, run in found.get((backbone, "ft"), {}).items() if seed in runs}
        own = {seed: run for seed, run in runs.items() if seed in base}
        mine, theirs = averages(own), averages(base)
        recall = np.mean([run.summary["metrics"]["Recall@20"] for run in own.values()])
        line = f"| {backbone} | {strategy} | {len(mine)} | {mine.mean():.4f} ± {mine.std(ddof=1):.4f} | {recall:.4f} |"
        if strategy != "ft":
            low, high, p = over_users_and_seeds(*([users_of(run) for run in s.values()] for s in (own, base)))
            change = 100 * (mine.mean() / theirs.mean() - 1)
            line += f" {change:+.1f} % | {paired_t(mine, theirs):.3f} | {low:+.4f} to {high:+.4f} | {p:.3f} |"
        print(line + " | | | |" * (strategy == "ft"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
