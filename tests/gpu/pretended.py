"""A pretended GPU: tensors that say they are on `cuda`, with real numbers on the host, on any machine.

    with Pretended() as gpu:             every tensor made on, or moved to, `cuda` is one of these
        ...                              operations on them compute what the host computes
    gpu.waits                            where the host waited for the device: {place: times}

What a GPU would refuse is refused: operations on tensors of two devices, and a look at a tensor's memory from the host
(`.numpy()`). What makes a program wait for a GPU is counted: a value that the host reads, a result whose size depends
on values, a copy between memories that does not say `non_blocking`. What is on its way to the host has
no numbers until then. So branches that only a GPU takes are run, their numbers are compared and their waits counted,
where there is no GPU; its own kernels, speed and rounding are not seen.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

ROOT = Path(__file__).parents[2]
GPU = torch.device("meta")

READS = {"_local_scalar_dense", "equal", "is_nonzero"}
"""Operations that hand a value of the device to the host."""

SIZED_BY_VALUES = {
    *("nonzero", "masked_select", "bincount", "repeat_interleave", "histc"),
    *("unique_consecutive", "unique_dim", "unique_dim_consecutive", "_unique", "_unique2"),
    *("_linalg_eigh", "_linalg_svd", "linalg_inv_ex", "_linalg_solve_ex", "linalg_cholesky_ex"),
}
"""Operations after which a GPU says how much there is, or whether it worked, before the host goes on."""


class OnGPU(Tensor):
    """A tensor on the pretended GPU. `host` holds its numbers, on the host."""

    host: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> OnGPU:
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined,no-any-return]
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=GPU,
            requires_grad=real.requires_grad,
        )

    def __init__(self, real: Tensor) -> None:
        self.host = real

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGPU({self.host})"

    def tolist(self) -> Any:
        return self.cpu().tolist()  # as a GPU's tensor does

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} of a tensor on the pretended GPU outside of it")


def _no_gradients(mode: bool = True) -> torch.no_grad | torch.enable_grad:
    """Return what stands for inference mode, in which no tensor of a class of its own can be made."""
    return torch.no_grad() if mode else torch.enable_grad()


def _full_precision(kind: str, **options: Any) -> contextlib.AbstractContextManager[object]:
    """Return what stands for automatic half precision, which torch has for kinds of devices that it knows."""
    return contextlib.nullcontext()


STAND_INS = (
    (torch, "inference_mode", _no_gradients),
    (torch, "autocast", _full_precision),
    (optimizer, "_get_fused_kernels_supported_devices", lambda: ["cpu", "cuda", GPU.type]),
)
"""What torch does by the name of a device, which it does not know here."""


class Pretended(TorchDispatchMode):
    """What is done with tensors in here is done on the pretended GPU where they are there."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self._under_way: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> Pretended:
        with contextlib.ExitStack() as stack:
            for place, name, other in STAND_INS:
                stack.enter_context(mock.patch.object(place, name, other))
            super().__enter__()
            self._patched = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patched.close()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and torch would first import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        found = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        there = [leaf for leaf in found if isinstance(leaf, OnGPU)]
        name = func._schema.name.removeprefix("aten::")
        asked = kwargs.get("device")
        goes = torch.device(asked).type if asked is not None else None
        if not there and goes != GPU.type:
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:  # made of others, which inference mode has not said yet
                return func.decompose(*args, **kwargs)
        if name in ("_to_copy", "copy_"):
            self._copied(name, args, kwargs, goes)
        else:
            strangers = [leaf for leaf in found if not isinstance(leaf, OnGPU) and leaf.ndim]
            if strangers:
                shapes = [tuple(leaf.shape) for leaf in strangers]
                raise RuntimeError(f"{func} of tensors on the GPU and of others on the host, {shapes}")
        masks = name.startswith("index") and any(leaf.dtype in (torch.bool, torch.uint8) for leaf in there[1:])
        if name in READS or masks or (name in SIZED_BY_VALUES and "output_size" not in kwargs):
            self._wait(name)
        if name == "_local_scalar_dense":
            return args[0].host.item()
        if goes is not None:
            kwargs["device"] = torch.device("cpu")
        if name == "_pin_memory":
            return args[0]
        inside = tree_map_only(OnGPU, lambda leaf: leaf.host, (args, kwargs))
        made = func(*inside[0], **inside[1])
        if goes == "cpu":
            return self._sent(made) if there and kwargs.get("non_blocking") else made
        out = tree_map(lambda leaf: OnGPU(leaf) if isinstance(leaf, Tensor) else leaf, made)
        return return_and_correct_aliasing(func, args, kwargs, out)

    def _copied(self, name: str, args: Any, kwargs: dict[str, Any], goes: str | None) -> None:
        """Count a copy between memories for which the host waits."""
        before = isinstance(args[0], OnGPU)
        after = isinstance(args[1], OnGPU) if name == "copy_" else (before if goes is None else goes == GPU.type)
        free = kwargs.get("non_blocking", args[2] if name == "copy_" and len(args) > 2 else False)
        if before != after and not free:
            self._wait("copy")

    def _sent(self, values: Tensor) -> Tensor:
        """Return what the host finds in place of values that are under way: no numbers, until it has waited."""
        place = torch.full_like(values, torch.nan if values.is_floating_point() else values.dtype != torch.bool)
        self._under_way.append((place, values.clone()))
        return place

    def _wait(self, what: str) -> None:
        for place, values in self._under_way:
            place.copy_(values)
        self._under_way.clear()
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
            file = Path(frame.f_code.co_filename)
            if ROOT in file.parents and file != Path(__file__):
                self.waits[f"{file.relative_to(ROOT)}:{frame.f_code.co_name}: {what}"] += 1
                return
        self.waits[what] += 1
