"""A program over sessions runs this sequence encoder, with its dropout."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from edgefr.methods.fcucr.layers import Drop
from export.program import Tensors


class Encoder(Protocol):
    """A backbone has pure functions over the last dimensions of one client's tensors."""

    def specs(self) -> dict[str, tuple[int, ...]]: ...

    def init(self, seed: int) -> dict[str, Tensor]: ...

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor) -> Tensor: ...


@runtime_checkable
class Dropping(Protocol):
    """A backbone with dropout says at which `sites`, and one client's shape there."""

    def sites(self) -> dict[str, tuple[int, ...]]: ...

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor, drop: Drop | None = None) -> Tensor: ...
