"""The backend `processes` does what `inline` does in worker processes, one maths thread each.

parent: work, broadcast, cohort's tensors → shared memory     blocks' numbers → pipes     sums ← shared memory

Workers take the biggest blocks first; sums are added in the blocks' order, so results equal one process's to the bit.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch

from edgefr.engine.aggregate import ReleaseTerms, ShardAggregate
from edgefr.engine.backends.backend import own
from edgefr.engine.backends.shared_memory import Segment, SegmentReader, Shelf, end_named, sealed
from edgefr.engine.backends.worker_protocol import Elsewhere, Round, SharedWork, answer, cut, trained
from edgefr.engine.work import Clients, LocalWork, Updates
from export.program import Tensors
from privacy.errors import InputError

AHEAD = 2
"""Finished blocks that may wait for their turn, per worker."""

LARGE = 1 << 16
"""Bytes of a block's sums of rows from which on they go through shared memory."""

PATIENCE = 2.0
"""Seconds to wait for the exit code of a worker whose pipe ended."""


class Workers(Elsewhere):
    """This backend is worker processes, started when first needed.

    Raises RuntimeError when a worker ends or fails; then, and when a caller stops midway, all workers are ended, and
    the next round starts new ones. `close()` ends them; so does dropping the backend or leaving the interpreter.
    """

    name = "processes"

    def __init__(self, count: int):
        if count < 1:
            raise InputError(f"workers must be at least 1, got {count}")
        self.count = count
        self.started: list[_Worker] = []
        self._shelves = {"setting": Shelf(), "round": Shelf()}
        self._setting: SharedWork | None = None
        weakref.finalize(self, _end, self.started, self._shelves)

    def start(self) -> None:
        try:
            while len(self.started) < self.count:
                self.started.append(_start(len(self.started)))
            for worker in self.started:
                worker.wait_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._setting = None
        _end(self.started, self._shelves)

    def run(
        self, work: LocalWork, terms: ReleaseTerms | None, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Any]:
        done = False
        try:
            self._brief(work, terms, shared, private, shards)
            yield from self._in_order(work.round, len(cut(terms, len(shards))))
            done = True
        finally:
            if not done:  # a worker failed, Ctrl-C, or nobody wants the rest
                self.close()

    def _brief(
        self, work: LocalWork, terms: ReleaseTerms | None, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> None:
        """Send every worker the round, and the setting where it changed."""
        setting, another = SharedWork.of(work, self._setting)
        if another:
            self._tell("setting", setting)
            self._setting = setting
        told = Round.of(work, terms, shared), own(work, private, np.concatenate(shards)), list(shards)
        self._tell("round", told)

    def _tell(self, what: str, thing: Any) -> None:
        message = pickle.dumps((what, self._shelves[what].put(thing)))
        for worker in self.started:
            worker.send(message)

    def _in_order(self, number: int, blocks: int) -> Iterator[Any]:
        """Yield results of blocks 0..blocks-1 of a round in order, whoever finishes first."""
        todo, finished = iter(range(blocks)), {}
        handed = 0
        for wanted in range(blocks):
            while True:
                for worker in self.started:
                    # a second block in hand while many are left, so that nobody waits for the parent
                    hands = 2 if blocks - handed > 2 * self.count else 1
                    while worker.busy < hands and handed < min(blocks, wanted + (AHEAD + 1) * self.count):
                        worker.hand(next(todo))
                        handed += 1
                if wanted in finished:
                    break
                ready = wait([worker.pipe for worker in self.started])
                for worker in [worker for worker in self.started if worker.pipe in ready]:
                    block, result = worker.receive(number)
                    finished[block] = result
            result, give_back = finished.pop(wanted)
            yield result
            give_back()


@dataclass
class _Worker:
    """This is a worker as its parent sees it: `busy` blocks, `free` shelves, and by shelf the last segment `told`."""

    number: int
    process: BaseProcess
    pipe: Connection
    busy: int = 0
    ready: bool = False
    reader: SegmentReader = field(default_factory=SegmentReader)
    free: list[str] = field(default_factory=list)
    told: dict[str, Segment | None] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"edgefr-{os.getpid()}-{secrets.token_hex(4)}")

    def wait_ready(self) -> None:
        """Wait for the worker's first message."""
        if not self.ready:
            self._message()
            self.ready = True

    def send(self, message: bytes) -> None:
        try:
            self.pipe.send_bytes(message)
        except OSError:
            raise self._ended() from None

    def hand(self, block: int) -> None:
        """Give it a block to train, and a shelf for large parts of the result."""
        if not self.free:
            self.free.append(f"{self.name}-{len(self.told)}")
        shelf = self.free.pop()
        self.told.setdefault(shelf, None)
        self.send(pickle.dumps(("block", (block, shelf))))
        self.busy += 1

    def receive(self, number: int) -> tuple[int, tuple[Any, Callable[[], None]]]:
        """Return the next block that it finishes, the result, and how to give its shelf back."""
        kind, (block, shelf), result = self._message()
        self.busy -= 1
        if kind == "wrong input":
            raise InputError(result)
        if kind == "failed":
            raise RuntimeError(f"worker {self.number} failed in round {number}, block {block}:\n{result}")
        what, segment = result
        if segment is not None:
            self.told[shelf] = segment
            self.reader.keep([told for told in self.told.values() if told is not None])
            what = replace(what, rows=self.reader.get(segment))
        return block, (what, lambda: self.free.append(shelf))

    def forget(self) -> None:
        """Return the shared memory of a worker that is gone."""
        self.reader.keep([])
        for shelf, segment in self.told.items():
            end_named(shelf, 0 if segment is None else int(segment.segment.rpartition(".")[2]))

    def _message(self) -> Any:
        try:
            return pickle.loads(self.pipe.recv_bytes())  # noqa: S301 (from a process of our own)
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> RuntimeError:
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = f"with code {code}"
        if code is not None and code < 0:
            how = f"by signal {-code} (9: often too little memory)"
        if not self.ready:
            how += ' before it was ready; a script that starts workers needs `if __name__ == "__main__":`'
        return RuntimeError(f"worker {self.number} of executor processes ended {how}; its round is lost")


