"""The probe runs in a fresh process under limits, and its result does not depend on how the process ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.fleet.calibration import BROKEN, FITS, NO_MEMORY, TOO_SLOW
from privacy.errors import InputError

OUT_OF_MEMORY_SIGNS = (  # what numpy, onnxruntime, OpenBLAS, the tokenizer and the loader say when memory runs out
    "bad_alloc",
    "MemoryError",
    "memory allocation",
    "Memory allocation",
    "Cannot allocate memory",
    "cannot allocate memory",
    "failed to map segment",
    "Failed to allocate memory",
    "out of memory",
    "memory smaller than requested",
    "Unable to allocate",
)
BY_KERNEL = 9
"""The signal (SIGKILL) by which a kernel takes its memory back."""
KILLED = {getattr(signal, name, BY_KERNEL) for name in ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGABRT")}
"""Signals that end a process without memory: by the kernel, by an allocation that nobody checked, by a library."""


@dataclass(frozen=True)
class Limits:
    """These are limits of a probe: `memory_mb` of private writable and of peak resident memory (None:

    any), wall `seconds`, `core`.
    """

    memory_mb: float | None = None
    seconds: float = 120.0
    core: int | None = None


@dataclass(frozen=True)
class Result:
    """`outcome` is "fits", "out of memory", "too slow" or "broken: why"; `figures` are the probe's."""

    outcome: str
    figures: dict[str, Any] = field(default_factory=dict)


def run(activity: str, limits: Limits, seconds: float, bundle: Path | None = None, least: int | None = None) -> Result:
    """Run one activity of a bundle in a fresh process; `seconds` of calls for each figure, `least` calls at least."""
    asked: dict[str, Any] = {"activity": activity, "seconds": seconds, "core": limits.core, "data_mb": limits.memory_mb}
    asked |= {} if bundle is None else {"bundle": str(bundle.resolve())}
    asked |= {} if least is None else {"least": least}
    asked["started"] = time.monotonic()
    command = [sys.executable, "-m", "edgefr.fleet.calibrations.probe", json.dumps(asked)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=limits.seconds,
            env=one_thread(),
        )
    except subprocess.TimeoutExpired:
        return Result(TOO_SLOW)
    except OSError as error:
        raise InputError(f"cannot start a process to measure in: {error.strerror or error}") from error
    return result_of(done.returncode, done.stdout, done.stderr, limits.memory_mb)


def result_of(status: int, out: str, err: str, memory_mb: float | None) -> Result:
    """Make the result of a probe from its exit status and what it printed."""
    figures = _figures(out)
    if status == 0 and figures and "error" not in figures:
        over = memory_mb is not None and figures.get("peak_mb", 0.0) > memory_mb
        return Result(NO_MEMORY) if over else Result(FITS, figures)
    said = str(figures.get("error", "")) or err
    if any(sign in text for text in (said, err) for sign in OUT_OF_MEMORY_SIGNS):
        return Result(NO_MEMORY)
    killer = next((known for known in KILLED if -status == known), None)
    if killer is not None and (memory_mb is not None or killer == BY_KERNEL):
        return Result(NO_MEMORY)
    lines = [line for line in said.splitlines() if line.strip()]
    why = lines[0] if figures.get("error") and lines else lines[-1] if lines else f"exit status {status}"
    return Result(f"{BROKEN}: {' '.join(why.split())[:300]}")


def _figures(out: str) -> dict[str, Any]:
    lines = out.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def one_thread() -> dict[str, str]:
    """This process's surroundings, with every library told to use one thread."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return os.environ | dict.fromkeys(names, "1") | {"TOKENIZERS_PARALLELISM": "false"}


def quiet_core() -> int | None:
    """Return the last core of this process, which has few interrupts; None where it cannot be told."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
