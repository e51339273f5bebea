"""Per-item tables on the device: read from disk as asked, int8 rows turned back into float32."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge import npy
from edge.bundle import Bundle
from edge.manifest import Table
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
TYPES = {"i8": np.int8, "f16": np.float16, "f32": np.float32, "i32": np.int32}


@dataclass(frozen=True)
class ItemTable:
    """This is one table of the catalogue: `values` [items, width] on disk, `scale` [items] for int8."""

    values: npt.NDArray[np.generic]
    scale: Floats | None

    def rows(self, items: slice | npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return rows of these items [n, width] as float32; token numbers as they are."""
        if self.values.dtype == np.int32:
            return np.asarray(self.values[items])
        rows = np.array(self.values[items], np.float32)
        if self.scale is not None:
            rows *= self.scale[items, None]
        return rows


def open_table(bundle: Bundle, table: Table) -> ItemTable:
    """Map a table's files; `InputError` naming the file when type or shape differ from the manifest."""
    items = bundle.manifest.item_count
    values = load_array(bundle, table.path, TYPES[table.dtype], (items, table.width))
    if table.dtype != "i8":
        return ItemTable(values, None)
    if table.scale is None:
        raise InputError(f"bundle {bundle.root}: int8 table {table.path} has no scale file; export again")
    return ItemTable(values, np.asarray(load_array(bundle, table.scale, np.float32, (items,))))


def load_array(bundle: Bundle, path: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Load a memory-mapped .npy file of exactly this type and shape."""
    file = bundle.file(path)
    return npy.exactly(file, f"bundle {bundle.root}: {path}", dtype, shape, bundle.entry(file))
