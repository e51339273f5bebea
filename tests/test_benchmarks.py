"""Benchmarks run: a script that the code has moved away from measures nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMALL = {
    "accounting": ["--rounds", "20"],
    "devices": [],
    "engine": ["--only", "small", "--repeat", "1"],
    "evaluation": ["--repeat", "1"],
    "exact_noise": ["--sizes", "1000", "--turns", "1"],
    "gpu": ["--clients", "64", "--items", "200", "--repeat", "1"],
    "graphs": None,
    "instructions": None,
    "knowledge": ["--repeats", "1"],
    "lora": None,
    "on_ray": None,
    "own_data": None,
    "peers": None,
    "parallel": ["--clients", "300", "--rounds", "1", "--workers", "1"],
    "runtime": None,
    "scale": ["--alone", '{"users": 500, "items": 500, "cohort": 50, "dim": 8}'],
    "secure_sum": ["--cohorts", "4", "--values", "100"],
    "sessions": None,
    "stages": None,
    "waiting": ["--devices", "20"],
    "whole_run": ["--quick", "--only", "default"],
    "against": None,
    "by_hand": None,
    "closed_form": None,
    "closed_form_fedcar": None,
}
"""The smallest run of each script; None: it needs data, another checkout or minutes, and is asked what it does."""
UNASKED = ("by_hand", "closed_form", "closed_form_fedcar", "own_data", "peers")
"""What is no script, takes no options, or needs a package that tests do without."""


def test_every_benchmark_is_known() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SMALL if name not in UNASKED])
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    given = SMALL[name]
    path = ":".join((str(ROOT), *sys.path))
    command = [sys.executable, f"benchmarks/{name}.py", *(["--help"] if given is None else given)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
