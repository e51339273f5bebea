"""Correlated and independent noise at equal epsilon, rounds and cohorts.

    python experiments/privacy/correlated.py DATA OUT

PFedRec's recipe for ml-100k. Writes a row per run to OUT/correlated.csv, and OUT/correlated.png.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

import edgefr

RECIPE = Path(__file__).parent / "pfedrec-ml-100k.yaml"
FLEET = Path(__file__).parents[2] / "devices.yaml"
COHORTS = ((1.0, 1), (0.15, 4), (0.08, 9))
"""Share of the clients that a round invites, and the rounds that a client's own are apart at least."""
SEEDS = range(5)


def run(data: Path, out: Path, share: float, apart: int, correlated: bool, seed: int) -> dict[str, Any]:
    """Return a row of the table."""
    law = [f"privacy.apart={apart}", f"privacy.correlated={str(correlated).lower()}", "privacy.sampler=grid"]
    experiment = edgefr.load_experiment(RECIPE, overrides=[*law, f"clients_per_round={share}", f"seed={seed}"])
    made = edgefr.simulate(experiment, FLEET, data_dir=data, out=out, bundles=False, page=False).summary
    learned = made["learning"]["main"]["federated"]
    return {
        "share": share,
        "apart": apart,
        "noise": "correlated" if correlated else "independent",
        "seed": seed,
        "NDCG@10": learned["value"],
        "popularity": learned["against"]["popularity"]["value"],
        "epsilon": made["privacy"]["eps_guaranteed"],
    }


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw the mean and standard deviation over seeds against the share of clients in a round."""
    figure, axes = plt.subplots(figsize=(5.5, 3.5))
    for noise, rows in table.groupby("noise"):
        found = rows.groupby("share")["NDCG@10"].agg(["mean", "std"])
        axes.errorbar(found.index, found["mean"], found["std"], marker="o", capsize=3, label=f"{noise} noise")
    axes.axhline(table["popularity"].mean(), color="grey", linestyle="--", label="popularity")
    axes.set(xlabel="share of the clients in a round", ylabel="NDCG@10, full ranking", xscale="log")
    axes.set_xticks([share for share, _ in COHORTS], [f"{share:.0%}" for share, _ in COHORTS])
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(data: Path, out: Path) -> None:
    """See the module."""
    out.mkdir(parents=True)
    cells = [(share, apart, c) for share, apart in COHORTS for c in ((False, True) if apart > 1 else (False,))]
    rows = [
        run(data, out / f"{share}-{c}-{seed}", share, apart, c, seed) for seed in SEEDS for share, apart, c in cells
    ]
    table = pd.DataFrame(rows)
    table.to_csv(out / "correlated.csv", index=False, float_format="%.4f")
    draw(table, out / "correlated.png")
    print(table.groupby(["share", "noise"])["NDCG@10"].agg(["mean", "std"]).round(4))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
