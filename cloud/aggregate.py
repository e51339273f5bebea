"""Updates are averaged as one streaming sum (federated averaging).

An update is a client's tensors after local work minus the broadcast. Nobody's update is kept: each is added to a
float64 sum per tensor, whole tensors or touched rows alone. Partial sums (of shards, of workers) are merged in the
caller's order, so keep that order fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.host_transfer import add_in_order, there
from privacy.errors import InputError

PIECE = 4096
"""Rows that are moved at a time, which stay in cache."""


class RowSum:
    """This is a float64 sum over the touched rows of a table of `shape`, on the host, so it costs what was touched.

    A device with its own memory would have to tell the host how many rows are new, and holds a whole table instead.

    >>> total = RowSum((5, 1))
    >>> total.add(torch.tensor([3, 0, 3]), torch.tensor([[1.0], [2.0], [4.0]]))
    >>> total.rows.tolist(), total.values.flatten().tolist()
    ([0, 3], [2.0, 5.0])
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._place = np.zeros(shape[0], np.int32)  # one more than a row's place, 0: not touched
        self._rows = np.empty(0, np.int64)
        self._values = torch.empty(0, *self.shape[1:], dtype=torch.float64)
        self._count = 0

    @property
    def rows(self) -> Tensor:
        """Return the touched rows in the order in which they came, int64 [k]."""
        return torch.from_numpy(self._rows[: self._count])

    @property
    def values(self) -> Tensor:
        """Return the sums of these rows, float64 [k, *shape[1:]]."""
        return self._values[: self._count]

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Add `values` [k, ...] to `rows` [k]; repeated rows one after the other."""
        numbers = rows.numpy()
        new = numbers[self._place[numbers] == 0]
        if len(new):
            self._grow(new if (np.diff(new) > 0).all() else np.unique(new))
        places = torch.from_numpy(self._place[numbers].astype(np.int64) - 1)
        self._values.index_add_(0, places, values.to(self._values))

    def whole(self) -> Tensor:
        """Return the sum as a table, float64 of `shape`; rows that nobody touched are zeros."""
        out = torch.zeros(self.shape, dtype=torch.float64)
        out[self.rows] = self.values
        return out

    def clear(self) -> None:
        """Start again from nothing; the room stays."""
        self._place[self._rows[: self._count]] = 0
        self._count = 0

    def _grow(self, new: np.ndarray) -> None:
        first, self._count = self._count, self._count + len(new)
        if self._count > len(self._rows):
            room = min(max(self._count, 2 * len(self._rows)), self.shape[0])
            self._rows = np.concatenate([self._rows[:first], np.empty(room - first, np.int64)])
            values = torch.empty(room, *self.shape[1:], dtype=torch.float64)
            values[:first] = self._values[:first]
            self._values = values
        self._rows[first : self._count] = new
        self._values[first : self._count] = 0.0
        self._place[new] = np.arange(first + 1, self._count + 1)


class Accumulator:
    """The weighted sum of a cohort's updates.

    `shared` gives the tensors' names and shapes; sums are float64 on `device`. The caller multiplies a
    client's update by its weight before adding it, and tells the weight to `add_weight`. On the host a table is summed
    over the rows that were touched, until something is added to all of them or somebody asks for its whole sum.

    >>> shared = {"w": torch.zeros(2)}
    >>> total = Accumulator(shared)
    >>> total.add_dense("w", torch.tensor([2.0, 4.0]))
    >>> total.add_weight(2.0, clients=2)
    >>> total.apply(shared, server_lr=1.0)["w"].tolist()
    [1.0, 2.0]
    """

    def __init__(self, shared: Mapping[str, Tensor], device: torch.device | str = "cpu") -> None:
        self.shapes = {name: tuple(tensor.shape) for name, tensor in shared.items()}
        self.device = torch.device(device)
        self.weight = 0.0
        self.clients = 0
        self._whole: dict[str, Tensor] = {}
        self._touched: dict[str, RowSum] = {}

    @property
    def sums(self) -> dict[str, Tensor]:
        """Return the sums of whole tensors by name, float64."""
        return {name: self._all(name) for name in self.shapes}

    @sums.setter
    def sums(self, sums: Mapping[str, Tensor]) -> None:
        self.shapes = {name: tuple(tensor.shape) for name, tensor in sums.items()}
        self._whole, self._touched = dict(sums), {}

    def _all(self, name: str) -> Tensor:
        if name not in self._whole:
            rows, shape = self._touched.pop(name, None), self.shapes[name]
            whole = torch.zeros(shape, dtype=torch.float64, device=self.device) if rows is None else rows.whole()
            self._whole[name] = whole
        return self._whole[name]

    def add_dense(self, name: str, total: Tensor) -> None:
        """Add updates of a whole tensor, already summed over clients: the tensor's shape."""
        if total.shape != self.shapes[name]:
            raise ValueError(f"update of {name} has shape {tuple(total.shape)}, not {self.shapes[name]}")
        into = self._all(name)
        into += there(total, into.device).to(into)

    def add_rows(self, name: str, rows: Tensor, values: Tensor) -> None:
        """Add updates of some rows: `rows` int64 [k], repeats allowed; `values` [k, width].

        Repeated rows are added one after the other in their order.
        """
        shape = self.shapes[name]
        if values.shape != (len(rows), *shape[1:]):
            raise ValueError(f"rows of {name} have shape {tuple(values.shape)}, not ({len(rows)}, *{shape[1:]})")
        if self.device.type == "cpu" and name not in self._whole:
            if name not in self._touched:
                self._touched[name] = RowSum(shape)
            self._touched[name].add(rows.cpu(), values.cpu())
            return
        into = self._all(name)
        add_in_order(into, there(rows, into.device), there(values, into.device).to(into))

    def add_weight(self, weight: float, clients: int) -> None:
        """Count `clients` more clients, whose weights add up to `weight`."""
        self.weight += weight
        self.clients += clients

    def noise(self, name: str, array: npt.NDArray[np.float64]) -> None:
        """Add noise to the sum of a tensor: the tensor's shape."""
        self.add_dense(name, torch.from_numpy(np.ascontiguousarray(array)))

    def merge(self, other: Accumulator) -> None:
        """Add another partial sum over the same tensors, one addition a value that was touched."""
        if other.shapes.keys() != self.shapes.keys():
            raise ValueError(f"partial sums of {sorted(other.shapes)} and {sorted(self.shapes)} do not belong together")
        for name, touched in other._touched.items():
            self.add_rows(name, touched.rows, touched.values)
        for name, whole in other._whole.items():
            self.add_dense(name, whole)
        self.add_weight(other.weight, other.clients)

    def clear(self) -> None:
        """Start again from nothing; room for touched rows stays."""
        self._whole, self.weight, self.clients = {}, 0.0, 0
        for touched in self._touched.values():
            touched.clear()

    def apply(self, shared: Mapping[str, Tensor], server_lr: float) -> dict[str, Tensor]:
        """Return the next broadcast: shared + server_lr * sum / weight, in the tensors' own dtype and place.

        With an empty cohort nothing changes. The update is the negative of the uploaded gradient in TransFR
        Eq. 5, and a uniform weight is its 1 / |U_p|. Raises `InputError` when an update is not finite.
        """
        if self.weight == 0:
            return dict(shared)
        whole = {name: self._all(name) / self.weight for name in shared if name not in self._touched}
        whole = moved({name: shared[name] for name in whole}, whole, self.clients, server_lr)
        return {n: whole[n] if n in whole else self._moved(n, tensor, server_lr) for n, tensor in shared.items()}

    def _moved(self, name: str, tensor: Tensor, server_lr: float) -> Tensor:
        out, touched = tensor.clone(), self._touched[name]
        for rows, values in zip(touched.rows.split(PIECE), touched.values.split(PIECE), strict=True):
            here = rows.to(tensor.device)
            mean = {name: values / self.weight}
            out[here] = moved({name: tensor[here]}, mean, self.clients, server_lr)[name]
        return out


