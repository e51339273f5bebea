"""What a sum that nobody can open costs a device and the server, by the size of the cohort.

    python benchmarks/secure_sum.py [--values 53824] [--cohorts 10,30,100,300,1000] [--gone 0.1]

CPU milliseconds and kilobytes of one device (mean of some that are timed; the others answer too), and CPU seconds of
the server to open the sum, with a part of the devices going away after they shared. Sums are compared with plain ones.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from cloud.secure_sum import SecureSum, Trust
from edge.secure_sum import Participant
from privacy.masks import KEY
from privacy.secret_sharing import SHARE

SESSION = b"benchmark"


class Timed:
    """Seconds of CPU that the calls of one device took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function, *values):  # type: ignore[no-untyped-def]
        began = time.process_time()
        made = function(*values)
        self.seconds += time.process_time() - began
        return made


def session(devices: int, values: int, gone: float) -> tuple[float, float, float, int]:
    """Run one sum; return a device's CPU ms and kB beside its vector, the server's CPU s, and the neighbours."""
    draws = np.random.default_rng(0)
    numbers = range(1, devices + 1)
    away = set(draws.choice(devices, int(gone * devices), replace=False) + 1)
    server, each = SecureSum(SESSION, values, 1 << 20, Trust()), Timed()
    parts = {n: each(Participant, SESSION, n) for n in numbers}
    keys = {n: each(lambda part=part: part.keys) for n, part in parts.items()}
    near = server.pair(keys)
    sent = 2 * KEY * devices
    for number in numbers:
        sealed = each(parts[number].share, {n: keys[n] for n in near[number]}, server.threshold)
        sent += sum(map(len, sealed.values()))
        server.take_shares(number, sealed)
    plain = np.zeros(values, np.int64)
    for number in numbers:
        if number not in away:
            vector = draws.integers(-1000, 1000, values, dtype=np.int32)
            plain += vector
            server.take_masked(number, each(parts[number].masked, vector, server.inbox(number)))
    for number in sorted(set(numbers) - away):
        found = each(parts[number].reveal, *server.asked(number))
        sent += SHARE * (len(found.own) + len(found.pairs))
        server.take_revealed(number, found)
    began = time.process_time()
    total, whose = server.opened()
    opening = time.process_time() - began
    assert total.tolist() == plain.tolist()
    assert set(whose) == set(numbers) - away
    return 1e3 * each.seconds / devices, sent / devices / 1e3, opening, len(near[1])


def main() -> None:
    """Print a line per cohort."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--values", type=int, default=53_824, help="values of an update (1,682 items x 32)")
    parser.add_argument("--cohorts", default="10,30,100,300,1000")
    parser.add_argument("--gone", type=float, default=0.1)
    given = parser.parse_args()
    print(f"{given.values:,} values ({4 * given.values / 1e3:,.0f} kB), {given.gone:.0%} go away after sharing")
    print("devices  neighbours  device CPU ms  device kB sent beside it  server CPU s to open")
    for devices in map(int, given.cohorts.split(",")):
        ms, kilobytes, opening, near = session(devices, given.values, given.gone)
        print(f"{devices:7,}  {near:10}  {ms:13.1f}  {kilobytes:24.1f}  {opening:20.2f}")


if __name__ == "__main__":
    main()
