"""A process that uses one bundle as a device would, and prints its peak memory: `python -P export/probe.py BUNDLE`.

Imports nothing but what the device runs, and that in order: numpy and onnxruntime alone are the bare runtime. The peak
is read from /proc (VmHWM), since `getrusage` would tell the peak of the process that started this one.
"""

import json
import sys
from pathlib import Path


def peak_mb() -> float:
    """Largest memory this process has had resident, MB (10^6 bytes)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6


def use(bundle: str) -> dict[str, float]:
    """Load, recommend, and read the longest title if there is an encoder: `bare_mb` and what came on top of it."""
    import numpy  # noqa: F401
    import onnxruntime  # noqa: F401

    bare = peak_mb()
    from edge.recommender import Recommender

    recommender = Recommender(bundle)
    recommender.recommend(10)
    if recommender.bundle.config.encoder is not None:
        recommender.encode([max(recommender.catalogue.titles, key=len)])
    return {"bare_mb": bare, "grown_mb": peak_mb() - bare}


if __name__ == "__main__":
    print(json.dumps(use(sys.argv[1])))
