"""Clients per second of the vectorised executor on a device, and GB/s of every server rule beside a plain copy there.

    python benchmarks/gpu.py [--device auto|cpu|cuda] [--clients 256] [--items 10000] [--dim 32] [--repeat 5]

A round is all of it: draws on the host, training, clip, sum, mean. A rule gets the uploads of one cohort, laid on the
device before; a rule that needs a sum alone is timed with the sum. Bytes are the least that could be moved: every
changed row and its two numbers once, and the table read and written once. The copy moves as many bytes as it reads and
writes. Seconds are of the wall, the best of `--repeat`; the device is waited for before a clock is read. Without a GPU
it measures the host, on one thread, and says so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cloud.aggregate import Accumulator
from cloud.host_transfer import there, wait
from cloud.rule import RULES, AggregationSettings, Received
from cloud.rules.gram import GRAM
from cloud.uploads import PAIRS_LIMIT, Uploads
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.device import torch_device
from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from privacy import keyed
from privacy.plan import plan
from privacy.settings import PrivacySettings

HAS, NEGATIVES, COPIED = 40, 4, 2**28


def best(call: Callable[[], object], device: torch.device, repeat: int) -> float:
    """Return the seconds of the quickest of `repeat` calls; the first call of all is not timed."""
    call()
    found = []
    for _ in range(repeat):
        wait(device)
        started = time.perf_counter()
        call()
        wait(device)
        found.append(time.perf_counter() - started)
    return min(found)


def rounds(clients: int, items: int, dim: int, device: torch.device) -> Callable[[], None]:
    """Return what runs a round of FedMF with all of these clients."""
    draws = keyed.generator(0, "benchmark")
    train = Ragged.from_lists([np.unique(draws.integers(0, items, HAS)) for _ in range(clients)])
    sampler = Sampler(train, np.arange(items), items, negatives=NEGATIVES, batch_size=256, seed=0)
    made = Federation(
        FedMF(FedMFSettings(dim=dim), items, 1),
        clients=clients,
        seed=0,
        shard_size=256,
        aggregation=AggregationSettings(),
        plan=plan(PrivacySettings(clip=1.0), 1, clients, clients),
        device=device,
        executor=inline.run,
    )
    return lambda: made.round(1, np.arange(clients), sampler, train)


def cohort(clients: int, items: int, dim: int, device: torch.device) -> tuple[dict[str, Tensor], Uploads]:
    """Return a table with its Gram matrix, and changes of it by so many clients."""
    draws, changed = keyed.generator(0, "uploads"), min(HAS * (1 + NEGATIVES), items)
    rows = np.concatenate([draws.choice(items, changed, replace=False) for _ in range(clients)])
    values = draws.standard_normal((len(rows), dim), dtype=np.float32)
    table = draws.standard_normal((items, dim), dtype=np.float32)
    parts = rows, np.repeat(np.arange(clients), changed), values
    row, slot, value = (there(part, device) for part in parts)
    shared = {"item": there(table, device), GRAM + "item": there(table.T @ table, device)}
    grams = there(draws.standard_normal((clients, dim, dim), dtype=np.float32), device)
    return shared, Uploads({GRAM + "item": grams}, {"item": (row, slot, value)}, clients)


def answering(name: str, shared: dict[str, Tensor], sent: Uploads) -> tuple[Callable[[], object], int]:
    """Return what makes a rule answer a cohort, and the bytes that it moves at least."""
    rule, (row, slot, value) = RULES[name], sent.rows["item"]
    settings = AggregationSettings.model_validate({"rule": name})
    before = shared if rule.grams else {"item": shared["item"]}
    optimiser = rule.optimiser(settings)
    previous = {"item": (shared["item"], torch.ones_like(shared["item"][:, 0], dtype=torch.bool))}
    uploads = None if rule.is_sum else Uploads({}, sent.rows, sent.clients)

    def answer() -> object:
        total = Accumulator(before, row.device)
        if rule.is_sum:
            total.add_rows("item", row, value.double())
            total.add_weight(float(sent.clients), sent.clients)
        if rule.grams:
            total.add_dense(GRAM + "item", sent.dense[GRAM + "item"].double().sum(0))
        return rule.answer(settings, Received(before, total, uploads, ["item"], previous, optimiser))

    moved = [row, slot, value, *before.values(), *before.values(), *(sent.dense.values() if rule.grams else ())]
    return answer, sum(tensor.nbytes for tensor in moved)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto")
    for name, default in (("clients", 256), ("items", 10_000), ("dim", 32), ("repeat", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    device, size = torch_device(asked.device), (asked.clients, asked.items, asked.dim)
    torch.set_num_threads(1)
    on_gpu = device.type == "cuda"
    print(torch.cuda.get_device_name(device) if on_gpu else "no GPU: these are figures of the host, one thread")
    seconds = best(rounds(*size, device), device, asked.repeat)
    shape = f"{asked.clients:,} clients, {asked.items:,} items of {asked.dim}, up to {HAS} items each"
    print(f"a round of {shape}: {asked.clients / seconds:,.0f} clients/s")
    source = torch.zeros(COPIED // 4, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * COPIED / best(lambda: target.copy_(source), device, asked.repeat) / 1e9
    print(f"{'a copy':14}{bandwidth:9.1f} GB/s")
    shared, sent = cohort(*size, device)
    for name in RULES:
        if not RULES[name].is_sum and asked.clients > PAIRS_LIMIT:
            print(f"{name:14}        - of more clients than rules compare")
            continue
        answer, moved = answering(name, shared, sent)
        taken = best(answer, device, asked.repeat)
        print(f"{name:14}{moved / taken / 1e9:9.2f} GB/s {100 * moved / taken / 1e9 / bandwidth:6.1f} % {taken:9.4f} s")


if __name__ == "__main__":
    main()
