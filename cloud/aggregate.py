"""Updates are averaged as one streaming sum (federated averaging). Owns the sum and the step, not who takes part.

An update is a client's tensors after local work minus the broadcast. Nobody's update is kept: each is added
to a float64 sum per tensor, whole tensors or touched rows alone. Partial sums (of shards, of workers) are
merged in the order in which the caller merges them, so keep that order fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.settings import AggregationSettings
from privacy.errors import InputError


class Accumulator:
    """The weighted sum of a cohort's updates.

    `shared` gives the tensors' names and shapes; sums are float64 on `device`. The caller multiplies a
    client's update by its weight before adding it, and tells the weight to `add_weight`.

    >>> shared = {"w": torch.zeros(2)}
    >>> total = Accumulator(shared)
    >>> total.add_dense("w", torch.tensor([2.0, 4.0]))
    >>> total.add_weight(2.0, clients=2)
    >>> total.apply(shared, AggregationSettings())["w"].tolist()
    [1.0, 2.0]
    """

    def __init__(self, shared: Mapping[str, Tensor], device: torch.device | str = "cpu") -> None:
        self.sums = {
            name: torch.zeros(tensor.shape, dtype=torch.float64, device=device) for name, tensor in shared.items()
        }
        self.weight = 0.0
        self.clients = 0

    def add_dense(self, name: str, total: Tensor) -> None:
        """Add updates of a whole tensor, already summed over clients: the tensor's shape."""
        into = self.sums[name]
        if total.shape != into.shape:
            raise ValueError(f"update of {name} has shape {tuple(total.shape)}, not {tuple(into.shape)}")
        into += total.to(into)

    def add_rows(self, name: str, rows: Tensor, values: Tensor) -> None:
        """Add updates of some rows: `rows` int64 [k], repeats allowed; `values` [k, width].

        Repeated rows are added one after the other in their order on a CPU and on a GPU alike (a plain
        scatter on a GPU would not keep an order, and then not the last bits either).
        """
        into = self.sums[name]
        if values.shape != (len(rows), *into.shape[1:]):
            raise ValueError(f"rows of {name} have shape {tuple(values.shape)}, not ({len(rows)}, *{into.shape[1:]})")
        if into.device.type == "cpu":
            into.index_add_(0, rows.to(into.device), values.to(into))
        else:
            into.index_put_((rows.to(into.device),), values.to(into), accumulate=True)

    def add_weight(self, weight: float, clients: int) -> None:
        """Count `clients` more clients, whose weights add up to `weight`."""
        self.weight += weight
        self.clients += clients

    def noise(self, name: str, array: npt.NDArray[np.float64]) -> None:
        """Add noise to the sum of a tensor: the tensor's shape."""
        self.add_dense(name, torch.from_numpy(np.ascontiguousarray(array)))

    def merge(self, other: Accumulator) -> None:
        """Add another partial sum over the same tensors."""
        if other.sums.keys() != self.sums.keys():
            raise ValueError(f"partial sums of {sorted(other.sums)} and {sorted(self.sums)} do not belong together")
        for name in self.sums:
            self.add_dense(name, other.sums[name])
        self.add_weight(other.weight, other.clients)

    def apply(self, shared: Mapping[str, Tensor], settings: AggregationSettings) -> dict[str, Tensor]:
        """Return the next broadcast: shared + server_lr * sum / weight, in the tensors' own dtype and place.

        With an empty cohort nothing changes. The update is the negative of the uploaded gradient in TransFR
        Eq. 5, and a uniform weight is its 1 / |U_p|. Raises `InputError` when an update is not finite.
        """
        if self.weight == 0:
            return dict(shared)
        return moved(shared, {name: self.sums[name] / self.weight for name in shared}, self.clients, settings)


