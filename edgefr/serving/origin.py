"""Devices of several classes start from their own bundles, and an update takes each of them to the same tensors.

Classes differ by memory in untrained vectors and encoders; trained values are the run's in all bundles, so their
devices answer the same rounds.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from edge.bundle import Bundle
from edge.catalogue import open_table
from edge.clients import read_tensors
from edge.delta import Delta, write_delta
from edge.learning import Learning
from export.sign import sealed
from privacy.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Origin:
    """This is where a bundle's devices start: their learning, `users` by client number, the bundle's shared tensors.

    `key` signs updates (None: nobody does).
    """

    bundle: str
    variant: str
    learning: Learning
    users: dict[int, str]
    items: int
    dense: dict[str, Floats]
    tables: dict[str, Floats]
    key: Ed25519PrivateKey | None = None

    @classmethod
    def of(cls, bundle: Bundle, users: dict[int, str], key: Ed25519PrivateKey | None = None) -> Origin:
        """Read it from a bundle, for these users of its run. Raises `InputError` for one that only recommends."""
        learning, manifest = bundle.config.learning, bundle.manifest
        if learning is None:
            raise InputError(f"the devices of {bundle.root} cannot learn: it was exported without step graphs")
        trained = {t.name for t in learning.tensors if t.place == "shared" and t.kind == "rows"}
        tables = {t.name: open_table(bundle, t)(slice(None)) for t in bundle.config.tables if t.name in trained}
        shared, items = read_tensors(bundle, bundle.config.shared), manifest.item_count
        return cls(manifest.bundle_id, manifest.variant, learning, users, items, shared, dict(tables), key)

    @property
    def bundles(self) -> dict[str, str]:
        return dict.fromkeys(self.users.values(), self.bundle)

    def check(self, shared: Mapping[str, torch.Tensor]) -> None:
        """Raise `InputError` unless a run's shared tensors are the bundle's: the first round has no update."""
        for name, value in {**self.dense, **self.tables}.items():
            if name not in shared or not np.array_equal(shared[name].cpu().numpy(), value):
                raise InputError(
                    f"the bundle's {name} is not the run's, or in fewer bits: its devices would start elsewhere; give "
                    "a class whose item vectors are f32 (edgefr export prints them), or export the run again"
                )

    def update(self, number: int, shared: Mapping[str, torch.Tensor]) -> bytes:
        """Return the file that takes a device to `shared` after round `number`; empty for the bundle's own tensors."""
        if number == self.learning.round:
            return b""
        dense = {name: shared[name].cpu().numpy() for name in self.dense}
        rows = {}
        for name, before in self.tables.items():
            now = shared[name].cpu().numpy()
            items = np.flatnonzero((now != before).any(axis=1))
            rows[name] = (items.astype(np.int64), now[items])
        delta = Delta(self.bundle, self.learning.round, number, dense, rows)
        with tempfile.TemporaryDirectory() as folder:
            content = write_delta(Path(folder) / "update.safetensors", delta).read_bytes()
        return content if self.key is None else sealed(content, self.key)


@dataclass(frozen=True)
class Origins:
    """These are the classes whose devices answer the same rounds, by name.

    Raises `InputError` for classes that learn differently, and for a user of two.
    """

    classes: Mapping[str, Origin]

    def __post_init__(self) -> None:
        (name, first), *others = self.classes.items()
        for other, origin in others:
            if (origin.learning, origin.items) != (first.learning, first.items):
                raise InputError(
                    f"the bundles of {name} and {other} do not learn alike, so their devices cannot answer the same "
                    "rounds; export the run again, all classes at once"
                )
        if len(self.users) < sum(len(origin.users) for origin in self.classes.values()):
            raise InputError("a user has devices of two classes, and would answer each round twice")

    @property
    def learning(self) -> Learning:
        return next(iter(self.classes.values())).learning

    @property
    def items(self) -> int:
        return next(iter(self.classes.values())).items

    @cached_property
    def users(self) -> dict[int, str]:
        return {client: user for origin in self.classes.values() for client, user in origin.users.items()}

    @cached_property
    def bundles(self) -> dict[str, str]:
        return {user: bundle for origin in self.classes.values() for user, bundle in origin.bundles.items()}

    @property
    def bundle(self) -> str:
        """Return the only bundle's id, or a digest of all."""
        return together(origin.bundle for origin in self.classes.values())

    @property
    def mixed(self) -> bool:
        return len({origin.bundle for origin in self.classes.values()}) > 1

    def check(self, shared: Mapping[str, torch.Tensor]) -> None:
        """Raise `InputError` where devices of any class would start elsewhere than the run is."""
        for name, origin in self.classes.items():
            try:
                origin.check(shared)
            except InputError as error:
                raise InputError(f"class {name}: {error}") from error

    def update(self, number: int, shared: Mapping[str, torch.Tensor]) -> dict[str, bytes]:
        """Return by bundle the file that takes its devices to `shared` after round `number`."""
        return {origin.bundle: origin.update(number, shared) for origin in self.classes.values()}

    def facts(self) -> dict[str, dict[str, str | int]]:
        """Return what a summary says of each class: its bundle, what its memory allows, its devices."""
        return {
            name: {"bundle": origin.bundle, "variant": origin.variant, "devices": len(origin.users)}
            for name, origin in self.classes.items()
        }


def together(bundles: Iterable[str]) -> str:
    """Return the only bundle's id, or the sha256 of all ids, sorted, a line each."""
    ids = sorted(set(bundles))
    return ids[0] if len(ids) == 1 else hashlib.sha256("\n".join(ids).encode()).hexdigest()