class SealedSum:
    """A cohort's sum as its server sees it: what is added is gone, and what is opened, once, is the sum with its noise.

    `shapes`: of the tensors that are summed, by name. It stays closed to fewer than `at_least` clients (to nobody it
    may open). What is added up to `end_block` is summed by itself and then added to the rest, so whoever sums a block
    changes no bit. No attribute holds a part or the sum, and there is no copy and no pickle. This is what secure
    aggregation shows, simulated, without cryptography: it keeps honest code honest, and no process from reading its own
    memory. By itself it is no differential privacy.

    >>> total = SealedSum({"w": (2,)}, at_least=2)
    >>> total.add({"w": torch.tensor([1.0, 2.0])}, {}, weight=1.0, clients=1)
    >>> total.add({"w": torch.tensor([3.0, 4.0])}, {}, weight=1.0, clients=1, times=0.5)
    >>> total.open().sums["w"].tolist()
    [2.5, 4.0]
    """

    __slots__ = ("_add", "_end_block", "_open")

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], device: torch.device | str = "cpu", at_least: int = 1
    ) -> None:
        self._add, self._end_block, self._open = _vault(shapes, device, at_least)

    def add(
        self,
        dense: Mapping[str, Tensor],
        rows: Mapping[str, tuple[Tensor, Tensor]],
        weight: float,
        clients: int,
        times: float = 1.0,
        whole: bool = False,
    ) -> None:
        """Add sums over `clients` clients `times` a factor: whole tensors, and (rows, values) of tables.

        `weight` is what the mean is going to be divided by for them. `whole`: they are all of a block, which is added
        to the blocks before it at once. Raises `ValueError` for other shapes, and after the sum was opened.
        """
        self._add(dense, rows, weight, clients, times, whole)

    def count(self, weight: float, clients: int) -> None:
        """Count `clients` clients, whose weights add up to `weight`, of sums that were added as nobody's."""
        self._add({}, {}, weight, clients, 1.0, False)

    def end_block(self) -> None:
        """Add up what came since the last block, and add its sum to those of the blocks before it."""
        self._end_block()

    def open(self, noise: Iterable[tuple[str, npt.NDArray[np.float64]]] = ()) -> Accumulator | None:
        """Return the sum with `noise` (arrays for tensors by name) in it; the sealed one is gone then.

        None, and still sealed, where fewer than `at_least` clients are in it. Raises `ValueError` the second time.
        """
        return self._open(noise)

    def __reduce__(self) -> str:
        raise TypeError("a sealed sum cannot be copied or written: it is opened once")


