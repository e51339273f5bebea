"""Item vectors of a device that reads texts itself are made once per update of the model and kept beside its state."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge import npy
from edge.graph import Graph
from edge.scorer import Rows
from privacy.errors import InputError
from privacy.files import write_atomic

Floats = npt.NDArray[np.float32]
TITLES = 64  # read at once: bounds memory whatever the catalogue's size


def read_vectors(graph: Graph, shared: Mapping[str, Floats], tables: Mapping[str, Rows], items: int) -> Floats:
    """Return vectors of the catalogue, float32 [items, d], by shared tensors; `InputError` if they are not finite."""
    dense = {f"shared.{name}": value for name, value in shared.items()}
    wanted = [name.removeprefix("items.") for name in graph.inputs if name.startswith("items.")]
    parts = []
    for start in range(0, items, TITLES):
        part = slice(start, min(start + TITLES, items))
        parts.append(graph.run(dense | {f"items.{name}": tables[name](part) for name in wanted}))
    vectors = np.concatenate(parts)
    if len(vectors) != items or not np.isfinite(vectors).all():
        raise InputError(f"{graph.path} gives vectors that are not finite numbers, one row per item; undo the update")
    return vectors


class Kept:
    """These are vectors on disk under the digest of their bundle and its tensors; damaged ones are made again."""

    def __init__(self, folder: Path, bundle_id: str) -> None:
        self._folder, self._bundle_id = folder, bundle_id

    def of(self, shared: Mapping[str, Floats]) -> Floats | None:
        """Return the vectors of these tensors; None when they are not there."""
        for path in self._folder.glob(f"{self._start(shared)}*.npy"):
            with suppress(OSError, ValueError):
                found: Floats = npy.mapped(path)
                if found.dtype == np.float32 and found.ndim == 2 and path.stem.endswith(_digest(found)):
                    return found
        return None

    def keep(self, shared: Mapping[str, Floats], vectors: Floats) -> None:
        """Keep them in place of all others. Where they cannot be written they are made again the next time."""
        path = self._folder / f"{self._start(shared)}{_digest(vectors)}.npy"
        with suppress(InputError, OSError):
            write_atomic(path, lambda file: np.save(file, vectors, allow_pickle=False), mode=0o600)
            for other in self._folder.glob("vectors-*.npy"):
                if other != path:
                    other.unlink(missing_ok=True)

    def _start(self, shared: Mapping[str, Floats]) -> str:
        """Return how names of files with these tensors' vectors start; they end with a digest of the vectors."""
        whole = hashlib.sha256(self._bundle_id.encode())
        for name in sorted(shared):
            whole.update(name.encode())
            whole.update(np.asarray(shared[name], order="C").tobytes())
        return f"vectors-{whole.hexdigest()[:16]}-"


def _digest(vectors: Floats) -> str:
    return hashlib.sha256(np.asarray(vectors, order="C").data).hexdigest()[:16]
