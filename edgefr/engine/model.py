"""A model at one moment: the tensors that scores are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from edgefr.engine.tables import Own, tables_of, tensors_of
from export.program import LocalProgram

Flat = dict[str, Tensor]
"""Tensors by place and name: `shared.item`, `private.user`, `tables.own.item`, `reply.valid`."""


@dataclass(frozen=True)
class Model:
    """These are a model's tensors: `shared`, `private` of all clients, clients' own item rows (`tables`).

    `replies`: answers that devices got before they recommend, which FCUCR alone has.
    """

    shared: dict[str, Tensor]
    private: dict[str, Tensor]
    tables: dict[str, Own] = field(default_factory=dict)
    replies: dict[str, Tensor] = field(default_factory=dict)

    def flat(self) -> Flat:
        return {
            **{f"shared.{name}": value for name, value in self.shared.items()},
            **{f"private.{name}": value for name, value in self.private.items()},
            **{f"tables.{name}": value for name, value in tensors_of(self.tables).items()},
            **{f"reply.{name}": value for name, value in self.replies.items()},
        }

    def copy(self, program: LocalProgram) -> Model:
        """The model as it is now, whatever happens to its tensors later."""
        own = tables_of(program, tensors_of(self.tables))  # copies, both of what is kept and of what is sent
        shared, private, replies = (
            {name: value.clone() for name, value in tensors.items()}
            for tensors in (self.shared, self.private, self.replies)
        )
        return Model(shared, private, own, replies)

    @classmethod
    def of(
        cls, flat: Mapping[str, Tensor | np.ndarray], program: LocalProgram, device: torch.device | None = None
    ) -> Model:
        """Return the model of `flat` tensors or a checkpoint's arrays; shared ones go to `device`."""
        tensors = {name: torch.as_tensor(value) for name, value in flat.items()}
        shared = part(tensors, "shared.")
        if device is not None:
            shared = {name: value.to(device) for name, value in shared.items()}
        return cls(
            shared, part(tensors, "private."), tables_of(program, part(tensors, "tables.")), part(tensors, "reply.")
        )


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, without it.

    >>> sorted(part({"shared.item": torch.zeros(1), "pool": torch.zeros(1)}, "shared."))
    ['item']
    """
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
