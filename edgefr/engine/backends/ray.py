"""The backend `ray` does what `inline` does on the nodes of a Ray cluster, or on a Ray of its own on this machine.

    driver: work, broadcast → object store, once a round     blocks' clients → task     their sums ←
    stores: private tensors of the task's clients → task → what became of them → stores

A task is a few consecutive blocks of shards, whose sums come back one by one in the blocks' order, so results are the
same to the bit as in one process, however many nodes there are. A task whose worker or node dies is run again elsewhere
by Ray, from the same tensors; a node may join or leave at any time. What clients keep lies with actors (`stores`), and
changes when all tasks of a round are done.

Owns: what is put in the object store, the order of sums, what is done again. Does not own: the connection
(`edgefr.engine.backends.ray_cluster`), what a task does (`elsewhere`), clients' state (`stores`), scheduling and
retries (Ray).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from edgefr.engine import mapped_files
from edgefr.engine.aggregate import ShardAggregate, Terms
from edgefr.engine.backends import ray_cluster as cluster
from edgefr.engine.backends.backend import read_of
from edgefr.engine.backends.ray_cluster import LOCAL, Connection, connect
from edgefr.engine.backends.worker_protocol import Elsewhere, Round, Setting, answer, cut, trained
from edgefr.engine.held import Held
from edgefr.engine.stores import Change, Packed, StoredRows, Stores, opened, pack, places, ranges, together
from edgefr.engine.work import Clients, LocalWork
from export.program import LocalProgram, Tensors
from privacy.errors import InputError

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
AGAIN = 5
"""Times that a round's tasks are handed out anew after what they need was lost, beyond what Ray does."""


class Lent(NamedTuple):
    """This says which tensors a task gets from the stores, by the names that they have there, and of which ranges.

    `back`: whether what becomes of them is put back.
    """

    names: Mapping[str, str]
    bounds: npt.NDArray[np.int64]
    back: bool


class OnRay(Elsewhere):
    """This backend runs blocks in tasks of Ray.

    `address`: of a cluster, "auto" for the one that this machine belongs to, or "local" for a Ray with `workers`
    processors that ends with the backend. Raises `InputError` without the extra `ray` or where no cluster answers,
    RuntimeError when a task fails.
    """

    name = "ray"

    def __init__(self, address: str = LOCAL, workers: int = 2):
        self.address, self.workers = address, workers
        self.ray: Any = None
        self.task: Any = None
        self.stores: Stores | None = None
        self._connection: Connection | None = None
        self._setting: Setting | None = None
        self._told: Any = None
        self._tasks = TASKS
        self._files: set[str] = set()

    def start(self) -> None:
        """Connect, or start a Ray of one's own, which takes some seconds."""
        if self._connection is None:
            self._connection = connect(self.address, self.workers)
            self.ray = self._connection.ray
            self.task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(run_blocks)

    def close(self) -> None:
        """Leave the cluster, and what clients keep ends; so does a Ray of one's own."""
        self._setting = self._told = None
        if self.stores is not None:
            self.stores.close(self._files)
        self._files = set()
        if self._connection is not None:
            self._connection.close()
        self.ray, self.task, self.stores, self._connection = None, None, None, None

    def first(self, program: LocalProgram, seed: int, clients: int) -> dict[str, torch.Tensor]:
        """Have the stores make what clients begin with."""
        return dict(self._stores().first(program, seed, clients))

    def kept(self, private: Tensors) -> dict[str, torch.Tensor]:
        """Give the stores what lies here."""
        stores = self._stores()
        return {n: v if _stored_with(stores, v) else stores.keep(v[:]) for n, v in private.items()}

    def _stores(self) -> Stores:
        self.start()
        if self.stores is None:
            self.stores = Stores(self.ray)
        return self.stores

    def run(
        self, work: LocalWork, terms: Terms | None, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Any]:
        """Yield what leaves each block, in order; with no terms the updates themselves."""
        setting = Setting.of(work)
        if self._setting is None or any(new is not old for new, old in zip(setting, self._setting, strict=True)):
            self._setting, self._told = setting, self._put_mapped(setting)
        began = time.perf_counter()
        told = [self._told, self._put(Round(tuple(work.phases), work.round, terms, dict(shared), dict(work.tables)))]
        blocks = [[shards[at] for at in block] for block in cut(terms, len(shards))]
        processors = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        size = at_a_time(len(blocks), self._tasks * processors, 2 * sum(value.nbytes for value in shared.values()))
        tasks = [blocks[first : first + size] for first in range(0, len(blocks), size)]
        under_way = UnderWay(self, told, tasks, read_of(work, private), terms is not None, AHEAD * processors)
        number = 0
        for answers in under_way.results(work.round):
            for each in answers:
                yield _result(each, work.round, number)
                number += 1
        self._tasks = TASKS if time.perf_counter() - began > BRIEF else 1

    def _put(self, thing: Any) -> Any:
        return self.ray.put(pack(thing))

    def _put_mapped(self, thing: Any) -> Any:
        """Put an object whose large arrays each machine has from a file of its own."""
        stream, buffers = pack(thing)
        large = {at: mapped_files.digest(b) for at, b in enumerate(buffers) if b.nbytes >= mapped_files.LARGE}
        if self.stores is not None:
            self.stores.drop_files(self._files - set(large.values()))
        self._files = set(large.values())
        there = {at: (name, buffers[at].nbytes, self.ray.put(buffers[at])) for at, name in large.items()}
        return self.ray.put((stream, [there.get(at, buffer) for at, buffer in enumerate(buffers)]))


