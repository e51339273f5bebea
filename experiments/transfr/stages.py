"""Say of each run of TransFR what its stages are worth, by paired 95 % intervals over users.

    python experiments/transfr/stages.py RUN...

A row per run and domain: HR@10 among sampled candidates before any round, after the rounds and after local training,
and how much better NDCG@10 is from each to the next.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from edgefr.metrics.bootstrap import intervals
from edgefr.metrics.settings import UNLEARNED

STAGES = (UNLEARNED, "finetune", "localtrain")


def rows(run: Path) -> list[str]:
    """Return a line for each domain that a run's users were asked in."""
    found = pd.read_parquet(run / "private" / "users.parquet")
    lines = []
    for on, asked in found[found.ranking == "sampled"].groupby("on", sort=False):
        hits, worth = (asked.pivot_table(index="user", columns="stage", values=m) for m in ("HR@10", "NDCG@10"))
        steps = np.stack([(worth[after] - worth[before]).to_numpy() for before, after in pairwise(STAGES)], axis=1)
        ends = intervals([(np.arange(len(steps)), steps)], np.random.default_rng(0))
        values = " / ".join(f"{hits[stage].mean():.4f}" for stage in STAGES)
        said = zip(ends.mean, ends.low, ends.high, strict=True)
        gains = " | ".join(f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]" for mean, low, high in said)
        lines.append(f"| {run.name} | {on} | {values} | {gains} |")
    return lines


def main(runs: list[Path]) -> None:
    """Print a table."""
    print("| run | asked in | HR@10 by stage | rounds: NDCG@10 | local training: NDCG@10 |\n|---|---|---|---|---|")
    for run in runs:
        print("\n".join(rows(run)))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main([Path(name) for name in sys.argv[1:]])
