"""Jobs are done in worker processes, several at a time; one that fails says why and does not stop the others."""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from edgefr.config.plugins import MODULES

Job = TypeVar("Job")
Common = TypeVar("Common")
Result = TypeVar("Result")
KILLED = "a worker process was killed, perhaps for lack of memory; run it again with fewer workers"


@dataclass(frozen=True)
class Failed:
    """This is a job that gave nothing. `why`: what went wrong, on one line."""

    why: str


@dataclass(frozen=True)
class Where:
    """This says where jobs run, `workers` at a time: on this machine, or on the Ray cluster at `ray_address`."""

    workers: int = 1
    ray_address: str | None = None


HERE = Where()
"""One job at a time, on this machine."""


def in_processes(
    call: Callable[[Job, Common], Result], jobs: Sequence[Job], common: Common, workers: int = 1
) -> Iterator[tuple[Job, Result | Failed]]:
    """`call(job, common)` for every job, `workers` at a time, each in a process with one maths thread.

    Yields each job with its result or with what went wrong, as they end. All of it travels between processes, and
    `call` has to be a function of a module. Whoever stops taking results (Ctrl-C) ends the workers at once.
    """
    waiting = deque(jobs)
    while waiting:  # more than once only where a worker was killed, which ends its whole pool
        whole, running = True, dict[Future[Result], Job]()
        with _workers(min(workers, len(waiting))) as pool:
            while running or (waiting and whole):
                while waiting and whole and len(running) < workers:
                    try:
                        running[pool.submit(call, waiting[0], common)] = waiting[0]
                        waiting.popleft()
                    except BrokenProcessPool:
                        whole = False
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, problem = running.pop(future), future.exception()
                    killed = isinstance(problem, BrokenProcessPool)
                    whole = whole and not killed
                    yield job, future.result() if problem is None else Failed(KILLED if killed else said(problem))


@contextmanager
def _workers(number: int) -> Iterator[ProcessPoolExecutor]:
    """Yield worker processes that leave Ctrl-C to us. They are ended at once when the block does not end by itself."""
    others = active_children()
    with ProcessPoolExecutor(max(1, number), get_context("spawn"), _as_worker, (tuple(MODULES),)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                if child not in others:
                    child.terminate()
            raise


def _as_worker(plugins: Sequence[str]) -> None:
    """Prepare a worker: one maths thread, no Ctrl-C, the plug-ins of its parent, whom it does not outlive.

    A run that nobody waits for would write where the next one begins anew.
    """

    def end_with_parent() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    for name in plugins:
        importlib.import_module(name)
    threading.Thread(target=end_with_parent, daemon=True).start()


def said(problem: BaseException) -> str:
    """Return an error's name and text on one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())
