"""Classes choose among every variant of an export, with its size, its work, what it loses and what it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.manifest import TableType
from edge.scorer import BLOCK
from export.encoders import StagedEncoder, encoder_of
from export.folder import Kit
from export.quality import Judge, Quality
from export.quantise import table_fp16, table_int8
from export.variants import Candidate, GraphCost, Variant, variants_of

Tables = Mapping[str, npt.NDArray[Any]]


def candidates(kit: Kit, tables: Tables, texts: Sequence[str], judge: Judge | None) -> list[Candidate]:
    """Return all variants that differ in any file; without `judge` quality is not measured.

    `tables`: the unquantised ones, [items, width] each; `texts`: what the encoder read of each item.
    """
    out: list[Candidate] = []
    known = set()
    for variant in variants_of(list(kit.encoders)):
        what = (variant.encoder, *kit.paths(variant))
        if what in known:  # tables of token numbers are the same in every type
            continue
        known.add(what)
        form = kit.form(variant)
        fit = form is None or form.unfit is None
        out.append(
            Candidate(
                variant,
                kit.size(variant),
                (scoring_work(kit, variant), *([] if form is None else [form.work])),
                _quality(kit, tables, texts, variant, judge) if judge is not None and fit else None,
                None if form is None else form.unfit,
            )
        )
    return out


def scoring_work(kit: Kit, variant: Variant) -> GraphCost:
    """Count one pass over the catalogue: every dense matrix once per item, and the tables read once.

    Where a window of a session is read, once per position and block of items; then an item is one inner product."""
    specs, window = kit.model.program.specs, kit.model.program.window
    dense = sum(math.prod(s.shape) for s in specs.values() if s.kind == "dense" and len(s.shape) == 2)
    read = sum(kit.stage.files[table.path].size for table in kit.tables[variant.table])
    width = sum(table.width for table in kit.tables[variant.table])
    blocks = -(-kit.items // BLOCK)
    products = dense * kit.items if window is None else dense * window * blocks + width * kit.items
    return GraphCost(2.0 * products, float(read + 4 * dense))


def stored(table: npt.NDArray[Any], dtype: TableType) -> npt.NDArray[Any]:
    """Return what a device reads back from a table that is stored as `dtype`; token numbers as they are."""
    return _STORED[dtype](table)


def _in_bytes(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values, scale = table_int8(table)
    return values * scale[:, None]


_STORED: Mapping[TableType, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "f32": lambda table: table,
    "i32": lambda table: table,
    "f16": lambda table: table_fp16(table).astype(np.float32),
    "i8": _in_bytes,
}


def _quality(kit: Kit, tables: Tables, texts: Sequence[str], variant: Variant, judge: Judge) -> Quality:
    """Judge how the variant recommends; where it has an encoder, as if it had to read every item."""
    form, given = kit.form(variant), dict(tables)
    if form is not None:
        given |= {name: _read(kit, form, table, texts, judge) for name, table in tables.items() if _text(table, form)}
    types = {table.name: table.dtype for table in kit.tables[variant.table]}
    return judge.measure({name: stored(table, types[name]) for name, table in given.items()})


def _text(table: npt.NDArray[Any], form: StagedEncoder) -> bool:
    return table.dtype == np.float32 and table.shape[1] == form.record.width


def _read(
    kit: Kit, form: StagedEncoder, table: npt.NDArray[Any], texts: Sequence[str], judge: Judge
) -> npt.NDArray[np.float32]:
    out = table.copy()
    out[judge.items] = encoder_of(kit.stage, form.record).encode([texts[item] for item in judge.items])
    return out
