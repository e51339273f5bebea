"""Numbers cross between the host and a device with memory of its own, and neither waits for the other but in `wait`.

A device works through what it is given in order, while the host goes on. A read of a value, a result whose size depends
on values, and a plain copy stop the host until the device has caught up; in a round that costs more than the work. So
numbers go `there` and come `here` under way, and the host waits once, when there is nothing more to give.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def there(values: npt.NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Return values of the host on a device; what the device does next with them finds them there."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    return tensor.to(device, non_blocking=True)


def here(values: Tensor) -> Tensor:
    """Return values on the host: nobody may read them before `wait`, when they have arrived."""
    return values.to("cpu", non_blocking=True)


def wait(device: torch.device) -> None:
    """Wait until a device has done all that it was given, and all that is on its way from there has arrived."""
    if device.type != "cpu":
        torch.zeros((), device=device).item()


def surely(condition: Tensor) -> bool:
    """Say whether a condition holds everywhere and that is known without waiting for a device."""
    return condition.device.type == "cpu" and bool(condition.all())


def add_in_order(into: Tensor, places: Tensor, values: Tensor) -> None:
    """Add values [n, ...] to the rows of `into` at `places` [n]; repeated ones one after another, on every device.

    A plain scatter on a GPU would keep no order, and then not the last bits either.
    """
    if into.device.type == "cpu":
        into.index_add_(0, places, values)
    else:
        into.index_put_((places,), values, accumulate=True)
