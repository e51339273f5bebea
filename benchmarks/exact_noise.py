"""What exact noise costs a device: microseconds of processor time a value, and kB of an upload.

    python benchmarks/exact_noise.py [--sizes 1000 100000 1250000] [--turns 5]

One thread. `edgefr` is `privacy.exact`; `OpenDP` its vector mechanism on int64 (where `pip install 'edgefr[opendp]'`
was done); `loop` a plain Python loop of Canonne, Kamath & Steinke 2020 on `secrets`. They take turns, best of the
turns; the slow two draw at most 10,000 and 2,000 values of each upload. `upload` is the noised vector as int32; `bits`
what edgefr read from the system for it; `peak` what it allocated beside the result.
"""

from __future__ import annotations

import argparse
import secrets
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from rich.console import Console

from edgefr.config.sheet import Sheet
from privacy.exact import LARGEST, Bits, discrete_gaussian, discrete_laplace

SCALES = (1, 1000, LARGEST)
OWN = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}


class Counted(Bits):
    """This counts the bytes that are read from the system."""

    bytes = 0

    def words(self, count: int) -> np.ndarray:
        """Return words of the system."""
        self.bytes += 8 * count
        return super().words(count)


def survives(top: int, bottom: int) -> bool:
    """Say with probability exp(-top / bottom), for any top >= 0."""
    while top > bottom:
        if not survives(bottom, bottom):
            return False
        top -= bottom
    number = 1
    while secrets.randbelow(bottom * number) < top:
        number += 1
    return number % 2 == 1


def loop_laplace(scale: int) -> int:
    """Draw one number, Algorithm 2."""
    while True:
        place = secrets.randbelow(scale)
        if not survives(place, scale):
            continue
        block = 0
        while survives(1, 1):
            block += 1
        size, negative = block * scale + place, secrets.randbelow(2)
        if size or not negative:
            return -size if negative else size


def loop_gaussian(sigma: int) -> int:
    """Draw one number, Algorithm 3 with t = sigma."""
    while True:
        found = loop_laplace(sigma)
        if survives((abs(found) - sigma) ** 2, 2 * sigma * sigma):
            return found


LOOPS = {"gaussian": loop_gaussian, "laplace": loop_laplace}


def opendp_of(law: str, scale: int) -> Callable[[int], object] | None:
    """OpenDP's mechanism as a function of how many values; None where it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if law == "gaussian":
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=float(scale))
    else:
        mechanism = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(scale))
    return lambda count: mechanism([0] * count)


def row(law: str, scale: int, size: int, turns: int) -> dict[str, str]:
    """Time one law at one scale for one upload, the contenders in turn."""
    own, loop, opendp = OWN[law], LOOPS[law], opendp_of(law, scale)
    contenders: dict[str, tuple[int, Callable[[int], object]]] = {
        "edgefr": (size, lambda count: own(scale, count)),
        "OpenDP": (min(size, 10_000), opendp or (lambda count: None)),
        "loop": (min(size, 2_000), lambda count: [loop(scale) for _ in range(count)]),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(turns):
        for name, (count, work) in contenders.items():
            started = time.process_time()
            work(count)
            best[name] = min(best[name], (time.process_time() - started) / count * 1e6)
    counted = Counted()
    tracemalloc.start()
    own(scale, size, counted)
    peak = tracemalloc.get_traced_memory()[1] - 8 * size
    tracemalloc.stop()
    return {
        "law": law,
        "scale": f"{scale:,}",
        "values": f"{size:,}",
        "edgefr us": f"{best['edgefr']:.3f}",
        "OpenDP us": f"{best['OpenDP']:.1f}" if opendp else "-",
        "loop us": f"{best['loop']:.1f}",
        "upload ms": f"{best['edgefr'] * size / 1e3:.2f}",
        "upload kB": f"{4 * size / 1e3:,.0f}",
        "bits kB": f"{counted.bytes / 1e3:,.0f}",
        "peak kB": f"{peak / 1e3:,.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_250_000])
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    rows = [row(law, scale, size, asked.turns) for law in OWN for scale in SCALES for size in asked.sizes]
    Console(width=140).print(Sheet("exact noise", rows, words=["law"]))


if __name__ == "__main__":
    main()
