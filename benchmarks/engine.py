"""Client updates per second: the vectorised executor against loops over clients, one thread, same machine.

    python benchmarks/engine.py [--data-dir DIR] [--only ml-100k|small|transfr]

`loop` is a careful loop over clients on bare tensors (autograd, touched rows only, no module, no optimiser object): an
honest rival. `debug` is edgefr's own one-client-at-a-time executor. All use the same keyed draws, so all do the same
work. Times are CPU seconds of the best of `--repeat` runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from edgefr import data
from edgefr.data.interactions import Ragged
from edgefr.data.protocols import LeaveOneOut
from edgefr.engine import debug, inline
from edgefr.engine.footprint import default_shard_size
from edgefr.engine.sampling import Sampler
from edgefr.engine.work import LocalWork
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.program import LocalProgram
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings


def careful_loop(work: LocalWork, shared: dict[str, Tensor], private: dict[str, Tensor], clients: np.ndarray) -> None:
    """FedMF, one client after another: gather touched rows once, SGD steps on bare tensors, keep the sparse delta.

    The examples of all clients are drawn in one vectorised call, so the loop is not charged for small draws.
    """
    lr = work.phases[0].lr
    examples = work.sampler.epoch(clients, work.phases[0].name, work.round, 0)
    ends = np.cumsum(examples.counts)
    items, labels = torch.from_numpy(examples.items), torch.from_numpy(examples.label)
    for slot, (first, last) in enumerate(zip(ends - examples.counts, ends, strict=True)):
        user, label = private["user"][slot].clone(), labels[first:last]
        touched, index = items[first:last].unique(return_inverse=True)
        rows = shared["item"][touched]
        start, place = rows.clone(), index
        for at in range(0, len(place), work.sampler.batch_size):
            some = slice(at, at + work.sampler.batch_size)
            rows.requires_grad_(True)
            user.requires_grad_(True)
            scores = (rows[index[some]] * user).sum(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, label[some])
            by_rows, by_user = torch.autograd.grad(loss, (rows, user))
            rows = rows.detach() - lr["item"] * by_rows
            user = user.detach() - lr["user"] * by_user
        _ = rows - start


def timed(call: Callable[[], object], clients: int, repeat: int) -> float:
    """Clients per CPU second, best of `repeat`."""
    best = np.inf
    for _ in range(repeat):
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return clients / best


def compare(name: str, program: LocalProgram, train: Ragged, items: int, batch_size: int, repeat: int) -> None:
    """Print one row per way of running the clients of `train` for one round."""
    sampler = Sampler(train, np.arange(items), items, 4, batch_size, seed=0)
    work = LocalWork(program, program.phases[:1], sampler, train, 1, torch.device("cpu"))
    shared = program.init_shared(0)
    clients = np.argsort(-train.counts, kind="stable")
    clients = clients[train.counts[clients] > 0]
    used = {n for n in program.phases[0].uses if program.specs[n].place == "private"}

    def private(part: np.ndarray) -> dict[str, Tensor]:
        return {n: v for n, v in program.init_private(0, torch.from_numpy(part)).items() if n in used}

    size = default_shard_size(program, batch_size, 64)
    shards = [clients[at : at + size] for at in range(0, len(clients), size)]
    states = [private(shard) for shard in shards]
    few = clients[:: max(1, len(clients) // 300)]
    state = private(few)

    def vectorised() -> None:
        for shard, own in zip(shards, states, strict=True):
            inline.run(work, shared, own, shard)

    rows = {"vectorised": timed(vectorised, len(clients), repeat)}
    if program.name == "fedmf":
        rows["loop"] = timed(lambda: careful_loop(work, shared, state, few), len(few), repeat)
    rows["debug"] = timed(lambda: debug.run(work, shared, state, few), len(few), repeat)
    rival = rows.get("loop", rows["debug"])
    per = train.counts.sum() * 5 / len(clients)
    print(f"{name}: {len(clients)} clients, {per:.0f} examples each, shards of {size}")
    for way, speed in rows.items():
        print(
            f"  {way:<11}{speed:>10,.0f} clients/s"
            + (f"   {speed / rival:.1f}x the loop" if way == "vectorised" else "")
        )


def small_clients(clients: int, items: int) -> Ragged:
    """Clients with 8 positives: 40 examples, about 40 touched rows."""
    rng = np.random.default_rng(0)
    return Ragged.from_lists([rng.choice(items, 8, replace=False) for _ in range(clients)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", choices=["ml-100k", "small", "transfr"])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only in (None, "ml-100k"):
        dataset = data.load("ml-100k", options.data_dir)
        train, items = LeaveOneOut().apply(dataset, 0)[0].train, len(dataset.catalogue.ids)
        compare("FedMF, ml-100k, batch 512", FedMF(FedMFSettings(), items, 1), train, items, 512, options.repeat)
    if options.only in (None, "small"):
        train = small_clients(8000, 3000)
        compare(
            "FedMF, small clients, 5 steps of 8",
            FedMF(FedMFSettings(), 3000, 1),
            train,
            3000,
            8,
            options.repeat,
        )
    if options.only in (None, "transfr"):
        dataset = data.load("demo")
        train, items = LeaveOneOut().apply(dataset, 0)[0].train, len(dataset.catalogue.ids)
        text = torch.from_numpy(np.random.default_rng(0).standard_normal((items, 156)).astype(np.float32))
        compare("TransFR, demo, batch 256", TransFR(TransFRSettings(), text, 1), train, items, 256, options.repeat)


if __name__ == "__main__":
    main()