def _start(number: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), name=f"edgefr worker {number}", daemon=True)
    with _interrupts_ignored():
        process.start()
    theirs.close()  # so that the pipe ends with the worker
    return _Worker(number, process, ours)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes inside that ignore Ctrl-C: the parent decides when they end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(workers: list[_Worker], shelves: dict[str, Shelf]) -> None:
    for worker in workers:
        worker.process.kill()
    while workers:
        worker = workers.pop()
        worker.process.join()
        worker.pipe.close()
        worker.forget()
        worker.process.close()
    for shelf in shelves.values():
        shelf.clear()


# --- in the worker ----------------------------------------------------------------------------------------------------


def serve(pipe: Connection) -> None:
    """Run blocks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    worker = _WorkerState()
    try:
        pipe.send_bytes(sealed("ready"))
        while True:
            what, content = pickle.loads(pipe.recv_bytes())  # noqa: S301 (from the parent)
            if what == "block":
                pipe.send_bytes(sealed(worker.run(content)))
            else:
                worker.take(what, content)
    except (EOFError, OSError):  # the parent is done, or gone
        os._exit(0)  # nothing is left to be put in order, and taking the interpreter down takes a second


class _WorkerState:
    """This is a worker's state: the setting and the round that its parent sent."""

    def __init__(self) -> None:
        self.reader = SegmentReader()
        self.segments: dict[str, Segment] = {}
        self.things: dict[str, Any] = {}
        self.shelves: dict[str, Shelf] = {}

    def take(self, what: str, segment: Segment) -> None:
        self.things.pop(what, None)
        self.segments[what] = segment
        self.reader.keep(list(self.segments.values()))

    def run(self, todo: tuple[int, str]) -> tuple[str, tuple[int, str], Any]:
        """Return the answer to a block and a shelf: the status, both, and the result or the fault."""
        kind, result = answer(lambda: self._put(self._result(todo[0]), todo[1]))
        return kind, todo, result

    def _put(self, result: ShardAggregate | Updates, name: str) -> tuple[ShardAggregate | Updates, Segment | None]:
        """Put a block's sums of rows on a shelf where they are large for a pipe."""
        if not isinstance(result, ShardAggregate) or sum(v.nbytes for _, v in result.rows.values()) < LARGE:
            return result, None
        shelf = self.shelves.setdefault(name, Shelf(name))
        return replace(result, rows={}), shelf.put(result.rows)

    def _result(self, number: int) -> ShardAggregate | Updates:
        for what in self.segments.keys() - self.things.keys():
            self.things[what] = self.reader.get(self.segments[what])
        setting = self.things["setting"]
        round_, private, shards = self.things["round"]
        at = cut(round_.terms, len(shards))[number]
        ends = np.cumsum([0, *(len(shard) for shard in shards)])
        mine = [{name: v[ends[i] : ends[i + 1]].clone() for name, v in private.items()} for i in at]
        return trained(setting, round_, list(zip((shards[i] for i in at), mine, strict=True)))
