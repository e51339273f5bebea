"""How far `fidelity: released` is from four public codes, a line each: `python -m tests.released.parity`.

Tests hold each to its limit; here stand the distances, the largest over all that is kept of rounds and blocks, of
values above 1 relative to the largest of them. Float64 is the plain loop, float32 the vectorised path beside the public
code's own float32 (FCUCR: beside its float64, half of all values and 99 of 100, since Adam makes a whole step of
rounding).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from edgefr.engine.executors import inline
from tests.released.f3crec import test_f3crec as f3crec
from tests.released.fcucr import test_fcucr as fcucr
from tests.released.given import furthest
from tests.released.gpfedrec import test_gpfedrec as gpfedrec
from tests.released.pfedrec import test_pfedrec as pfedrec

LINE = "| {} | {} | {} |"


@contextmanager
def computed_in(kind: torch.dtype) -> Iterator[str]:
    """Have weights of examples made in a type too, and give its name."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield str(kind).removeprefix("torch.")
    finally:
        torch.set_default_dtype(before)


def of_f3crec(case: str, kind: torch.dtype, executor: str) -> float:
    """Return the distance of item tables and private tensors after rounds 1 and 3 of every block."""
    with computed_in(kind) as name, pytest.MonkeyPatch.context() as patched:
        found = f3crec.run(patched, kind, case, executor)
    worst = 0.0
    for key, value in f3crec.golden().items():
        there = ~np.isnan(value) if value.dtype.kind == "f" else None
        what = key.removeprefix(f"{name} {case}/")
        if what == key or not what.startswith(("item.", "user.", "scorer.")) or there is None:
            continue
        off = np.abs(found[what].double().numpy().reshape(value.shape) - value)[there].max()
        worst = max(worst, float(off / max(1.0, np.abs(value[there]).max())))
    return worst


def of_fcucr_single() -> str:
    """Return the median and the 99th percentile of all distances in float32."""
    found = fcucr.run(inline.run, np.float32)
    off = np.concatenate([np.abs(found[name] - value).ravel() for name, value in fcucr.golden().items()])
    return f"{np.median(off):.1e} (half), {np.quantile(off, 0.99):.1e} (99 of 100)"


def lines() -> Iterator[str]:
    """Yield the table's lines, each when it is known."""
    yield LINE.format("public code", "float64, plain loop", "float32, vectorised")
    yield LINE.format("---", "---", "---")
    for case in f3crec.CASES:
        exact, single = of_f3crec(case, torch.float64, "debug"), of_f3crec(case, torch.float32, "inline")
        yield LINE.format(f"F3CRec, {case}", f"{exact:.1e}", f"{single:.1e}")
    for name, code in (("PFedRec", pfedrec), ("GPFedRec", gpfedrec)):
        for case in code.CASES:
            with computed_in(torch.float64):
                exact = furthest(code.golden(), code.rounds(case, wide=True), f"{case}.f64")
            single = furthest(code.golden(), code.rounds(case, wide=False), f"{case}.f32")
            yield LINE.format(f"{name}, {case}", f"{exact:.1e}", f"{single:.1e}")
    yield LINE.format("FCUCR (SASRec)", f"{max(fcucr.apart(fcucr.ours()).values()):.1e}", of_fcucr_single())


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
