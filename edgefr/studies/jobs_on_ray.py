"""Many runs are made at a time on the machines of a Ray cluster, which share the folder that they write to.

A mark in the folder tells machines that share it from others. Where the worker of a job dies, the job is run again, and
goes on or begins anew by itself.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefr.config.plugins import MODULES
from edgefr.studies.jobs import Common, Failed, Job, Result, Where, in_processes, said
from privacy.errors import InputError

AGAIN = 3
"""Times that a job is run again after its worker or machine died."""
PATIENCE = 120.0
"""Seconds a machine has to say whether it sees the folder: it may have to start a process first."""


@dataclass(frozen=True)
class There:
    """These are what a machine needs to do jobs as the driver would.

    `cwd`: the working directory, which relative names start from. `mark`: a file that is in the folder of the jobs as
    long as they run. `plugins`: modules whose entries are known.
    """

    cwd: Path
    mark: Path
    plugins: tuple[str, ...]

    def enter(self) -> None:
        """Get this process ready. Raises `InputError` where its machine does not share the folder."""
        if not self.cwd.is_dir():
            raise InputError(f"it has no folder {self.cwd}, where this command was given")
        os.chdir(self.cwd)
        if not self.mark.is_file():
            raise InputError(f"it does not see what is written to {self.mark.parent.absolute()}")
        import torch

        torch.set_num_threads(1)
        for name in self.plugins:
            importlib.import_module(name)


def on_ray(
    call: Callable[[Job, Common], Result], jobs: Sequence[Job], common: Common, workers: int, address: str, folder: Path
) -> Iterator[tuple[Job, Result | Failed]]:
    """`call(job, common)` for every job, `workers` at a time, each on a processor of a cluster.

    All that jobs write must be below `folder`. Raises `InputError`, before any job, where a machine does not share it.
    """
    from edgefr.engine.backends.ray import connect

    connection = connect(address, workers)
    ray, running = connection.ray, dict[Any, Job]()
    try:
        with _marked(folder) as mark:
            there = There(Path.cwd(), mark, tuple(MODULES))
            _check_machines(ray, there)
            task = ray.remote(num_cpus=1, max_retries=AGAIN)(run_job)
            kept, waiting = ray.put(common), deque(jobs)
            while waiting or running:
                while waiting and len(running) < workers:
                    job = waiting.popleft()
                    running[task.remote(call, job, kept, there)] = job
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                yield running.pop(done), _result(ray, done)
    finally:
        for reference in () if connection.mine else running:
            ray.cancel(reference, force=True)
        connection.close()


@contextmanager
def _marked(folder: Path) -> Iterator[Path]:
    """Yield a file in the folder, of a name that nobody could guess, as long as the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".shared-{secrets.token_hex(8)}"
    mark.touch()
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)


def _check_machines(ray: Any, there: There) -> None:
    """Raise `InputError` where a machine that could get jobs cannot do them; one that has died meanwhile gets none."""
    on_node, asked = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy, {}
    for number, name in _machines(ray).items():
        task = ray.remote(num_cpus=0)(check).options(scheduling_strategy=on_node(number, soft=False))
        asked[task.remote(there)] = number, name
    answers, late = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
    reasons = [(one, _result(ray, one)) for one in answers] + [(one, "it does not answer") for one in late]
    there_still = _machines(ray)
    for one, reason in reasons:
        number, name = asked[one]
        if reason is not None and number in there_still:
            why = reason.why if isinstance(reason, Failed) else reason
            raise InputError(
                f"machine {name} of the Ray cluster cannot do jobs of this command: {why}; its machines need the "
                "same edgefr, data and a shared folder under the same names"
            )
    if not there_still:
        raise InputError("the Ray cluster has no machine with a processor; see `ray status`")


def _machines(ray: Any) -> dict[str, str]:
    alive = (node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
    return {node["NodeID"]: node["NodeManagerHostname"] for node in alive}


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # it could not even be read there
        return Failed(said(error.cause or error))
    except ray.exceptions.RayError:
        return Failed(
            f"its worker or machine died {AGAIN + 1} times, perhaps for lack of memory; run it again with fewer workers"
        )


def check(there: There) -> str | None:
    """Return why this machine cannot do jobs; None where it can."""
    try:
        there.enter()
    except Exception as error:
        return str(error) if isinstance(error, InputError) else said(error)
    return None


def run_job(call: Callable[[Job, Common], Result], job: Job, common: Common, there: There) -> Result | Failed:
    """Do a job: its result, or what went wrong."""
    try:
        there.enter()
        return call(job, common)
    except Exception as error:
        return Failed(said(error))


def run_jobs(
    call: Callable[[Job, Common], Result], jobs: Sequence[Job], common: Common, where: Where, folder: Path
) -> Iterator[tuple[Job, Result | Failed]]:
    """`call(job, common)` for every job, as `in_processes`, there or on a cluster whose machines share `folder`.

    Example: ``dict(run_jobs(run_job, jobs, setting, Where(workers=2), folder))``
    """
    if where.ray_address is None:
        return in_processes(call, jobs, common, where.workers)
    return on_ray(call, jobs, common, where.workers, where.ray_address, folder) if jobs else iter(())
