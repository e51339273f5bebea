"""Clients' private tensors lie with actors of a Ray cluster, so that the driver of a run holds nobody's.

Clients are cut into as many ranges as there are stores, one store for each machine and at least two. A store holds its
own range and a copy of the next store's, so that a machine that dies takes nothing with it: a new store elsewhere gets
both from those that hold the same.

    driver: which clients of each task → stores: their rows → tasks → what became of them → both stores of a range
    all stores have all of a round → commit: it is the state that the next round reads

Until a round is committed, every range is read as it was before it, so any task can be run again, with the same bits.

Owns: where rows lie, reading and writing them, mending. Does not own: what is trained (`on_ray`), the connection and
machines (`edgefr.engine.backends.ray_cluster`), what the loop sees of it (`held`).
"""

from __future__ import annotations

import itertools
import pickle
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.engine import mapped_files
from edgefr.engine.backends import ray_cluster as cluster
from edgefr.engine.backends.shared_memory import packed
from edgefr.engine.held import Held
from edgefr.engine.work import Clients
from export.program import LocalProgram, Tensors
from privacy.errors import InputError

TRIES = 10
"""Times that something is asked again after a store or a machine died."""
PATIENCE = 300
"""Seconds that a store has to answer before it counts as dead."""

Packed = tuple[bytes, list[npt.NDArray[np.uint8]]]
"""An object for the object store: arrays beside the rest of it, which readers see without a copy."""
Change = tuple[Clients, dict[str, Tensor]]
"""This is of new rows: places of clients in their range, and what they have now."""
T = TypeVar("T")


def pack(thing: Any) -> Packed:
    """Pack an object for the object store."""
    stream, buffers = packed(thing)
    return stream, [np.frombuffer(buffer, np.uint8) for buffer in buffers]


def opened(content: Packed) -> Any:
    """Return a packed object; its arrays are views of the object store: read them, do not write."""
    stream, arrays = content
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return pickle.loads(stream, buffers=arrays)  # noqa: S301 (from a process of our own)


def ranges(clients: int, stores: int) -> npt.NDArray[np.int64]:
    """Return where the stores' ranges of clients begin, and where the last one ends.

    >>> ranges(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(stores + 1) * clients // stores


def places(clients: Clients, bounds: npt.NDArray[np.int64]) -> list[npt.NDArray[np.bool_]]:
    """Return which of some clients are in each range.

    >>> [where.tolist() for where in places(np.array([7, 0, 5]), ranges(10, 2))]
    [[False, True, False], [True, False, True]]
    """
    of = np.searchsorted(bounds, clients, side="right") - 1
    return [of == part for part in range(len(bounds) - 1)]


def together(parts: Sequence[Tensors], clients: Clients, bounds: npt.NDArray[np.int64]) -> dict[str, Tensor]:
    """Return rows of clients [C, *shape] in their order, from those that each store has of them."""
    out = {name: rows.new_empty((len(clients), *rows.shape[1:])) for name, rows in parts[0].items()}
    for where, part in zip(places(clients, bounds), parts, strict=True):
        index = torch.from_numpy(np.flatnonzero(where))
        for name, rows in part.items():
            out[name].index_copy_(0, index, rows)
    return out


class StoredRows:
    """These are the rows of one tensor of all clients, as its stores hold them under `name`."""

    def __init__(self, stores: Stores, name: str, like: Tensor, clients: int):
        self.stores, self.name, self.like, self.clients = stores, name, like, clients
        weakref.finalize(self, stores.unwanted.append, name)

    def __len__(self) -> int:
        return self.clients

    def read(self, clients: Clients) -> Tensor:
        """Return a copy of these clients' rows."""
        return self.stores.read(self, clients)

    def write(self, clients: Clients, rows: Tensor) -> None:
        """Replace these clients' rows."""
        self.stores.write(self, clients, rows)

    def copied(self) -> StoredRows:
        """Return a copy of all rows in the same stores."""
        return self.stores.copied(self)


