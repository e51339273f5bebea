"""These are the files that bundles are made of, but for encoders, built once for all device classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edge.manifest import Table, TableType
from export.graphs import EXPLAIN, VECTORS, Gathered, explain_graph, score_graph
from export.model import TrainedModel, as_float32
from export.quantise import table_fp16, table_int8
from export.staged_files import Staging
from privacy.errors import InputError
from privacy.files import packed
from privacy.plain_text import plain

SCORE, IDS = "onnx/score.onnx", "index/ids.json"
SHARED, INIT = "adapters/shared.safetensors", "private/init.safetensors"
TITLES = 64  # read at once
TABLE_TYPES: tuple[TableType, ...] = ("f32", "f16", "i8")


def stage_tables(
    stage: Staging, tables: Mapping[str, npt.NDArray[Any]], exact: Collection[str] = ()
) -> dict[TableType, list[Table]]:
    """Stage every per-item table in three types: index/<table>.<type>.npy, int8 with index/<table>.scale.npy.

    A table of token numbers is the same in all of them, and so are those in `exact`: devices that train a table start
    from the server's values, not from rounded ones.
    """
    staged: dict[TableType, list[Table]] = {dtype: [] for dtype in TABLE_TYPES}
    for name, table in tables.items():
        if table.dtype == np.int32 or name in exact:
            kept: TableType = "i32" if table.dtype == np.int32 else "f32"
            whole = Table(name=name, dtype=kept, width=table.shape[1], path=f"index/{name}.{kept}.npy", scale=None)
            stage.add(whole.path, "table", npy(table))
            for dtype in TABLE_TYPES:
                staged[dtype].append(whole)
            continue
        small, scale = table_int8(table)
        stage.add(f"index/{name}.scale.npy", "scale", npy(scale))
        values: dict[str, npt.NDArray[Any]] = {"f32": table, "f16": table_fp16(table), "i8": small}
        for dtype in TABLE_TYPES:
            path = f"index/{name}.{dtype}.npy"
            stage.add(path, "table", npy(values[dtype]))
            scales = f"index/{name}.scale.npy" if dtype == "i8" else None
            staged[dtype].append(Table(name=name, dtype=dtype, width=table.shape[1], path=path, scale=scales))
    return staged


def stage_scoring(stage: Staging, model: TrainedModel, seed: int) -> None:
    """Stage the score graph, the shared dense tensors it takes, and a new device's private tensors."""
    import torch

    program, shared = model.program, model.shared
    dense = {name: as_float32(tensor) for name, tensor in shared.items() if program.specs[name].kind == "dense"}
    stage.add(SHARED, "shared", packed(dense))
    fresh = program.init_private(
        seed, torch.tensor([len(model.names.users)])
    )  # the client after the last simulated one
    stage.add(INIT, "private", packed({name: as_float32(fresh[name][0]) for name in model.private}))
    graph = score_graph(program, {*shared, *model.private})
    stage.add(SCORE, "score", graph.SerializeToString(deterministic=True))
    if program.explains:
        weights = explain_graph(program, {*shared, *model.private})
        stage.add(EXPLAIN, "score", weights.SerializeToString(deterministic=True))


def stage_catalogue(
    stage: Staging, ids: Sequence[str], titles: Sequence[str], offered: Sequence[int] | None = None
) -> None:
    """Stage the items' ids and titles, and which are `offered` if not all are.

    Of titles what a device would not show is left out. Raises `InputError` when ids repeat, cannot be shown or do not
    match the titles.
    """
    if not ids or len(ids) != len(titles):
        raise InputError(f"a catalogue needs one title per item: {len(ids)} ids, {len(titles)} titles")
    if len(set(ids)) != len(ids):
        raise InputError("item ids repeat; give every item its own id")
    if (odd := next((item for item in ids if not item.isprintable()), None)) is not None:
        raise InputError(f"item id {odd!r} has signs that cannot be shown; give it another")
    content = {"ids": list(ids), "titles": [plain(title) for title in titles]}
    if offered is not None:
        content["offered"] = [ids[item] for item in offered]
    stage.add(IDS, "ids", json.dumps(content, ensure_ascii=False))


def item_tables(model: TrainedModel) -> dict[str, npt.NDArray[Any]]:
    """Return the tables that a bundle caches, frozen ones and shared rows: [items, width], float32 or tokens int32.

    Where clients read texts, the items' vectors by the shared tensors are one more.
    """
    program, shared, items = model.program, model.shared, len(model.names.items)
    rows = {name: shared[name] for name, spec in program.specs.items() if spec.kind == "rows" and name in shared}
    tables: dict[str, npt.NDArray[Any]] = {
        name: as_float32(table) if table.is_floating_point() else table.cpu().numpy().astype(np.int32)
        for name, table in (program.frozen | rows).items()
    }
    for name, table in tables.items():
        if table.ndim != 2 or len(table) != items:
            raise InputError(f"table '{name}' is {list(table.shape)}, but the catalogue has {items} items")
    return tables | ({VECTORS: read_vectors(model)} if program.constants else {})


def read_vectors(model: TrainedModel) -> npt.NDArray[np.float32]:
    """Return vectors of the whole catalogue by a client's own language model, [items, d]; a few titles at a time."""
    import torch

    program = model.program
    on_host = {name: tensor.detach().cpu().float() for name, tensor in model.shared.items()}
    parts = zip(*(table.cpu().split(TITLES) for table in program.frozen.values()), strict=True)
    with torch.no_grad():
        blocks = [
            program.vectors(on_host, Gathered(list(zip(program.frozen.values(), part, strict=True)))) for part in parts
        ]
    return as_float32(torch.cat(blocks))


def npy(array: npt.NDArray[Any]) -> Callable[[BinaryIO], object]:
    """Return what writes an array to a .npy file."""
    return lambda file: np.save(file, array, allow_pickle=False)
