"""Draw the cohort-size curve: test NDCG@10 against the number of clients, from the `runs.csv` of sweeps over it.

python experiments/privacy/curve.py OUT.png RUNS.csv [RUNS.csv ...]
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

from edgefr.report.pages import Spread

USERS, EPSILON, METRIC = "data_options.users", "privacy.epsilon", "NDCG@10"


def main(out: Path, tables: list[Path]) -> None:
    """One line per epsilon, error bars over seeds; a run that is in two tables counts once."""
    found: dict[str, dict[tuple[int, str], float]] = defaultdict(dict)
    for table in tables:
        with open(table, newline="") as file:
            for row in csv.DictReader(file):
                if row["status"] == "done":
                    found[row[EPSILON]][int(row[USERS]), row["seed"]] = float(row[METRIC])
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for epsilon, runs in found.items():
        clients = sorted({users for users, _ in runs})
        worth = [Spread.of([value for (users, _), value in runs.items() if users == n]) for n in clients]
        spread = [0.0 if w.sd != w.sd else w.sd for w in worth]
        label = "clip, no noise" if epsilon == "inf" else f"local epsilon {epsilon}"
        axes.errorbar(clients, [w.mean for w in worth], yerr=spread, marker="o", capsize=3, label=label)
    axes.set(xscale="log", xlabel="clients", ylabel=f"{METRIC}, test", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
