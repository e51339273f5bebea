"""Milliseconds of full-ranking evaluation, one thread: FedMF scores and the metrics of everyone's held-out list.

    python benchmarks/evaluation.py [--repeat N]

Random tensors of width 32, so no data set is needed. The first row has the size of F3CRec's ML-100K (943 users, 1,152
items, about 6 held-out items and 60 left out for each user); `single` is `evaluate(..., "full")` with one held-out
item for each user. Times are CPU time, the best of `--repeat` runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from edge.ragged import Ragged
from edgefr.data.splits.split import Split
from edgefr.engine.scoring import ModelScorer
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.simulation.evaluation.lists import rank_lists
from edgefr.simulation.evaluation.ranking import evaluate

KS = [10, 20]
HELD_OUT, LEFT_OUT = 6.5, 60


def lists(rng: np.random.Generator, users: int, items: int) -> tuple[Ragged, Ragged]:
    """Held-out items and items left out, disjoint for each user, about `HELD_OUT` and `LEFT_OUT` of them."""
    counts = 1 + rng.poisson(HELD_OUT - 1, users)
    hidden = rng.poisson(LEFT_OUT, users)
    rows = [rng.choice(items, a + b, replace=False) for a, b in zip(counts.tolist(), hidden.tolist(), strict=True)]
    ends = counts.tolist()
    return (
        Ragged.from_lists([row[:end] for row, end in zip(rows, ends, strict=True)]),
        Ragged.from_lists([row[end:] for row, end in zip(rows, ends, strict=True)]),
    )


def model(users: int, items: int, pool: np.ndarray) -> ModelScorer:
    """FedMF with random vectors."""
    program = FedMF(FedMFSettings(dim=32), items, 1)
    generator = torch.Generator().manual_seed(0)
    shared = {"item": torch.randn((items, 32), generator=generator)}
    private = {"user": torch.randn((users, 32), generator=generator)}
    return ModelScorer(program, shared, private, Ragged.empty(users), pool, items, torch.device("cpu"))


def best(call: Callable[[], object], repeat: int) -> float:
    """CPU seconds of the fastest of `repeat` calls."""
    seconds = []
    for _ in range(repeat):
        started = time.process_time()
        call()
        seconds.append(time.process_time() - started)
    return min(seconds)


def measure(users: int, items: int, repeat: int) -> None:
    """Print one block of rows."""
    rng = np.random.default_rng(0)
    targets, hidden = lists(rng, users, items)
    everyone, pool = np.arange(users), np.arange(items, dtype=np.int32)
    score = model(users, items, pool)
    first = targets.values[targets.offsets[:-1]]
    nothing = np.empty((0, 1), np.int32)
    split = Split("main", hidden, Ragged.empty(users), np.full(users, -1, np.int32), first, pool, nothing, nothing)
    ways: dict[str, Callable[[], object]] = {
        "lists, all": lambda: rank_lists(score, pool, everyone, targets, hidden, KS),
        "single, all": lambda: evaluate(score, split, "test", "full").metrics(KS),
    }
    if users * items < 1 << 24:
        known = score(everyone, None)
        ways["scores only"] = lambda: score(everyone, None)
        ways["lists, scores given"] = lambda: rank_lists(
            lambda some, _: known[some], pool, everyone, targets, hidden, KS
        )
    print(f"{users:,} users, {items:,} items, {len(targets.values):,} held out, {len(hidden.values):,} left out")
    for name, call in ways.items():
        seconds = best(call, repeat)
        print(f"  {name:<20}{seconds * 1e3:>9.1f} ms{users / seconds:>12,.0f} users/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure(943, 1152, options.repeat)
    measure(2000, 100_000, max(1, options.repeat // 10))


if __name__ == "__main__":
    main()