class Stores:
    """These are the stores of a run, as its driver sees them."""

    def __init__(self, ray: Any):
        self.ray = ray
        self._kind = ray.remote(num_cpus=0, memory=1)(Store)  # Ray 2.60 puts what asks for nothing where it likes
        self._numbers = itertools.count()
        self.unwanted: list[str] = []
        self._nodes: list[str] = []
        self._lost: set[int] = set()
        self.actors: list[Any] = []
        for left in reversed(range(TRIES)):  # a machine may die meanwhile
            self.actors, self._nodes = [], []
            for number in range(max(2, len(cluster.machines(ray)))):
                self.actors.append(self._new(number))
            try:
                self._nodes = self.ray.get([actor.ready.remote() for actor in self.actors])
                break
            except self.ray.exceptions.RayError:
                if not left:
                    raise

    def close(self, files: Iterable[str] = ()) -> None:
        """End the stores, what they hold, and the files of these names on their machines."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.get([actor.leave.remote(list(files)) for actor in self.actors], timeout=PATIENCE)
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors.clear()

    def drop_files(self, files: Iterable[str]) -> None:
        """Drop files of these names on the stores' machines."""
        for actor in self.actors if (names := list(files)) else ():
            actor.leave.remote(names)

    # --- tensors of all clients -----------------------------------------------------------------------------------

    def first(self, program: LocalProgram, seed: int, clients: int) -> dict[str, Held]:
        """Return the private tensors that clients begin with; each store makes those of its own."""
        likes = {n: v[:0] for n, v in program.init_private(seed, torch.arange(min(clients, 1))).items()}
        names = {name: self._name() for name in likes}
        bounds, sent = self._bounds(clients), self.ray.put(pack(program))

        def make() -> list[Any]:
            who = [(part, actor) for part in range(len(self.actors)) for actor in self._holders(part)]
            return [a.make.remote(p, names, sent, seed, int(bounds[p]), int(bounds[p + 1])) for p, a in who]

        self._surely(make)
        return {name: Held(StoredRows(self, names[name], like, clients)) for name, like in likes.items()}

    def keep(self, value: Tensor) -> Held:
        """Return a tensor of all clients whose rows lie with the stores from now on."""
        name, bounds = self._name(), self._bounds(len(value))
        parts = [self.ray.put(pack(value[a:b].contiguous())) for a, b in itertools.pairwise(bounds)]
        self._surely(lambda: [a.put.remote(p, name, each) for p, each in enumerate(parts) for a in self._holders(p)])
        return Held(StoredRows(self, name, value[:0].clone(), len(value)))

    def read(self, rows: StoredRows, clients: Clients) -> Tensor:
        """Return a copy of some clients' rows, in their order."""
        bounds = self._bounds(rows.clients)

        def ask() -> list[Any]:
            mine = [clients[where] - bounds[part] for part, where in enumerate(places(clients, bounds))]
            return [self.actors[p].read.remote(p, {"": rows.name}, [each]) for p, each in enumerate(mine)]

        return together([opened(each) for each in self._surely(ask)], clients, bounds)[""]

    def write(self, rows: StoredRows, clients: Clients, new: Tensor) -> None:
        """Replace some clients' rows, with both stores of each range."""
        bounds = self._bounds(rows.clients)
        parts = []
        for part, where in enumerate(places(clients, bounds)):
            index = torch.from_numpy(np.flatnonzero(where))
            change: Change = clients[where] - bounds[part], {rows.name: new.index_select(0, index)}
            parts.append(self.ray.put(pack(change)))
        self._surely(lambda: [a.write.remote(p, each) for p, each in enumerate(parts) for a in self._holders(p)])

    def copied(self, rows: StoredRows) -> StoredRows:
        """Return a copy of a tensor's rows."""
        name = self._name()
        self._surely(lambda: [actor.copy.remote(rows.name, name) for actor in self.actors])
        return StoredRows(self, name, rows.like, rows.clients)

    # --- rounds ---------------------------------------------------------------------------------------------------

    def lend(self, names: Mapping[str, str], tasks: Sequence[Clients], bounds: npt.NDArray[np.int64]) -> list[Any]:
        """Return for every task where the rows of its clients will be, one object of each store."""
        mine = [[clients[where] - bounds[p] for p, where in enumerate(places(clients, bounds))] for clients in tasks]
        every = []
        for part, actor in enumerate(self.actors):
            found = actor.read.options(num_returns=len(tasks)).remote(part, names, [each[part] for each in mine])
            every.append(found if len(tasks) > 1 else [found])
        return list(zip(*every, strict=True))

    def take_back(self, changes: Sequence[Sequence[Any]]) -> None:
        """Make what every task's clients have now the state, once both stores of each range have all of it.

        `changes`: by task, one object for each store. Raises what Ray raises where some of it cannot be had any more.
        """
        number = next(self._numbers)
        calls = [
            actor.stash.remote(part, number, *(task[part] for task in changes))
            for part in range(len(self.actors))
            for actor in self._holders(part)
        ]
        self.ray.get(calls)
        for store, done in enumerate([actor.commit.remote(number) for actor in self.actors]):
            try:
                self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:
                raise RuntimeError(f"a store could not put back a round: {error}") from error
            except self.ray.exceptions.RayError:
                self._lost.add(store)
        for _ in range(TRIES if self._lost else 0):  # none that may not have heard of it is asked any more
            with suppress(self.ray.exceptions.RayError):
                self.mend()
                return
        if self._lost:
            raise RuntimeError("a store that did not hear of a round could not be replaced; go on with --resume")

    # --- machines that die ----------------------------------------------------------------------------------------

    def mend(self) -> None:
        """Replace the stores that are gone by new ones, which get what they held from those that hold the same.

        Raises `InputError` where nobody does.
        """
        count = len(self.actors)
        self._lost |= {number for number in range(count) if number not in self._lost and not self._answers(number)}
        gone = sorted(self._lost)
        for number in gone:
            if (number + 1) % count in gone or (number - 1) % count in gone:
                raise InputError(
                    "machines that held the same clients' state died together; go on from the last checkpoint, "
                    "with --resume"
                )
        for number in gone:
            made, before, after = (self._new(number), *(self.actors[(number + n) % count] for n in (-1, 1)))
            for part, held_by in ((number, before), ((number + 1) % count, after)):
                self.ray.get(made.take.remote(part, held_by.give.remote(part)))
            self._nodes[number] = self.ray.get(made.ready.remote())
            self.ray.kill(self.actors[number])
            self.actors[number] = made  # one that has not all of it never is
            self._lost.discard(number)

    def _answers(self, number: int) -> bool:
        try:
            self.ray.get(self.actors[number].ready.remote(), timeout=PATIENCE)
        except self.ray.exceptions.RayError:
            return False
        return True

    def _surely(self, ask: Callable[[], list[Any]]) -> list[Any]:
        """Return what stores answer, from those that took the place of others where some are gone.

        What is asked may be asked again: reading, and writing the same.
        """
        self._must_be_there()
        for left in reversed(range(TRIES)):
            try:
                self._forget()
                found: list[Any] = self.ray.get(ask())
                return found
            except self.ray.exceptions.RayError:
                if not left:
                    raise
                with suppress(self.ray.exceptions.RayError):  # another one is gone by now
                    self.mend()
        raise AssertionError

    def _bounds(self, clients: int) -> npt.NDArray[np.int64]:
        """Return where the stores' ranges of so many clients begin and end."""
        self._must_be_there()
        return ranges(clients, len(self.actors))

    def _must_be_there(self) -> None:
        """Raise RuntimeError after the end: Ray must not be asked then, since it would start by itself."""
        if not self.actors:
            raise RuntimeError("what clients kept has ended with the backend that kept it")

    def _forget(self) -> None:
        """Let the stores drop the tensors that nobody has any more."""
        names = [self.unwanted.pop() for _ in range(len(self.unwanted))]
        for actor in self.actors if names else ():
            actor.drop.remote(names)

    def _holders(self, part: int) -> tuple[Any, Any]:
        return self.actors[part], self.actors[part - 1]

    def _name(self) -> str:
        return str(next(self._numbers))

    def _new(self, number: int) -> Any:
        """Start a store on the machine that has the fewest of them, if it can be not beside one of the same clients."""
        count = max(2, len(self.actors))
        machines = cluster.machines(self.ray)
        beside = {self._nodes[n % count] for n in (number - 1, number + 1) if n % count < len(self._nodes)}
        node = min(machines, key=lambda each: (each in beside, self._nodes.count(each), each))
        self._nodes[number : number + 1] = [node]
        return self._kind.options(scheduling_strategy=cluster.on_machine(node)).remote()


