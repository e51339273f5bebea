"""The backend `ray` does what `inline` does on the nodes of a Ray cluster, or on a Ray of its own on this machine.

driver: work, broadcast → object store, once a round
driver: the clients of a few blocks, their private tensors → task → the blocks' sums, new private tensors → driver

Blocks are added in their order, so results equal one process's to the bit on any number of nodes. Ray runs a task again
elsewhere, from the same tensors, if its worker or node dies; nodes may join or leave. The driver holds all state.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edgefr.engine.aggregate import ReleaseTerms
from edgefr.engine.backends.backend import own
from edgefr.engine.backends.shared_memory import packed
from edgefr.engine.backends.worker_protocol import Elsewhere, Round, SharedWork, answer, cut, trained
from edgefr.engine.work import Clients, LocalWork
from export.program import Tensors
from privacy.errors import InputError
from privacy.extras import needed

AHEAD = 3
"""Tasks that are handed out for every processor, ahead of the one that is waited for."""
TASKS = 2
"""Tasks that a round has for every processor, if its blocks are few or small: one costs 7 to 11 ms of CPU."""
BRIEF = 0.2
"""Seconds of a round below which the next one has one task for every processor: more even work would not pay."""
LARGE = 1 << 25
"""Bytes of sums that may come back at a time, if they are of more than one block."""
RETRIES = 10
"""Times that a task is run again after its worker or node died."""

LOCAL = "local"
"""The address of a Ray of one's own."""

Packed = tuple[bytes, list[npt.NDArray[np.uint8]]]
"""An object for the object store: arrays beside the rest of it, which readers see without a copy."""


@dataclass(frozen=True)
class Connection:
    """This is a connection to Ray, the module `ray`; `mine`: it was started here and ends with `close`."""

    ray: Any
    mine: bool

    def close(self) -> None:
        if self.mine:
            self.ray.shutdown()


def connect(address: str, workers: int) -> Connection:
    """Connect to "HOST:PORT", to "auto" (this machine's cluster), or start a "local" Ray with so many processors.

    Raises `InputError` without the extra `ray` or where no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise needed("ray") from None
    if ray.is_initialized():
        return Connection(ray, mine=False)
    how: dict[str, Any] = {"num_cpus": workers} if address == LOCAL else {}
    try:
        _knock(address)
        ray.init(address, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False, **how)
    except Exception as error:  # Ray's own have no base of their own, and a start that is too slow is a bare Exception
        reason = " ".join(str(error).split())[:120]
        what = "Ray does not start here" if address == LOCAL else f"no Ray answers at {address}"
        raise InputError(f"{what}: {reason}; see `ray start`") from error
    return Connection(ray, mine=True)


def _knock(address: str) -> None:
    """Raise `OSError` where HOST:PORT does not answer; Ray itself would try for five minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


class OnRay(Elsewhere):
    """This backend runs blocks in tasks of Ray.

    `address`: of a cluster, "auto" for this machine's, or "local" for a Ray with `workers` processors that ends with
    the backend. Raises `InputError` without the extra `ray` or where no cluster answers, RuntimeError when a task
    fails.
    """

    name = "ray"

    def __init__(self, address: str = LOCAL, workers: int = 2):
        self.address, self.workers = address, workers
        self.ray: Any = None
        self.task: Any = None
        self._connection: Connection | None = None
        self._setting: SharedWork | None = None
        self._told: Any = None
        self._tasks = TASKS

    def start(self) -> None:
        if self._connection is None:
            self._connection = connect(self.address, self.workers)
            self.ray = self._connection.ray
            self.task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(run_blocks)

    def close(self) -> None:
        self._setting = self._told = None
        if self._connection is not None:
            self._connection.close()
        self.ray, self.task, self._connection = None, None, None

    def run(
        self, work: LocalWork, terms: ReleaseTerms | None, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Any]:
        """Yield what leaves each block, in order; with no terms the updates themselves."""
        self._setting, another = SharedWork.of(work, self._setting)
        if another:
            self._told = self._put(self._setting)
        began = time.perf_counter()
        told = [self._told, self._put(Round.of(work, terms, shared))]
        blocks = [[shards[at] for at in block] for block in cut(terms, len(shards))]
        processors = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        size = at_a_time(len(blocks), self._tasks * processors, 2 * sum(value.nbytes for value in shared.values()))
        tasks = [range(first, min(first + size, len(blocks))) for first in range(0, len(blocks), size)]
        under_way: dict[int, Any] = {}
        # tasks run to their end, also where a round breaks off: Ray 2.60 aborts its driver if it cancels one as it ends
        for wanted, numbers in enumerate(tasks):
            for new in range(wanted + len(under_way), min(len(tasks), wanted + AHEAD * processors)):
                content = [pack([(shard, own(work, private, shard)) for shard in blocks[at]]) for at in tasks[new]]
                under_way[new] = self.task.remote(told, content)
            yield from self._answers(under_way.pop(wanted), work.round, numbers)
        self._tasks = TASKS if time.perf_counter() - began > BRIEF else 1

    def _put(self, thing: Any) -> Any:
        return self.ray.put(pack(thing))

    def _answers(self, task: Any, number: int, blocks: Sequence[int]) -> Iterator[Any]:
        try:
            answers: Sequence[tuple[str, Any]] = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            raise RuntimeError(f"work of round {number} was lost on Ray: {error}") from error
        for block, (kind, content) in zip(blocks, answers, strict=True):
            if kind == "wrong input":
                raise InputError(content)
            if kind == "failed":
                raise RuntimeError(f"block {block} of round {number} failed on Ray:\n{content}")
            yield opened(content)


def at_a_time(blocks: int, tasks: int, bytes_: int) -> int:
    """Return how many blocks a task has.

    >>> at_a_time(16, 4, 1 << 19), at_a_time(63, 64, 1 << 19), at_a_time(63, 4, 1 << 26)
    (4, 1, 1)
    """
    return max(1, min(-(-blocks // tasks), LARGE // max(bytes_, 1)))


def pack(thing: Any) -> Packed:
    stream, buffers = packed(thing)
    return stream, [np.frombuffer(buffer, np.uint8) for buffer in buffers]


def opened(content: Packed) -> Any:
    """Return a packed object; its arrays are views of the object store: read them, do not write."""
    stream, arrays = content
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return pickle.loads(stream, buffers=arrays)  # noqa: S301 (from a process of our own)


# --- in a worker of Ray -----------------------------------------------------------------------------------------------

_OPENED: dict[str, Any] = {}
"""The setting and the round that the last task needed, by the names of their objects."""


def run_blocks(told: list[Any], contents: Sequence[Packed]) -> list[tuple[str, Any]]:
    """Train blocks; return for each its status, and its packed sum or the reason."""
    torch.set_num_threads(1)
    return [answer(lambda: pack(trained(*_told(told), opened(content)))) for content in contents]  # noqa: B023


def _told(told: list[Any]) -> tuple[SharedWork, Round]:
    import ray

    names = [reference.hex() for reference in told]
    for name in _OPENED.keys() - set(names):
        del _OPENED[name]
    for name, reference in zip(names, told, strict=True):
        if name not in _OPENED:
            _OPENED[name] = opened(ray.get(reference))
    setting, round_ = (_OPENED[name] for name in names)
    return setting, round_