class BlockSum(Accumulator):
    """This is the partial sum of a block of shards, which knows what of it was touched.

    >>> total, block = (kind({"table": torch.zeros(3, 1)}) for kind in (Accumulator, BlockSum))
    >>> block.add_rows("table", torch.tensor([2, 0]), torch.tensor([[1.0], [2.0]]))
    >>> block.move_into(total)
    >>> total.sums["table"].flatten().tolist(), block.sums["table"].flatten().tolist()
    ([2.0, 0.0, 1.0], [0.0, 0.0, 0.0])
    """

    def __init__(self, shared: Mapping[str, Tensor], device: torch.device | str = "cpu") -> None:
        super().__init__(shared, device)
        self._touched: dict[str, Tensor | None] = {}  # of a table the rows, bool [rows]; None: all of the tensor

    def add_dense(self, name: str, total: Tensor) -> None:
        """Add updates of a whole tensor, as `Accumulator.add_dense`."""
        super().add_dense(name, total)
        self._touched[name] = None

    def add_rows(self, name: str, rows: Tensor, values: Tensor) -> None:
        """Add updates of some rows, as `Accumulator.add_rows`."""
        super().add_rows(name, rows, values)
        into = self.sums[name]
        if name not in self._touched:
            self._touched[name] = torch.zeros(len(into), dtype=torch.bool, device=into.device)
        touched = self._touched[name]
        if touched is not None:
            touched[rows.to(into.device)] = True

    def move_into(self, total: Accumulator) -> None:
        """Add this to `total`, one addition a value, and start again from nothing: the next block's sum."""
        for name, touched in self._touched.items():
            into, values = total.sums[name], self.sums[name]
            rows = None if touched is None else touched.nonzero().squeeze(1)
            if rows is None or 2 * len(rows) > len(into):
                into += values
                values.zero_()
            else:
                into.index_add_(0, rows, values[rows])
                values[rows] = 0.0
        total.add_weight(self.weight, self.clients)
        self._touched, self.weight, self.clients = {}, 0.0, 0


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
    ) -> None:
        """Add sums over `clients` clients `times` a factor: whole tensors, and (rows, values) of tables.

        `weight` is what the mean is going to be divided by for them. Raises `ValueError` for other shapes, and after
        the sum was opened.
        """
        self._add(dense, rows, weight, clients, times)

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
    """The three things one can do with a sum that no name reaches."""
    empty = {n: torch.empty(tuple(s), device="meta") for n, s in shapes.items()}
    total: Accumulator | None = None  # blocks that have ended
    block: BlockSum | None = BlockSum(empty, device)  # the one that has not
    opened = False

    def held() -> BlockSum:
        nonlocal block
        if opened:
            raise ValueError("this sum was opened before; the next round needs a new one")
        if block is None:
            block = BlockSum(empty, device)
        return block

    def add(
        dense: Mapping[str, Tensor],
        rows: Mapping[str, tuple[Tensor, Tensor]],
        weight: float,
        clients: int,
        times: float,
    ) -> None:
        for name, value in dense.items():
            held().add_dense(name, value if times == 1.0 else value * times)
        for name, (places, values) in rows.items():
            held().add_rows(name, places, values if times == 1.0 else values * times)
        held().add_weight(weight, clients)

    def end_block() -> None:
        nonlocal total, block
        if total is None:  # the first is the sum so far; most rounds have no other
            total, block = held(), None
        elif block is not None:
            block.move_into(total)

    def open_once(noise: Iterable[tuple[str, npt.NDArray[np.float64]]]) -> Accumulator | None:
        nonlocal total, opened
        if opened:
            held()
        end_block()
        assert total is not None
        if 0 < total.clients < at_least:
            return None
        found, total, opened = total, None, True
        for name, array in noise:
            found.noise(name, array)
        return found

    return add, end_block, open_once


def moved(
    shared: Mapping[str, Tensor], update: Mapping[str, Tensor], clients: int, settings: AggregationSettings
) -> dict[str, Tensor]:
    """Return the next broadcast: shared + server_lr * update, in the tensors' own dtype and place.

    `update` is the cohort's (mean, median, ...), one float64 tensor per shared one. Raises `InputError` when it is
    not finite; `clients` is for its message.
    """
    out = {}
    for name, tensor in shared.items():
        if not bool(torch.isfinite(update[name]).all()):
            raise InputError(
                f"the mean update of {name} over {clients} clients is not finite: "
                "lower the local learning rate, or set privacy.clip so that diverged clients are dropped"
            )
        step = tensor.to(update[name]) + settings.server_lr * update[name]  # TransFR Eq. 5
        out[name] = step.to(tensor)
    return out
