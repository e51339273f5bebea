"""Calibrations for tests: a host of round figures, and what it measured for some classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOST = {"cpu": "x", "cores": 2, "python": "3", "numpy": "2", "onnxruntime": "1", "gflops": 100.0, "copy_gbs": 8.0}
WORK = {  # what tests.fleet.fleets.work asks for, one step of it
    "examples": 8.0,
    "flops_per_example": 1e5,
    "trained_parameters": 50_000.0,
    "resident_parameters": 200_000.0,
    "activation_bytes": 1e5,
    "upload_bytes": 200_000.0,
    "optimiser": "sgd",
    "passes": 3.0,
    "width": 128.0,
}


def phase(fixed: float, each: float, epochs: int = 1, when: str = "round") -> dict[str, Any]:
    """One phase on the line fixed + each x examples."""
    points = [[2.0, fixed + 2 * each, fixed], [8.0, fixed + 8 * each, fixed]]
    return {
        "name": "p",
        "when": when,
        "epochs": epochs,
        "fixed_ms": fixed,
        "example_ms": each,
        "points": points,
    }


def calibration(app_mb: dict[str, float], **learn: Any) -> dict[str, Any]:
    """Classes with these limits, all of one content; `learn` replaces parts of what was measured of learning."""
    measured = {"outcome": "fits", "load_s": 0.3, "peak_mb": 90.0, "phases": [phase(1.0, 0.25)], "work": dict(WORK)}
    cost = {"median_ms": 2.0, "min_ms": 1.5, "flops": 1e6, "traffic_bytes": 1e6}
    calls = {"outcome": "fits", "load_s": 0.3, "peak_mb": 80.0, "cost": cost}
    trial = {"bundle_id": "b", "variant": "f32", "content": "c", "recommend": "fits", "learn": "fits"}
    return {
        "schema": "edgefr.calibration/1",
        "host": dict(HOST),
        "measured": {"c": {"learn": measured | learn, "recommend": calls, "encode": None}},
        "classes": {name: trial | {"app_mb": limit} for name, limit in app_mb.items()},
    }


def written(path: Path, app_mb: dict[str, float], **learn: Any) -> Path:
    """The same in a file."""
    path.write_text(json.dumps(calibration(app_mb, **learn)))
    return path
