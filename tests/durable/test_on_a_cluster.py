"""Whole runs on a cluster come to what they come to in one process.

Each is stopped at a checkpoint and resumed on a cluster too.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import edgefr
from privacy.noise_key import NoiseKey
from tests.clusters import at_work, lent, two_nodes
from tests.durable import runs
from tests.durable.test_whole_runs import BLOCKS, KINDS, LISTS, SESSIONS, simulated, stopped
from tests.noises import KEY
from tests.visits import write_visits

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

KILLS = 8
STOPS: dict[str, tuple[tuple[str, ...], int]] = {
    **KINDS,
    "blocks, replay": ((*BLOCKS, "strategy=f3crec"), 3),
    "blocks, a pull and new private tensors": ((*BLOCKS, "strategy=reg", "continual.reset_private=true"), 3),
    "blocks, errors": ((*BLOCKS, "strategy=rlp2"), 3),
    "leave-one-out, clients with tables of their own": ((*LISTS, "method=fedrap"), 2),
    "leave-one-out, a graph": ((*LISTS, "method=gpfedrec"), 2),
    "sessions, messages from other clients": ((*SESSIONS[:-1], "method=fedcar", "model={dim: 6, context: 4}"), 2),
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with two_nodes() as made:
        yield made


@pytest.fixture
def cluster(nodes: Any) -> Iterator[Any]:
    with lent(nodes):
        yield nodes


@pytest.mark.slow
@pytest.mark.parametrize("kind", STOPS)
def test_a_run_on_a_cluster_is_the_run_in_one_process(
    kind: str, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides, stop = STOPS[kind]
    there = (*overrides, "engine.executor=ray", f"engine.ray_address={cluster.address}")
    data, out = write_visits(tmp_path / "data"), tmp_path / "there"
    monkeypatch.setattr(NoiseKey, "new", lambda: KEY)  # who gets whose message is secret, and another in every run
    whole = runs.result(simulated(overrides, data, tmp_path / "here").path)
    stopped(there, data, out, stop, monkeypatch)
    edgefr.resume(out, data_dir=data, bundles=False, page=False, warn=pytest.fail)
    assert [name for name in runs.differences(out, whole) if name != "experiment.yaml"] == []


@pytest.mark.slow
def test_a_run_whose_workers_are_killed_again_and_again_is_the_same(cluster: Any, tmp_path: Path) -> None:
    """Fewer times than Ray runs one task again."""
    overrides = (*BLOCKS, "strategy=f3crec", "rounds=12")
    there = (*overrides, "engine.executor=ray", f"engine.ray_address={cluster.address}")
    whole = runs.result(simulated(overrides, tmp_path, tmp_path / "here").path)
    killed, done = set[int](), threading.Event()

    def kill() -> None:
        while len(killed) < KILLS and not done.wait(2.0):
            for pid in at_work("run_blocks")[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    tries, began = 0, time.monotonic()
    while len(killed) < KILLS and time.monotonic() - began < 300:
        out = simulated(there, tmp_path, tmp_path / f"there-{tries}").path
        assert [name for name in runs.differences(out, whole) if name != "experiment.yaml"] == []
        tries += 1
    done.set()
    killer.join()
    assert len(killed) == KILLS
