"""A Ray cluster of two nodes on this machine, one processor each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 120  # seconds: a machine that is slow to answer, as others run tests, is not dead


@contextmanager
def two_nodes() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    patient = {"health_check_timeout_ms": 1000 * PATIENCE}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": patient}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


@contextmanager
def lent(made: Any) -> Iterator[Any]:
    """Lend a cluster to one test, and wait until it has the nodes it had: Ray may call a dead one alive for long."""
    had = made.list_all_nodes()
    yield made
    for node in made.list_all_nodes():
        if node not in had:
            made.remove_node(node)
    made.wait_for_nodes(PATIENCE)


def at_work(call: str) -> list[int]:
    """The processes that run a function for Ray now, on the nodes that this process started."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
    return [pid for pid in parents if is_at_work(pid, call) and os.getpid() in _ancestors(pid, parents)]


def is_at_work(pid: int, call: str) -> bool:
    """Whether a process runs a function for Ray, also when its node has died, which it outlives by a moment."""
    try:
        return f"ray::{call}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    out = []
    while pid in parents:
        pid = parents[pid]
        out.append(pid)
    return out
