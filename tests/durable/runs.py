"""Experiments small enough to be killed many times, and what two runs of one experiment must have in common."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from edgefr.simulation.runs.layout import LOCK
from tests.cli.commands import COMMAND, ROOT, environment, hear_interrupts, without_progress

F3CREC = """\
name: durable
method: f3crec
strategy: f3crec
data_options: {users: 50, items: 100, interactions: 30}
protocol: {name: blocks, min_interactions: 2, increments: 2}
rounds: 4
model: {dim: 4}
clients_per_round: 0.7
privacy: {mechanism: laplace, clip: 0.5, scale: 0.05}
fleet:
  share: {laptop_x86: 0.5, phone_sd680: 0.3, speaker_512: 0.2}
"""
FEDMF = """\
name: durable-fedmf
method: fedmf
data_options: {users: 60, items: 160, interactions: 12}
rounds: 4
model: {dim: 4}
privacy: {mechanism: gaussian, clip: 0.5, sigma: 1, budget: 9}
fleet:
  share: {laptop_x86: 0.5, phone_sd680: 0.3, speaker_512: 0.2}
"""
PER_MACHINE = {
    "clients_per_second",
    "train_seconds",
    "eval_seconds",
    "wall_seconds",
    "peak_rss_mb",
    "executor",
    "workers",
}
"""What a summary says about the machine and the time it took; all else follows from the experiment."""


def write_fleet(path: Path) -> Path:
    """Write the shipped fleet with the three classes of these experiments alone: a command reads it much faster."""
    whole = yaml.safe_load((ROOT / "devices.yaml").read_text())
    share = {"laptop_x86": 0.5, "phone_sd680": 0.3, "speaker_512": 0.2}
    whole["fleet"]["share"], whole["devices"] = share, {name: whole["devices"][name] for name in share}
    path.write_text(json.dumps(whole))
    return path


def simulated(value: Any) -> Any:
    """A summary without `PER_MACHINE`."""
    if isinstance(value, dict):
        return {key: simulated(inner) for key, inner in value.items() if key not in PER_MACHINE}
    return [simulated(inner) for inner in value] if isinstance(value, list) else value


def result(run: Path) -> dict[str, Any]:
    """All that a run came to, and the names of its files but those of checkpoints."""
    parts = [
        run / name for name in ("metrics.parquet", "ledger.parquet", "events.jsonl", "checkpoint/model.safetensors")
    ]
    parts += [run / name for name in ("experiment.yaml", "devices.yaml", "seeds.json")]
    found: dict[str, Any] = {path.name: path.read_bytes() for path in parts if path.exists()}
    found["summary.json"] = simulated(json.loads((run / "summary.json").read_text()))
    names = json.loads((run / "checkpoint" / "names.json").read_text()) if found.get("model.safetensors") else {}
    found["names.json"] = {key: value for key, value in names.items() if key != "created"}
    files = [p for p in run.rglob("*") if p.is_file() and "round-" not in str(p) and p.name != LOCK]
    found["files"] = sorted(str(p.relative_to(run)) for p in files)  # a kill at the very end leaves the lock
    for seed in sorted(run.glob("seed-*")):
        found[seed.name] = result(seed)
    return found


def differences(run: Path, expected: dict[str, Any]) -> list[str]:
    """Names of what differs; empty if a run came to what it should."""
    if not (run / "summary.json").is_file():
        return ["summary.json is missing"]
    found = result(run)
    return [name for name in sorted(expected.keys() | found.keys()) if found.get(name) != expected.get(name)]


def stopped(
    arguments: list[str | Path], cache: Path, when: Callable[[], bool], how: signal.Signals
) -> tuple[int, str, str]:
    """`edgefr arguments` as a process of its own that gets a signal as soon as `when`; its code, stdout and stderr."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env=environment(cache) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )
    try:
        limit = time.monotonic() + 120
        while not when():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < limit
            time.sleep(0.002)
        os.kill(process.pid, how)
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return process.returncode, out, without_progress(err)
