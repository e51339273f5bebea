"""Several runs of one experiment become one summary: mean and standard deviation over seeds."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from edgefr.report.fairness import over_runs

SAME = (
    *("schema", "experiment", "method", "backbone", "strategy", "fidelity", "data", "protocol", "rounds"),
    *("stage", "split", "versions"),
)


PACKAGES = ("edgefr", "numpy", "torch", "onnxruntime", "onnx", "transformers", "dp-accounting")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide results."""
    out = {"python": platform.python_version(), "platform": platform.machine()}
    for name in PACKAGES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def over_seeds(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation (n - 1), over runs that differ in their seed, of every metric in its place."""
    first = summaries[0]
    blocks = [
        {"name": block["name"], "metrics": _over([s["blocks"][number]["metrics"] for s in summaries])}
        for number, block in enumerate(first["blocks"] if "continual" in first else ())
    ]
    whole = () if blocks else ("stages", "full_ranking")
    averaged = ("metrics", "metrics_full_ranking", "metrics_history_masked", *whole, "references")
    return {
        **{name: first[name] for name in SAME if name in first},
        "seeds": [s["seed"] for s in summaries],
        **{name: _over([s[name] for s in summaries]) for name in averaged if name in first},
        **({"blocks": blocks} if blocks else {}),
        "fairness": {
            metric: {name: _over(values) for name, values in of.items()}
            for metric, of in over_runs([s.get("fleet", {}).get("fairness", {}) for s in summaries]).items()
        },
    }


def _over(found: Sequence[Any]) -> dict[str, Any]:
    if isinstance(found[0], dict):
        return {name: _over([one[name] for one in found]) for name in found[0] if all(name in one for one in found)}
    return {"mean": float(np.mean(found)), "sd": float(np.std(found, ddof=1)) if len(found) > 1 else 0.0}