# --- in an actor of Ray -----------------------------------------------------------------------------------------------


class Store:
    """This holds rows of some ranges of clients, by range and name.

    What it is asked to write it may be asked to write again: nothing counts on being done once.
    """

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.parts: dict[int, dict[str, Tensor]] = {}
        self.next: dict[int, tuple[int, list[Change]]] = {}

    def ready(self) -> str:
        """Answer, and so be there: on which machine."""
        return cluster.here()

    def leave(self, files: Sequence[str]) -> None:
        """Drop files that this machine has for the run."""
        mapped_files.drop(files)

    def make(self, part: int, names: Mapping[str, str], program: Packed, seed: int, first: int, last: int) -> None:
        """Make what the clients [first, last) begin with."""
        made = opened(program).init_private(seed, torch.arange(first, last))
        self.parts.setdefault(part, {}).update({names[name]: value.clone() for name, value in made.items()})

    def put(self, part: int, name: str, rows: Packed) -> None:
        """Hold rows of a whole range."""
        self.parts.setdefault(part, {})[name] = opened(rows).clone()

    def read(self, part: int, names: Mapping[str, str], wanted: Sequence[Clients]) -> Any:
        """Return the rows of tensors at places of a range; for several lists of places one object each."""
        held = self.parts[part]
        found = [
            pack({name: held[stored].index_select(0, torch.from_numpy(some)) for name, stored in names.items()})
            for some in wanted
        ]
        return found[0] if len(found) == 1 else found

    def write(self, part: int, change: Packed) -> None:
        """Replace rows of a range at once."""
        self._apply(part, opened(change))

    def copy(self, name: str, new: str) -> None:
        """Hold a copy of a tensor under another name."""
        for held in self.parts.values():
            held[new] = held[name].clone()

    def drop(self, names: Sequence[str]) -> None:
        """Drop tensors."""
        for held in self.parts.values():
            for name in names:
                held.pop(name, None)

    def stash(self, part: int, number: int, *changes: Packed) -> None:
        """Put aside what a round makes of a range, in the place of whatever was put aside before."""
        self.next[part] = number, [opened(each) for each in changes]

    def commit(self, number: int) -> None:
        """Make what was put aside under this number the state."""
        for part in [part for part, (found, _) in self.next.items() if found == number]:
            for change in self.next.pop(part)[1]:
                self._apply(part, change)

    def give(self, part: int) -> Packed:
        """Return all that is held of a range."""
        return pack((self.parts[part], self.next.get(part)))

    def take(self, part: int, content: Packed) -> None:
        """Hold what another store held of a range."""
        held, aside = opened(content)
        self.parts[part] = {name: value.clone() for name, value in held.items()}
        if aside is not None:
            self.next[part] = aside

    def _apply(self, part: int, change: Change) -> None:
        index, rows = torch.from_numpy(change[0].copy()), change[1]
        for name in rows.keys() & self.parts[part].keys():  # the others were dropped meanwhile
            self.parts[part][name].index_copy_(0, index, rows[name])
