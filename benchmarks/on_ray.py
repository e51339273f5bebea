"""What a round costs on Ray beyond the work itself: milliseconds of a block, and bytes that cross to the workers.

    python benchmarks/on_ray.py [--clients 4096] [--items 2000] [--rounds 5] [--workers 2]

Wall seconds of rounds of FedMF in this process and on a Ray of its own, one after the other in every repetition.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from cloud.settings import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.backend import Backend, Inline, blocks
from edgefr.engine.federation import Federation
from edgefr.engine.on_ray import OnRay
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from privacy.plan import plan
from privacy.settings import PrivacySettings


def federation(clients: int, items: int, backend: Backend) -> Federation:
    """Return a federation of FedMF whose rounds `backend` trains."""
    return Federation(
        FedMF(FedMFSettings(dim=32), items, 1),
        clients=clients,
        seed=0,
        shard_size=64,
        aggregation=AggregationSettings(),
        plan=plan(PrivacySettings(), 1, clients, clients, "uniform"),
        device=torch.device("cpu"),
        backend=backend,
    )


def main() -> None:
    """Print what a round takes here and on Ray."""
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("clients", 4096), ("items", 2000), ("rounds", 5), ("workers", 2)):
        ask.add_argument(f"--{name}", type=int, default=value)
    given = ask.parse_args()
    rng = np.random.default_rng(0)
    had = Ragged.from_lists([rng.choice(given.items, 40, replace=False).tolist() for _ in range(given.clients)])
    sampler = Sampler(had, np.arange(given.items), given.items, 4, 256, 0)
    everyone, on_ray = np.arange(given.clients), OnRay("local", given.workers)
    on_ray.start()
    made = {
        "here": federation(given.clients, given.items, Inline()),
        "on Ray": federation(given.clients, given.items, on_ray),
    }
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for number in range(1, given.rounds + 2):
        for name, each in made.items():
            began = time.perf_counter()
            each.round(number, everyone, sampler, had)
            seconds[name].append(time.perf_counter() - began)
    on_ray.close()
    assert torch.equal(made["here"].shared["item"], made["on Ray"].shared["item"]), "other bits"
    here, there = (float(np.median(seconds[name][1:])) for name in made)  # the first compiles, and imports
    count = len(blocks(-(-given.clients // 64)))
    beyond = 1e3 * (there - here / given.workers) / count
    print(
        f"{given.clients} clients, {count} blocks: {here:.3f} s a round here, {there:.3f} s on {given.workers} workers"
    )
    print(f"beyond the work, were it shared evenly: {beyond:.1f} ms a block")


if __name__ == "__main__":
    main()
