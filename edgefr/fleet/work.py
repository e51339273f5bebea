"""This module says what a round asks of the clients of a cohort."""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from edgefr.fleet.cost import Optimiser
from privacy.errors import InputError

Amount = int | float | npt.NDArray[np.generic]


@dataclass(frozen=True)
class Work:
    """This is a round's work per client: each amount is one number for the cohort or an array [C], in its order.

    `steps` optimiser steps of `examples_per_step` examples; `flops_per_example` of one forward pass;
    `trained_parameters` change, `resident_parameters` are in memory (trained ones included); `activation_bytes` are
    kept for the backward pass; `bytes_down`, `bytes_up` travel, of the latter `message_bytes` in a message. `passes`:
    forward and backward in forward passes, 3, or 2 where frozen weights need no gradients (LoRA). `width`: hidden
    width, which decides the share of the peak rate (small layers: 128).

    Raises `InputError` for a negative amount, one that is not finite, or a `passes` or `width` of zero.
    """

    steps: Amount
    examples_per_step: Amount
    flops_per_example: Amount
    trained_parameters: Amount
    resident_parameters: Amount
    activation_bytes: Amount
    bytes_down: Amount
    bytes_up: Amount
    message_bytes: Amount = 0.0
    optimiser: Optimiser = "sgd"
    passes: float = 3.0
    width: float = 128.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "optimiser":
                if value not in ("sgd", "adam"):
                    raise InputError(f"work: optimiser is 'sgd' or 'adam', got {value!r}")
            elif not (np.all(np.isfinite(value)) and np.all(np.asarray(value) >= 0)):
                raise InputError(f"work: {field.name} must be finite and not negative")
        if self.passes == 0 or self.width == 0:
            raise InputError("work: passes and width must be above 0")
