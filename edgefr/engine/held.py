"""A tensor of all clients whose rows lie in other processes: whoever asks for some clients gets theirs.

The loop reads and writes clients' private tensors a few at a time: `value[clients]`, `index_select`, `index_copy_`. A
held tensor answers these from wherever its rows lie, so that the loop need not know. What needs all rows in one place
(arithmetic on a whole tensor, a file) makes them come for as long as it takes; what would write to them there is
refused, since it would change a copy.

Owns: which calls go to the rows. Does not own: where they lie and what happens when a machine dies (`stores`).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.engine.work import Clients

AT_ONCE = 1 << 16
"""Clients whose rows are asked for at a time where some values of every client's are wanted."""


class Rows(Protocol):
    """These are the rows of a tensor [clients, *shape], wherever they lie."""

    @property
    def like(self) -> Tensor:
        """Return an empty tensor [0, *shape] of their type."""

    def __len__(self) -> int:
        """Return how many clients there are."""

    def read(self, clients: Clients) -> Tensor:
        """Return a copy of these clients' rows [C, *shape], in their order."""

    def write(self, clients: Clients, rows: Tensor) -> None:
        """Replace these clients' rows."""

    def copied(self) -> Rows:
        """Return a copy of all rows, where they lie."""


class Held(Tensor):
    """This is a tensor [clients, *shape] whose rows lie elsewhere; its first index is always of clients.

    `held[clients]` are rows of some clients, `held[:, 1]` a value of everybody's, and both may be assigned to. In-place
    calls on what these return change a copy, as they do with rows that any index of a tensor gathers.
    """

    source: Rows

    def __new__(cls, source: Rows) -> Held:
        like = source.like
        made: Held = Tensor._make_wrapper_subclass(cls, (len(source), *like.shape[1:]), dtype=like.dtype)  # type: ignore[attr-defined]
        made.source = source
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer what is asked of shape and type; let the rows come for everything else, unless it writes to them."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in _FACTS:
                return func(*args, **(kwargs or {}))
            if _writes(str(func.__name__), kwargs or {}):
                raise RuntimeError(
                    f"{func.__name__} would write to a copy of rows that lie elsewhere: give them by index"
                )
            here, named = _here(args), _here(kwargs or {})
        return func(*here, **named)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Refuse what did not come by the calls above: here are no rows."""
        raise TypeError(f"{func} was asked of rows that lie elsewhere")

    def whole(self) -> Tensor:
        """Return all rows in one tensor of this process."""
        return self.source.read(np.arange(len(self)))

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, at: Any) -> Tensor:
        clients, rest = _split(at, len(self))
        if not rest:
            return self.source.read(clients)
        parts = [clients[first : first + AT_ONCE] for first in range(0, max(len(clients), 1), AT_ONCE)]
        return torch.cat([self.source.read(some)[(slice(None), *rest)] for some in parts])

    def __setitem__(self, at: Any, value: Any) -> None:
        clients, rest = _split(at, len(self))
        new = torch.as_tensor(value, dtype=self.dtype)
        if rest:
            rows = self.source.read(clients)
            rows[(slice(None), *rest)] = new
        else:
            rows = new.expand(len(clients), *self.shape[1:])
        self.source.write(clients, rows)

    def index_select(self, dim: int, index: Tensor) -> Tensor:  # type: ignore[override]
        """Return the rows of some clients."""
        _of_clients(dim)
        return self[index]

    def index_copy_(self, dim: int, index: Tensor, source: Tensor) -> Tensor:  # type: ignore[override]
        """Replace the rows of some clients."""
        _of_clients(dim)
        if source.dtype != self.dtype or source.shape != (len(index), *self.shape[1:]):
            raise RuntimeError(f"{list(source.shape)} of {source.dtype} are not rows of {self!r}")
        self[index] = source
        return self

    def index_copy(self, dim: int, index: Tensor, source: Tensor) -> Tensor:  # type: ignore[override]
        """Return another tensor in which the rows of some clients are replaced."""
        return self.clone().index_copy_(dim, index, source)

    def clone(self, *, memory_format: torch.memory_format | None = None) -> Held:
        """Return a copy that lies where this one does."""
        return Held(self.source.copied())

    def detach(self) -> Held:
        """Return itself: nothing is differentiated through rows that lie elsewhere."""
        return self

    def cpu(self, memory_format: torch.memory_format | None = None) -> Held:
        """Return itself: its rows come to the host."""
        return self

    def numpy(self, *, force: bool = False) -> npt.NDArray[Any]:
        """Return a copy of all rows that cannot be written to, since nobody would see it."""
        out: npt.NDArray[Any] = self.whole().numpy()
        out.flags.writeable = False
        return out

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return what `numpy` does."""
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("rows that lie elsewhere do not travel as a whole: send those of some clients")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Held({list(self.shape)}, {self.dtype})"


_FACTS = {
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.ndim.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,  # type: ignore[attr-defined]
    Tensor.nbytes.__get__,  # type: ignore[attr-defined]
    Tensor.requires_grad.__get__,  # type: ignore[attr-defined]
    Tensor.dim,
    Tensor.size,
    Tensor.numel,
    Tensor.element_size,
}
"""What is known of a held tensor without its rows."""


def _writes(name: str, named: dict[str, Any]) -> bool:
    """Say whether a call of this name writes to a tensor it is given: `add_`, `+=`, a property, `out=`."""
    inside = name.endswith("_") and not name.endswith("__")  # `+=` too, which TypeError would make an addition
    return inside or name in ("__set__", "__setitem__") or isinstance(named.get("out"), Held)


def _split(at: Any, clients: int) -> tuple[Clients, tuple[Any, ...]]:
    """Return the clients that an index names, and what it takes of their rows."""
    first, *rest = at if isinstance(at, tuple) else (at,)
    if any(not isinstance(each, int | slice) for each in rest):
        raise TypeError("a held tensor is indexed by clients, and within their rows by numbers and slices")
    if isinstance(first, slice):
        return np.arange(clients)[first], tuple(rest)
    if isinstance(first, int):
        raise TypeError("a held tensor is asked for many clients at a time")
    found = np.asarray(first)
    if found.dtype == bool and len(found) != clients:
        raise IndexError(f"a mask of {len(found)} for {clients} clients")
    return np.flatnonzero(found) if found.dtype == bool else found.astype(np.int64), tuple(rest)


def _of_clients(dim: int) -> None:
    if dim != 0:
        raise TypeError("rows that lie elsewhere are those of clients: dimension 0")


def _here(value: Any) -> Any:
    """Let the rows of held tensors come, wherever they stand among a call's arguments."""
    if isinstance(value, Held):
        return value.whole()
    if isinstance(value, tuple | list):
        return type(value)(_here(each) for each in value)
    return {name: _here(each) for name, each in value.items()} if isinstance(value, dict) else value
