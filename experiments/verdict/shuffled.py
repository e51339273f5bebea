"""How often a run says that learning helped where nothing could be learned: the default run on shuffled interactions.

    python experiments/verdict/shuffled.py --seeds 20 [--how "among users"] [--set method=fedmf]

Two ways to shuffle the demo's interactions: `among users` gives every interaction the item of another one, so that
items stay as popular as they were; `anew` draws items evenly, so that not even popularity is left to learn. `not at
all` leaves them as they are, to see that the verdict can be the other one too.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import edgefr
from edgefr.data.datasets import load
from edgefr.data.interactions import Dataset

HOW = ("among users", "anew", "not at all")


def shuffled(dataset: Dataset, how: str, seed: int) -> Dataset:
    """Return the data set with other items, at the same times and by the same users."""
    rng = np.random.default_rng(seed)
    if how == "not at all":
        return dataset
    if how == "among users":
        return replace(dataset, item=rng.permutation(dataset.item))
    return replace(dataset, item=rng.integers(0, len(dataset.catalogue), len(dataset.item)).astype(dataset.item.dtype))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--how", choices=HOW, action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    for how in asked.how or HOW:
        stages: dict[str, int] = {}
        for seed in range(asked.seeds):
            experiment = edgefr.load_experiment(overrides=[f"seed={seed}", *asked.set])
            data = shuffled(load("demo", None, seed, experiment.data_options), how, seed)
            with tempfile.TemporaryDirectory() as place:
                run = edgefr.simulate(experiment, data=data, out=Path(place) / "run", bundles=False, page=False)
                summary = run.summary
            for stage, found in summary["learning"]["main"].items():
                stages[stage] = stages.get(stage, 0) + (not found["helped"])
            print(f"{how}, seed {seed}: {summary['verdicts']['main'][-1]}", flush=True)
        for stage, times in stages.items():
            print(f"{how}: {stage}: did not help in {times} of {asked.seeds} seeds", flush=True)


if __name__ == "__main__":
    main()
