"""Client updates per second of worker processes against one process: FedMF on a generated data set.

    python benchmarks/parallel.py [--clients 20000] [--positives 20] [--workers 1 2] [--rounds 3]

Whole rounds of a federation, wall-clock time, best of `--rounds` after a first one; starting the workers is told apart.
Every way ends with the same bits, which is checked.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch

from cloud.rule import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.backends.backend import Backend, Inline
from edgefr.engine.backends.processes import Workers
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import default_shard_size
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from privacy import keyed
from privacy.plan import plan
from privacy.settings import PrivacySettings

ITEMS, NEGATIVES, BATCH, MEMORY_MB = 4000, 4, 256, 64


def interactions(clients: int, positives: int) -> Ragged:
    """About so many positives per client, so five times as many examples; some clients have many more."""
    few = positives // 4
    counts = np.minimum(few + keyed.generator(0, "counts").geometric(1 / (positives - few), clients), ITEMS // 4)
    step = 1 + keyed.integers(keyed.key(0, "step"), np.arange(clients), ITEMS // 4)
    first = keyed.integers(keyed.key(0, "first"), np.arange(clients), ITEMS)
    row = np.repeat(np.arange(clients), counts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    items = (first[row] + place * (2 * step[row] + 1)) % ITEMS
    codes = np.unique(row * ITEMS + items)  # a few walks meet themselves
    return Ragged.from_sorted(codes // ITEMS, (codes % ITEMS).astype(np.int32), clients)


def measured(name: str, backend: Backend, train: Ragged, rounds: int) -> tuple[float, torch.Tensor]:
    """Clients per second, and the item table at the end."""
    clients = len(train)
    program = FedMF(FedMFSettings(dim=32), ITEMS, 1)
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, NEGATIVES, BATCH, seed=0)
    made = Federation(
        program,
        clients=clients,
        seed=0,
        shard_size=default_shard_size(program, BATCH, MEMORY_MB),
        aggregation=AggregationSettings(),
        plan=plan(PrivacySettings(), rounds, clients, clients),
        device=torch.device("cpu"),
        backend=backend,
    )
    started = time.perf_counter()
    backend.start()
    ready, best = time.perf_counter() - started, np.inf
    for number in range(rounds + 1):
        started = time.perf_counter()
        made.round(number, np.arange(clients), sampler, train)
        if number:
            best = min(best, time.perf_counter() - started)
    backend.close()
    shards = -(-clients // made.shard_size)
    print(
        f"{name:>12}  {clients / best:>9,.0f} clients/s  {best:6.2f} s a round, {shards} shards, ready in {ready:.1f} s"
    )
    return clients / best, made.shared["item"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--positives", type=int, default=20, help="of a client, at the mean")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    train = interactions(options.clients, options.positives)
    print(
        f"{len(train):,} clients, {len(train.values) * (1 + NEGATIVES) / len(train):.0f} examples each, {ITEMS} items"
    )
    print(f"{os.cpu_count()} cores, load before the run {os.getloadavg()[0]:.1f}")
    alone, table = measured("inline", Inline(), train, options.rounds)
    speeds = {}
    for count in options.workers:
        speeds[count], found = measured(f"{count} workers", Workers(count), train, options.rounds)
        assert torch.equal(found, table), "worker processes gave other bits than one process"
    first = speeds[options.workers[0]]
    for count, speed in speeds.items():
        against = f"{speed / first:.2f} x {options.workers[0]} worker(s)"
        print(f"{count} workers: {speed / alone:.2f} x inline, {against}")


if __name__ == "__main__":
    main()