class UnderWay:
    """These are the tasks of one round: handed out ahead, waited for in order, done again if what they need is lost.

    `tasks`: blocks of shards; `private`: what their work reads of all clients; `back`: whether what becomes of that is
    the clients' new state; `ahead`: tasks that are handed out at a time.
    """

    def __init__(
        self, on: OnRay, told: list[Any], tasks: list[list[list[Clients]]], private: Tensors, back: bool, ahead: int
    ):
        self.ray, self.task, self.told, self.tasks, self.ahead = on.ray, on.task, told, tasks, ahead
        self.here = {name: value for name, value in private.items() if not isinstance(value, Held)}
        self.stores = on.stores
        self.lent = lent_of(private, back, self.stores)
        self.rows: list[Any] = []
        self.handed: dict[int, list[Any]] = {}

    def results(self, number: int) -> Iterator[Sequence[tuple[str, Any]]]:
        """Yield what became of each task's blocks in round `number`; then the clients have what became of them."""
        changes = []
        for answers, change in self._done(number):
            changes.append(change)
            yield answers
        if self.lent is None or not self.lent.back or self.stores is None:
            return
        for left in reversed(range(AGAIN)):
            try:
                self.stores.take_back(changes)
                return
            except self.ray.exceptions.RayError as error:
                self._mend(error, number, left)
                changes = [change for _, change in self._done(number)]

    def _done(self, number: int) -> Iterator[tuple[Sequence[tuple[str, Any]], list[Any]]]:
        """Yield what became of each task's blocks, in order, and where its clients' new rows are."""
        for wanted in range(len(self.tasks)):
            answers = self._waited(wanted, number)
            yield answers, self.handed.pop(wanted)[1:]

    def _waited(self, wanted: int, number: int) -> Sequence[tuple[str, Any]]:
        """Wait for what became of a task's blocks, while others are under way."""
        for left in reversed(range(AGAIN)):
            try:
                if self.lent is not None and self.stores is not None and not self.rows:
                    clients = [np.concatenate([shard for block in task for shard in block]) for task in self.tasks]
                    self.rows = self.stores.lend(self.lent.names, clients, self.lent.bounds)
                for new in range(wanted + len(self.handed), min(len(self.tasks), wanted + self.ahead)):
                    self.handed[new] = self._hand(new)
                answers: Sequence[tuple[str, Any]] = self.ray.get(self.handed[wanted][0])
                return answers
            except self.ray.exceptions.RayError as error:
                self._mend(error, number, left)
        raise AssertionError

    def _hand(self, new: int) -> list[Any]:
        """Hand out a task. It runs to its end, whatever becomes of the round: Ray 2.60 aborts who cancels one then."""
        content = [
            pack([(shard, {n: v[torch.from_numpy(shard)] for n, v in self.here.items()}) for shard in block])
            for block in self.tasks[new]
        ]
        if self.lent is None:
            return [self.task.remote(self.told, content, None)]
        returns = len(self.lent.bounds) if self.lent.back else 1
        found = self.task.options(num_returns=returns).remote(self.told, content, self.lent, *self.rows[new])
        return list(found) if returns > 1 else [found]

    def _mend(self, error: Exception, number: int, left: int) -> None:
        """Replace stores that are gone, and begin again with the tasks that are not done."""
        if not left or self.stores is None:
            raise RuntimeError(f"work of round {number} was lost on Ray: {error}") from error
        with suppress(self.ray.exceptions.RayError):  # another store is gone by now
            self.stores.mend()
        self.rows, self.handed = [], {}


def _stored_with(stores: Stores, value: torch.Tensor) -> bool:
    return isinstance(value, Held) and isinstance(value.source, StoredRows) and value.source.stores is stores


