"""The command line as a user runs it, and a run small enough for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.caches import new_cache
from tests.warm import ROOT, WARM

COMMAND = [sys.executable, "-m", "edgefr"]
TINY = """\
name: tiny
data_options: {users: 60, items: 160, interactions: 12}
rounds: 2
local_epochs: 2
clients_per_round: 0.5
encoder:
  distill: {layers: 1, layer_map: [3], hidden: 24, steps: 2, warmup: 0, max_tokens: 16}
model: {adapter: [16, 8], head: [8], local_training_epochs: 2}
fleet:
  share: {laptop_x86: 0.5, phone_sd680: 0.3, speaker_512: 0.2}
"""
TINY_FEDMF = """\
name: tiny-fedmf
method: fedmf
data_options: {users: 60, items: 160, interactions: 12}
rounds: 2
model: {dim: 4}
fleet:
  share: {laptop_x86: 0.5, phone_sd680: 0.3, speaker_512: 0.2}
"""


PROGRESS = re.compile(r"^\[\d+ (s|min|h)( \d+ min)?\] .*\n", re.MULTILINE)
"""What work that takes over two seconds says of itself on stderr: how long depends on the machine."""


def without_progress(err: str) -> str:
    """What a command said on stderr beside its progress."""
    return PROGRESS.sub("", err)


def environment(cache: Path) -> dict[str, str]:
    """The surroundings of a command: a cache of its own, a terminal of 80 columns, one thread, no archives."""
    kept = {k: v for k, v in os.environ.items() if k not in ("EDGEFR_DATA", "FORCE_COLOR")}
    return kept | {"EDGEFR_CACHE": str(new_cache(cache)), "COLUMNS": "80", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def hear_interrupts() -> None:
    """Let a process that is being started be interrupted, whoever starts it: in the background it would not hear."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


PATIENCE_S = 1500.0
"""After so long a command is taken for hanging: FedCAR's first compilation takes minutes on a busy machine."""


def edgefr(*arguments: str | Path, cache: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`edgefr arguments` in a process of its own, with its output caught (no terminal), without its progress."""
    done = WARM.run([*map(str, arguments)], cwd, environment(cache) | {"PYTHONPATH": str(ROOT)}, seconds=PATIENCE_S)
    done.stderr = without_progress(done.stderr)
    return done


def done(*arguments: str | Path, cache: Path, cwd: Path = ROOT) -> str:
    """What `edgefr arguments` prints, which ends well."""
    process = edgefr(*arguments, cache=cache, cwd=cwd)
    assert process.returncode == 0, (process.returncode, process.stderr)
    return process.stdout


def refused(code: int, out: str, err: str) -> str:
    """The message of a refusal: exit code 2, nothing on stdout, exactly one line on stderr."""
    assert code == 2, (code, out, err)
    assert out == ""
    assert "Traceback" not in err
    err = without_progress(err)
    (line,) = err.strip().splitlines()
    assert line.startswith("error: "), line
    return line
