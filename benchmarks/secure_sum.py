"""What a sum that nobody can open costs a device and the server, by the size of the cohort, in a served run's messages.

    python benchmarks/secure_sum.py [--values 53824] [--cohorts 10,30,100,300,1000] [--gone 0.1]

CPU milliseconds of one device (mean of all), kilobytes of the bodies that it sends and is sent beside its vector, and
CPU seconds of the server, with a part of the devices going away after they shared. Sums are compared with plain ones.
HTTP, signatures of requests and TLS are not in it: a device makes ten requests a round in place of two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cloud.secure_sum import SecureSum, Trust
from edge.records import Record
from edge.secure_sum import Participant
from edge.sum_messages import Agreed, Agreeing, Asked, KeysMessage, Neighbours, Opening, Shares, opened, vector_of

SESSION = b"benchmark"
Made = TypeVar("Made")


@dataclass
class Costs:
    """Seconds of CPU of all devices and of the server, and bytes that devices sent and were sent."""

    device: float = 0.0
    server: float = 0.0
    up: int = 0
    down: int = 0

    def of(self, whose: str, work: Callable[[], Made]) -> Made:
        """Do some work, and charge it to whose it is."""
        began = time.process_time()
        made = work()
        setattr(self, whose, getattr(self, whose) + time.process_time() - began)
        return made


def written(message: Record) -> bytes:
    """Return a message as it travels."""
    return message.model_dump_json().encode()


def shared(part: Participant, near: bytes) -> bytes:
    """Return a device's shares for the neighbours that it is told of."""
    told = opened(Neighbours, near)
    return written(Shares.of(part.share(told.near, told.signers, told.threshold)))


def masked(part: Participant, vector: np.ndarray, inbox: bytes) -> bytes:
    """Return a device's masked vector."""
    return part.masked(vector, opened(Shares, inbox).contents).astype("<u4").tobytes()


def signed(part: Participant, asked: bytes) -> bytes:
    """Return a device's signature under whose vectors arrived."""
    told = opened(Asked, asked)
    return written(Agreeing(signature=part.agree(set(told.sent), set(told.arrived)).hex()))


def shown(part: Participant, agreed: bytes) -> bytes:
    """Return what a device reveals."""
    return written(Opening.of(part.reveal(opened(Agreed, agreed).contents)))


def session(devices: int, values: int, gone: float) -> tuple[Costs, int]:
    """Run one sum; return what it cost, and how many neighbours a device has."""
    draws, costs, numbers = np.random.default_rng(0), Costs(), range(1, devices + 1)
    away = set((draws.choice(devices, int(gone * devices), replace=False) + 1).tolist())
    server, plain = SecureSum(SESSION, values, 1 << 20, Trust()), np.zeros(values, np.int64)
    parts = {n: costs.of("device", lambda n=n: Participant(SESSION, n)) for n in numbers}
    sent = {n: costs.of("device", lambda part=part: written(KeysMessage.of(part.keys))) for n, part in parts.items()}
    costs.up += sum(map(len, sent.values()))
    keys = costs.of("server", lambda: {n: opened(KeysMessage, message).keys for n, message in sent.items()})
    near = costs.of("server", lambda: server.pair(keys))

    def exchange(tell: Callable[[], Record], make: Callable[[bytes], bytes], take: Callable[[bytes], None]) -> None:
        told = costs.of("server", lambda: written(tell()))
        made = costs.of("device", lambda: make(told))
        costs.down, costs.up = costs.down + len(told), costs.up + len(made)
        costs.of("server", lambda: take(made))

    for n, part in parts.items():
        exchange(
            lambda n=n: Neighbours.of(server.threshold, {other: keys[other] for other in near[n]}, server.roster),
            lambda told, part=part: shared(part, told),
            lambda made, n=n: server.take_shares(n, opened(Shares, made).contents),
        )
    left = [n for n in numbers if n not in away]
    for n in left:
        vector = draws.integers(-1000, 1000, values, dtype=np.int32)
        plain += vector
        exchange(
            lambda n=n: Shares.of(server.inbox(n)),
            lambda told, part=parts[n], vector=vector: masked(part, vector, told),
            lambda made, n=n: server.take_masked(n, vector_of(made, values)),
        )
        costs.up -= 4 * values
    for n in left:
        exchange(
            lambda: Asked.of(*server.sets),
            lambda told, part=parts[n]: signed(part, told),
            lambda made, n=n: server.take_signature(n, bytes.fromhex(opened(Agreeing, made).signature)),
        )
    for n in left:
        exchange(
            lambda: Agreed.of(server.signatures),
            lambda told, part=parts[n]: shown(part, told),
            lambda made, n=n: server.take_revealed(n, opened(Opening, made).revealed),
        )
    total, whose = costs.of("server", server.opened)
    assert total.tolist() == plain.tolist()
    assert list(whose) == left
    return costs, len(near[1])


def main() -> None:
    """Print a line per cohort."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--values", type=int, default=53_824, help="values of an update (1,682 items x 32)")
    parser.add_argument("--cohorts", default="10,30,100,300,1000")
    parser.add_argument("--gone", type=float, default=0.1)
    given = parser.parse_args()
    print(f"{given.values:,} values ({4 * given.values / 1e3:,.0f} kB), {given.gone:.0%} go away after sharing")
    print("devices  neighbours  device CPU ms  kB sent beside it  kB received  server CPU s")
    for devices in map(int, given.cohorts.split(",")):
        costs, near = session(devices, given.values, given.gone)
        sent, got = costs.up / devices / 1e3, costs.down / devices / 1e3
        ms = 1e3 * costs.device / devices
        print(f"{devices:7,}  {near:10}  {ms:13.1f}  {sent:17.1f}  {got:11.1f}  {costs.server:12.2f}", flush=True)


if __name__ == "__main__":
    main()
