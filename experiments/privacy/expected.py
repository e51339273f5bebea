"""Measure what noise leaves of utility: the points that `edgefr privacy --plan` goes by, one row per run.

python experiments/privacy/expected.py OUT.csv [DATA] [METHOD ...]

A row that OUT.csv has is not measured again, so a stopped call goes on where it was. DATA is the folder of archives.
Runs share their data, candidates and first values where they share a seed; noise is drawn anew in each.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

from edgefr.experiment import Experiment, load_experiment
from edgefr.fleet import load_fleet
from edgefr.pipeline import sized
from edgefr.prepare import Prepared, prepare
from edgefr.report.summary import summarise
from edgefr.reproductions.runs import ideal_fleet
from edgefr.training import Training

METRIC = "NDCG@10"
EPSILONS = (float("inf"), 8.0, 2.0, 32.0, 0.5)
SEEDS = (0, 1, 2)
COMMON = [
    "protocol={name: leave-one-out}",
    "local_epochs=1",
    "batch_size=512",
    "clients_per_round=1.0",
    "evaluation={every: 1000, full_ranking_users: 0}",
    "privacy={mechanism: gaussian, trust: central, clip: 1.0, epsilon: 8.0, sampler: float}",
]
TABLE = ["rounds=20", "model={dim: 8, init_scale: 0.03, lr: 0.8}", "aggregation={weights: uniform, server_lr: 10.0}"]
TEXT = [
    "rounds=5",
    "encoder.kind=tfidf",
    "model={adapter: [32], head: [32], user_encoder: mean, lr: 0.03, local_training_epochs: 0}",
    "aggregation={weights: uniform, optimiser: sgd, server_lr: 10.0}",
]
METHODS: dict[str, tuple[list[str], tuple[float, ...], tuple[float, ...]]] = {
    "fedmf": (TABLE, (160.0, 40.0), (40.0, 10.0)),
    "pfedrec": (TABLE, (10.0,), (10.0,)),
    "transfr": (TEXT, (16.0, 4.0), (16.0, 4.0)),
}
"""By method: its settings, and server rates with little noise and with much; of several, one is chosen on validation
items of the first seed."""
MUCH = 8.0
"""Noise is much from this epsilon down."""
DATA: dict[str, tuple[str, str, float]] = {
    "demo, 1,000 users": ("demo", "{users: 1000, items: 800}", 1),
    "ml-100k": ("ml-100k", "{}", 1),
    "ml-latest-small": ("ml-latest-small", "{}", 1),
    "demo, 300 users": ("demo", "{users: 300, items: 800}", 1),
    "demo, a quarter of the rounds": ("demo", "{users: 1000, items: 800}", 0.25),
    "demo, twice the rounds": ("demo", "{users: 1000, items: 800}", 2),
}
"""By name: data set, its options, and its rounds as a share of the method's."""

Row = dict[str, Any]
Key = tuple[str, str, int, float, float]
"""Method, data, seed, epsilon, server rate."""


def experiment(method: str, data: str, seed: int, epsilon: float, rate: float) -> Experiment:
    """Return one run's experiment."""
    name, options, share = DATA[data]
    own = METHODS[method][0]
    named = [f"method={method}", f"data={name}", f"data_options={options}", f"seed={seed}", *COMMON, *own]
    amount = ".inf" if math.isinf(epsilon) else f"{epsilon}"
    changed = [f"privacy.epsilon={amount}", f"aggregation.server_lr={rate}"]
    found = load_experiment(None, [*named, *changed])
    return found.model_copy(update={"rounds": max(1, round(found.rounds * share))})


def wanted(methods: list[str], rows: list[Row]) -> Iterator[Key]:
    """Yield what is to be measured: every rate with the first seed, then the best of them with the others."""
    for seed, data, method, epsilon in product(SEEDS, DATA, methods, EPSILONS):
        rates = METHODS[method][1 + (epsilon <= MUCH)] if seed == SEEDS[0] else (chosen(method, data, epsilon, rows),)
        for rate in rates:
            yield method, data, seed, epsilon, rate


def chosen(method: str, data: str, epsilon: float, rows: list[Row]) -> float:
    """Return the rate that was best on validation items of the first seed."""
    own = [r for r in rows if key(r)[:4] == (method, data, SEEDS[0], epsilon)]
    return float(max(own, key=lambda row: float(row["validation"]))["rate"])


def key(row: Row) -> Key:
    """Return what a row is of."""
    return row["method"], row["data"], int(row["seed"]), float(row["epsilon"]), float(row["rate"])


def measured(asked: Key, prepared: Prepared) -> Row:
    """Run one experiment and return its row."""
    method, data, seed, epsilon, rate = asked
    one = sized(experiment(*asked), prepared)
    fleet = load_fleet(Path("devices.yaml"), ideal_fleet())
    training = Training.start(one, prepared, fleet, torch.device("cpu"), lambda *_: None)
    training.train()
    summary = summarise(training, 0.0, 0.0, [])
    plan, references = training.federation.plan, summary["references"]["main"]
    best = max(references, key=lambda name: float(references[name][METRIC]))
    return {
        "method": method,
        "data": data,
        "seed": seed,
        "clients": summary["fleet"]["contributed"] // one.rounds,
        "items": summary["dataset"]["items"],
        "values": summary["privacy"]["values"],
        "rounds": one.rounds,
        "epsilon": epsilon,
        "delta": one.privacy.delta,
        "clip": plan.clip,
        "std_on_mean": plan.std_on_mean_of(summary["fleet"]["contributed"] // one.rounds),
        "rate": rate,
        "validation": summary["validation"]["main"][summary["stage"]][METRIC],
        "test": summary["metrics"][METRIC],
        "chance": references["chance"][METRIC],
        "best_reference": best,
        "reference": references[best][METRIC],
    }


def main(out: Path, data_dir: Path | None, methods: list[str]) -> None:
    """Measure what the file lacks."""
    rows: list[Row] = list(csv.DictReader(out.open(newline=""))) if out.is_file() else []
    kept: tuple[Any, Prepared | None] = (None, None)
    for asked in wanted(methods, rows):
        if asked in map(key, rows):
            continue
        if kept[0] != asked[:3]:
            kept = asked[:3], prepare(experiment(*asked), data_dir, "cpu")
        assert kept[1] is not None
        row = measured(asked, kept[1])
        rows.append(row)
        fresh = not out.is_file()
        with out.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(row)
        print(*row.values(), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    given = [Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None]
    torch.set_num_threads(1)
    main(*given, sys.argv[3:] or list(METHODS))