def _vault(
    shapes: Mapping[str, Sequence[int]], device: torch.device | str, at_least: int
) -> tuple[Callable[..., None], Callable[[], None], Callable[..., Accumulator | None]]:
    empty = {n: torch.empty(tuple(s), device="meta") for n, s in shapes.items()}
    total: Accumulator | None = Accumulator(empty, device)  # blocks that have ended
    block = Accumulator(empty, device)  # the one that has not

    def held() -> Accumulator:
        if total is None:
            raise ValueError("this sum was opened before; the next round needs a new one")
        return total

    def add(
        dense: Mapping[str, Tensor],
        rows: Mapping[str, tuple[Tensor, Tensor]],
        weight: float,
        clients: int,
        times: float,
        whole: bool,
    ) -> None:
        ended = held()
        if whole:
            end_block()
        into = ended if whole else block
        for name, value in dense.items():
            into.add_dense(name, value if times == 1.0 else value * times)
        for name, (places, values) in rows.items():
            into.add_rows(name, places, values if times == 1.0 else values * times)
        into.add_weight(weight, clients)

    def end_block() -> None:
        held().merge(block)
        block.clear()

    def open_once(noise: Iterable[tuple[str, npt.NDArray[np.float64]]]) -> Accumulator | None:
        nonlocal total
        end_block()
        found = held()
        if 0 < found.clients < at_least:
            return None
        total = None
        for name, array in noise:
            found.noise(name, array)
        return found

    return add, end_block, open_once


def moved(
    shared: Mapping[str, Tensor], update: Mapping[str, Tensor], clients: int, server_lr: float
) -> dict[str, Tensor]:
    """Return the next broadcast: shared + server_lr * update, in the tensors' own dtype and place.

    `update` is the cohort's (mean, median, ...), one float64 tensor per shared one. Raises `InputError` when it is
    not finite; `clients` is for its message.
    """
    check_finite({name: update[name] for name in shared}, clients)
    return {name: step(tensor, update[name], server_lr) for name, tensor in shared.items()}


def check_finite(update: Mapping[str, Tensor], clients: int) -> None:
    """Raise `InputError` where an update of so many clients is not finite; a device is asked once."""
    sound = torch.stack([torch.isfinite(value).all() for value in update.values()]).tolist() if update else []
    for name, finite in zip(update, sound, strict=True):
        if not finite:
            raise InputError(
                f"the mean update of {name} over {clients} clients is not finite: "
                "lower the local learning rate, or set privacy.clip so that diverged clients are dropped"
            )


def step(tensor: Tensor, update: Tensor, server_lr: float) -> Tensor:
    """Return a tensor, or rows of one, after the server's step along its update."""
    return (tensor.to(update) + server_lr * update).to(tensor)  # TransFR Eq. 5
