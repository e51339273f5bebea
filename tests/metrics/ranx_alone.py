"""The library ranx runs in a process of its own: without compiling, which numba decides for a whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

CODE = """
import json, sys, ranx
truth, run, names = json.load(sys.stdin)
found = ranx.evaluate(ranx.Qrels(truth), ranx.Run(run), names)
print(json.dumps({name: float(value) for name, value in found.items()}))
"""


def evaluated(
    truth: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]], names: Sequence[str]
) -> dict[str, float]:
    """Return what ranx makes of a run, by the names of its metrics."""
    alone = {**os.environ, "NUMBA_DISABLE_JIT": "1"}  # compiling takes minutes, a small run takes none
    given = json.dumps([truth, run, list(names)])
    out = subprocess.run(
        [sys.executable, "-c", CODE], input=given, env=alone, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(out.stdout.splitlines()[-1])
    return found
