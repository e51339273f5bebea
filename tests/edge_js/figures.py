"""What a device costs in Python, in Node and in Chromium, a line each: python -m tests.edge_js.figures BUNDLE."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HAD, REPEATS = 20, 30
DIST = Path(__file__).resolve().parents[2] / "edge-js" / "dist"


def resident() -> int:
    """The resident memory of this process, MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begun)


def median(work: Callable[[], object]) -> float:
    return statistics.median(timed(work) for _ in range(REPEATS))


def in_python(bundle: str) -> str:
    """The line of the Python device, whose step is one of a round's training, as in edge-js/test/conformance.ts."""
    before, found = resident(), {}
    from edge.device import Device
    from edge.encoder import open_encoder
    from edge.policy import OPEN

    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        device = Device(bundle, f"{folder}/state", policy=OPEN)
        found["load"] = 1000 * (time.perf_counter() - begun)
        device.note(device.catalogue.ids[:HAD])
        final = any(phase.when == "final" for phase in device.learning.phases)

        def first() -> None:
            if final:
                device.personalise()
            device.recommend(10)

        learning, state, work = device.learning, device.state, device._work
        steps = work._learned(learning, state, state.facts["round"] + 1).trained.steps
        found["first"] = timed(first)
        found["step"] = median(lambda: work._learned(learning, state, state.facts["round"] + 1)) / steps
        found["recommend"] = median(lambda: device.recommend(10))
        if (record := device.bundle.config.encoder) is not None:
            encoder, title = open_encoder(record, device.bundle.file, device.bundle.entry), device.catalogue.titles[0]
            found["encode"] = median(lambda: encoder.encode([title]))
    told = ", ".join(f"{name} {ms:.2f} ms" for name, ms in found.items())
    return f"Python {told} memory +{resident() - before} MB"


if __name__ == "__main__":
    print(in_python(sys.argv[1]), flush=True)
    for more in ([], ["--chromium"]):
        subprocess.run(["node", str(DIST / "figures.js"), sys.argv[1], *more], check=True)
