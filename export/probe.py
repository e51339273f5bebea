"""A process that uses one bundle as a device would, and prints its peak memory: `python -P export/probe.py BUNDLE`.

Imports nothing but what the device runs, and that in order: numpy and onnxruntime alone are the bare runtime.
"""

import json
import sys

from privacy.machine import peak_mb


def told(megabytes: float | None) -> float:
    """Return the figure; `OSError` where this system does not tell it."""
    if megabytes is None:
        raise OSError("this system does not tell how much memory a process has")
    return megabytes


def use(bundle: str) -> dict[str, float]:
    """Load, recommend, and read the longest title if there is an encoder: `bare_mb` and what came on top of it."""
    import numpy  # noqa: F401

    from edge.ort import ort  # noqa: F401

    bare = told(peak_mb())
    from edge.recommender import Recommender

    recommender = Recommender(bundle)
    recommender.recommend(10, history=[0])
    if recommender.bundle.config.encoder is not None:
        recommender.encode([max(recommender.catalogue.titles, key=len)])
    return {"bare_mb": bare, "grown_mb": told(peak_mb()) - bare}


if __name__ == "__main__":
    print(json.dumps(use(sys.argv[1])))