def lent_of(private: Tensors, back: bool, stores: Stores | None) -> Lent | None:
    """Return what tasks get from the stores; None where nothing of it lies there."""
    held = {name: value for name, value in private.items() if isinstance(value, Held)}
    if not held or stores is None:
        return None
    if not all(_stored_with(stores, value) for value in held.values()):
        raise RuntimeError("what clients kept lies with another backend")
    names = {name: value.source.name for name, value in held.items() if isinstance(value.source, StoredRows)}
    (clients,) = {len(value) for value in held.values()}
    return Lent(names, ranges(clients, len(stores.actors)), back)


def _result(came_of_it: tuple[str, Any], number: int, block: int) -> Any:
    """Return what leaves a block, or raise what was wrong with it."""
    kind, content = came_of_it
    if kind == "wrong input":
        raise InputError(content)
    if kind == "failed":
        raise RuntimeError(f"block {block} of round {number} failed on Ray:\n{content}")
    return opened(content)


def at_a_time(blocks: int, tasks: int, bytes_: int) -> int:
    """Return how many of a round's blocks, whose sums have so many bytes each, one of so many tasks is of.

    >>> at_a_time(16, 4, 1 << 19), at_a_time(63, 64, 1 << 19), at_a_time(63, 4, 1 << 26)
    (4, 1, 1)
    """
    return max(1, min(-(-blocks // tasks), LARGE // max(bytes_, 1)))


# --- in a worker of Ray -----------------------------------------------------------------------------------------------

_OPENED: dict[str, Any] = {}
"""The setting and the round that the last task needed, by the names of their objects."""


def run_blocks(told: list[Any], contents: Sequence[Packed], lent: Lent | None, *rows: Packed) -> Any:
    """Train blocks: what became of each, and its packed sum or the reason.

    Then, if it is to be put back, for each store what its clients now have.
    """
    torch.set_num_threads(1)
    blocks = [opened(content) for content in contents]
    if lent is not None:
        blocks = _with(blocks, lent, [opened(each) for each in rows])
    now: list[tuple[Clients, dict[str, torch.Tensor]]] = []

    def left(block: list[tuple[Clients, Tensors]]) -> Packed:
        result = trained(*_told(told), block)
        if lent is None or not lent.back or not isinstance(result, ShardAggregate):
            return pack(result)
        kept = torch.from_numpy(result.kept)
        clients = np.concatenate([shard for shard, _ in block])[result.kept]
        now.append((clients, {lent.names[n]: v[kept] for n, v in result.private.items() if n in lent.names}))
        return pack(replace(result, private={n: v for n, v in result.private.items() if n not in lent.names}))

    answers = [answer(lambda: left(block)) for block in blocks]  # noqa: B023
    return answers if lent is None or not lent.back else (answers, *_changes(now, lent.bounds))


def _with(blocks: list[Any], lent: Lent, rows: Sequence[Tensors]) -> list[list[tuple[Clients, Tensors]]]:
    """Return blocks of shards with the rows that their clients have in the stores."""
    shards = [clients for block in blocks for clients, _ in block]
    every = together(rows, np.concatenate(shards), lent.bounds)
    ends = iter(np.cumsum([len(clients) for clients in shards]).tolist())

    def own(clients: Clients) -> dict[str, torch.Tensor]:
        last = next(ends)
        return {name: value[last - len(clients) : last] for name, value in every.items()}

    return [[(clients, {**here, **own(clients)}) for clients, here in block] for block in blocks]


def _changes(now: list[tuple[Clients, dict[str, torch.Tensor]]], bounds: npt.NDArray[np.int64]) -> list[Packed]:
    """Return for each store what the clients of its range now have."""
    clients = np.concatenate([np.zeros(0, np.int64), *(some for some, _ in now)])
    names = now[0][1] if now else {}
    every = {name: torch.cat([rows[name] for _, rows in now]) for name in names}
    out = []
    for part, where in enumerate(places(clients, bounds)):
        index = torch.from_numpy(np.flatnonzero(where))
        change: Change = clients[where] - bounds[part], {n: v.index_select(0, index) for n, v in every.items()}
        out.append(pack(change))
    return out


def _told(told: list[Any]) -> tuple[Setting, Round]:
    """Return the setting and the round, opened once in each process."""
    names = [reference.hex() for reference in told]
    for name in _OPENED.keys() - set(names):
        del _OPENED[name]
    for name, reference in zip(names, told, strict=True):
        if name not in _OPENED:
            stream, parts = cluster.opened(reference)
            _OPENED[name] = opened((stream, [_bytes_of(part) for part in parts]))
    setting, round_ = (_OPENED[name] for name in names)
    return setting, round_


def _bytes_of(part: Any) -> npt.NDArray[np.uint8]:
    """Return an array's bytes, from this machine's file where it is one of the large ones."""
    if isinstance(part, np.ndarray):
        return part
    name, size, reference = part
    return mapped_files.mapped(name, size, lambda: cluster.opened(reference))
