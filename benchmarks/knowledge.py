"""Milliseconds of the server's knowledge base (FCUCR Eq. 4-6): taking a round's prototypes, and answering it.

Vectors are normal numbers of a fixed seed. CPU time of one thread, the median of --repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from cloud.fusion import KnowledgeSettings
from cloud.prototypes import KnowledgeBase

CLIENTS = 877  # of XING
CASES = (
    # name, prototypes, values of each, index
    ("all 40 rounds, features of every position", 35_080, 750, "exact"),
    ("all 40 rounds, their mean", 35_080, 50, "exact"),
    ("one per session (replace)", 4_385, 750, "exact"),
    ("120,000, all compared", 120_000, 50, "exact"),
    ("120,000, nearest clusters", 120_000, 50, "faiss"),
)


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """Return the median CPU time of `call`."""
    out = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        out.append((time.process_time() - start) * 1e3)
    return median(out)


def measured(prototypes: int, width: int, index: str, seed: int, repeats: int) -> tuple[float, float]:
    """Return the milliseconds of one round's `add` and of one round's `answer`."""
    generator = torch.Generator().manual_seed(seed)
    # Clusters there are as many as clients: prototypes of one client lie together, as features do.
    centres = torch.randn(CLIENTS, width, generator=generator)
    settings = KnowledgeSettings.model_validate({"index": index, "replace": False})
    base = KnowledgeBase(width, settings)
    clients = np.arange(CLIENTS)
    rounds = -(-prototypes // CLIENTS)
    adds = []
    for number in range(1, rounds + 1):
        some = clients[: prototypes - (number - 1) * CLIENTS]
        vectors = centres[: len(some)] + 0.3 * torch.randn(len(some), width, generator=generator)
        start = time.process_time()
        base.add(number, some, vectors)
        adds.append((time.process_time() - start) * 1e3)
    queries = centres + 0.3 * torch.randn(CLIENTS, width, generator=generator)
    base.answer(clients, queries)  # the first call makes the clusters
    return median(adds), milliseconds(lambda: base.answer(clients, queries), repeats)


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| prototypes | values | index | add, ms | answer to 877 clients, ms |\n|---|---:|---|---:|---:|")
    for name, prototypes, width, index in CASES:
        add, answer = measured(prototypes, width, index, arguments.seed, arguments.repeats)
        print(f"| {name}: {prototypes:,} | {width} | {index} | {add:.1f} | {answer:.0f} |", flush=True)


if __name__ == "__main__":
    main()
