"""What a round costs on Ray beyond the work itself: seconds of the clock, and of CPU by who spends it.

    python benchmarks/on_ray.py [--clients 4096] [--items 2000] [--rounds 9] [--workers 2] [--dim 32]

Rounds of FedMF in this process and on a Ray of its own, one after the other in every repetition. Workers, driver and
Ray's own processes share the cores of this machine: where these are no more than the workers, what the driver and Ray
take stands in their way, and the clock shows it. CPU seconds do not depend on that, nor on who else is at work.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from cloud.rule import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.backends.backend import Backend, Inline, blocks
from edgefr.engine.backends.ray import OnRay
from edgefr.engine.federation import Federation
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from privacy.plan import plan
from privacy.settings import PrivacySettings


def federation(given: argparse.Namespace, backend: Backend) -> Federation:
    """Return a federation of FedMF whose rounds `backend` trains."""
    clients = given.clients
    return Federation(
        FedMF(FedMFSettings(dim=given.dim), given.items, 1),
        clients=clients,
        seed=0,
        shard_size=64,
        aggregation=AggregationSettings(),
        plan=plan(PrivacySettings(), 1, clients, clients, "uniform"),
        device=torch.device("cpu"),
        backend=backend,
    )


def cpu() -> dict[str, float]:
    """Return the CPU seconds so far of this process, of its Ray's workers and of Ray's other processes."""
    found: dict[int, tuple[int, bytes, float]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
            threads = [(each / "schedstat").read_text("utf-8") for each in (entry / "task").iterdir()]
            on_core = sum(int(text.split()[0]) for text in threads) / 1e9
            found[int(entry.name)] = parent, (entry / "cmdline").read_bytes(), on_core
    spent = {"the driver": time.process_time(), "workers": 0.0, "Ray itself": 0.0}
    for parent, command, seconds in found.values():
        while parent in found and parent != os.getpid():
            parent = found[parent][0]
        if parent == os.getpid():
            spent["workers" if command.startswith(b"ray::") else "Ray itself"] += seconds
    return spent


def main() -> None:
    """Print what a round takes here and on Ray."""
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("clients", 4096), ("items", 2000), ("rounds", 9), ("workers", 2), ("dim", 32)):
        ask.add_argument(f"--{name}", type=int, default=value)
    given = ask.parse_args()
    rng = np.random.default_rng(0)
    had = Ragged.from_lists([rng.choice(given.items, 40, replace=False).tolist() for _ in range(given.clients)])
    sampler = Sampler(had, np.arange(given.items), given.items, 4, 256, 0)
    everyone, on_ray = np.arange(given.clients), OnRay("local", given.workers)
    on_ray.start()
    made = {
        "here": federation(given, Inline()),
        "on Ray": federation(given, on_ray),
    }
    walls: dict[str, list[float]] = {name: [] for name in made}
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in made}
    for number in range(1, given.rounds + 3):
        for name, each in made.items():
            before, began = cpu(), time.perf_counter()
            each.round(number, everyone, sampler, had)
            walls[name].append(time.perf_counter() - began)
            spent[name].append({who: seconds - before[who] for who, seconds in cpu().items()})
    assert torch.equal(made["here"].shared["item"], made["on Ray"].shared["item"]), "other bits"
    assert torch.equal(made["here"].private["user"], made["on Ray"].private["user"]), "other bits"
    on_ray.close()
    # the first two rounds compile, import and start workers
    here, there = (float(np.median(walls[name][2:])) for name in made)
    work = float(np.median([each["the driver"] for each in spent["here"][2:]]))
    costs = {who: float(np.median([each[who] for each in spent["on Ray"][2:]])) for who in spent["on Ray"][0]}
    count = len(blocks(-(-given.clients // 64)))
    beyond = 1e3 * (there - here / given.workers) / count
    print(f"{given.clients} clients, {count} blocks, {given.workers} workers, {os.cpu_count()} cores")
    print(f"clock: {here:.3f} s a round here, {there:.3f} s on Ray: {beyond:.1f} ms a block beyond an even share")
    print(f"CPU: {work:.3f} s here; " + ", ".join(f"{who} {seconds:.3f} s" for who, seconds in costs.items()))
    over = 1e3 * (sum(costs.values()) - work) / count
    print(f"CPU beyond the work: {over:.1f} ms a block, {1e3 * costs['the driver'] / count:.1f} of it the driver's")


if __name__ == "__main__":
    main()
