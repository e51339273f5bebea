"""The files that bundles are made of, built once for all device classes and staged with size and digest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from edge.encoder import TextEncoder
from edge.manifest import Encoder, File, Pooling, Role, Table, TableType
from export.clients import Users, as_float32
from export.graphs import encoder_graph, load_encoder, score_graph
from export.quantise import cosine, encoder_int8, table_fp16, table_int8
from export.trace import TOLERANCE
from privacy.errors import InputError
from privacy.files import sha256_of, write_atomic

SCORE, IDS, TOKENIZER = "onnx/score.onnx", "index/ids.json", "tokenizer.json"
SHARED, INIT = "adapters/shared.safetensors", "private/init.safetensors"
ENCODER_TYPES: tuple[Literal["f32", "i8"], ...] = ("f32", "i8")
TABLE_TYPES: tuple[TableType, ...] = ("f32", "f16", "i8")
SAMPLE = 32  # titles that encoders are compared on
Floats = npt.NDArray[np.float32]


@dataclass
class Stage:
    """A folder of finished files, each under the name it has in a bundle."""

    root: Path
    files: dict[str, File] = field(default_factory=dict)

    def add(self, path: str, role: Role, content: bytes | str | Callable[[BinaryIO], object]) -> File:
        """Write one file and note its size and digest."""
        where = write_atomic(self.root / path, content)
        self.files[path] = File(path=path, size=where.stat().st_size, sha256=sha256_of(where), role=role)
        return self.files[path]


def stage_tables(stage: Stage, tables: Mapping[str, npt.NDArray[Any]]) -> dict[TableType, list[Table]]:
    """Every per-item table in three types: index/<table>.<type>.npy, int8 with index/<table>.scale.npy.

    A table of token numbers is the same in all of them.
    """
    staged: dict[TableType, list[Table]] = {dtype: [] for dtype in TABLE_TYPES}
    for name, table in tables.items():
        if table.dtype == np.int32:
            whole = Table(name=name, dtype="i32", width=table.shape[1], path=f"index/{name}.i32.npy", scale=None)
            stage.add(whole.path, "table", _npy(table))
            for dtype in TABLE_TYPES:
                staged[dtype].append(whole)
            continue
        small, scale = table_int8(table)
        stage.add(f"index/{name}.scale.npy", "scale", _npy(scale))
        values: dict[str, npt.NDArray[Any]] = {"f32": table, "f16": table_fp16(table), "i8": small}
        for dtype in TABLE_TYPES:
            path = f"index/{name}.{dtype}.npy"
            stage.add(path, "table", _npy(values[dtype]))
            scales = f"index/{name}.scale.npy" if dtype == "i8" else None
            staged[dtype].append(Table(name=name, dtype=dtype, width=table.shape[1], path=path, scale=scales))
    return staged


@dataclass(frozen=True)
class EncoderParts:
    """A staged encoder; per weight type its config entry and its mean cosine to torch on titles."""

    width: int
    parameters: int
    records: dict[str, Encoder]
    cosine: dict[str, float | None]


def stage_encoder(stage: Stage, folder: Path, pooling: Pooling, max_tokens: int, titles: Sequence[str]) -> EncoderParts:
    """Encoder graphs in fp32 and int8, and the tokenizer; both graphs are compared with torch on titles.

    Raises `InputError` for a folder without tokenizer.json or one whose vectors on the device differ from
    torch's by more than 1e-4 in fp32.
    """
    if not (folder / TOKENIZER).is_file():
        raise InputError(f"{folder} has no {TOKENIZER}, which a device needs; save its tokenizer as a fast one")
    step = max(1, len(titles) // SAMPLE)
    texts = [title for title in titles[::step] if title.strip()][:SAMPLE]
    expected, parameters = _torch_vectors(folder, pooling, max_tokens, texts)
    graph = encoder_graph(folder, pooling)
    stage.add(TOKENIZER, "tokenizer", (folder / TOKENIZER).read_bytes())
    stage.add("onnx/encoder.f32.onnx", "encoder", graph.SerializeToString(deterministic=True))
    stage.add("onnx/encoder.i8.onnx", "encoder", encoder_int8(graph, stage.root))
    parts = EncoderParts(expected.shape[1], parameters, {}, {})
    for dtype in ENCODER_TYPES:
        path = f"onnx/encoder.{dtype}.onnx"
        got = TextEncoder(stage.root / TOKENIZER, stage.root / path, parts.width, max_tokens).encode(texts)
        if dtype == "f32" and np.abs(got - expected).max(initial=0) > TOLERANCE:
            raise InputError(f"{folder}: its {TOKENIZER} and its tokenizer disagree; save the tokenizer again")
        parts.cosine[dtype] = float(cosine(got, expected).mean()) if texts else None
        parts.records[dtype] = Encoder(
            path=path,
            tokenizer=TOKENIZER,
            dtype=dtype,
            width=parts.width,
            pooling=pooling,
            max_tokens=max_tokens,
        )
    return parts


def stage_scoring(stage: Stage, program: Any, shared: Mapping[str, Any], users: Users, seed: int) -> None:
    """The score graph, the shared dense tensors it takes, and a new device's private tensors."""
    import torch
    from safetensors.numpy import save

    dense = {name: as_float32(tensor) for name, tensor in shared.items() if program.specs[name].kind == "dense"}
    stage.add(SHARED, "shared", save(dense))
    fresh = program.init_private(seed, torch.tensor([len(users.ids)]))  # the client after the last simulated one
    stage.add(INIT, "private", save({name: as_float32(fresh[name][0]) for name in users.private}))
    graph = score_graph(program, {*shared, *users.private})
    stage.add(SCORE, "score", graph.SerializeToString(deterministic=True))


def stage_catalogue(
    stage: Stage, ids: Sequence[str], titles: Sequence[str], offered: Sequence[int] | None = None
) -> None:
    """The items' ids and titles, and which are `offered` if not all are.

    Raises `InputError` when ids repeat or do not match the titles.
    """
    if not ids or len(ids) != len(titles):
        raise InputError(f"a catalogue needs one title per item: {len(ids)} ids, {len(titles)} titles")
    if len(set(ids)) != len(ids):
        raise InputError("item ids repeat; give every item its own id")
    content = {"ids": list(ids), "titles": list(titles)}
    if offered is not None:
        content["offered"] = [ids[item] for item in offered]
    stage.add(IDS, "ids", json.dumps(content, ensure_ascii=False))


def item_tables(program: Any, shared: Mapping[str, Any], items: int) -> dict[str, npt.NDArray[Any]]:
    """Tables a bundle caches: frozen ones and the shared rows, [items, width] each; float32, token numbers int32."""
    rows = {name: shared[name] for name, spec in program.specs.items() if spec.kind == "rows" and name in shared}
    tables: dict[str, npt.NDArray[Any]] = {
        name: as_float32(table) if table.is_floating_point() else table.cpu().numpy().astype(np.int32)
        for name, table in (program.frozen | rows).items()
    }
    for name, table in tables.items():
        if table.ndim != 2 or len(table) != items:
            raise InputError(f"table '{name}' is {list(table.shape)}, but the catalogue has {items} items")
    return tables


def _torch_vectors(folder: Path, pooling: Pooling, max_tokens: int, texts: Sequence[str]) -> tuple[Floats, int]:
    """Vectors of the texts through transformers and torch, [n, width], and the number of parameters."""
    import torch
    from transformers import AutoTokenizer

    module = load_encoder(folder, pooling)
    if not 3 <= max_tokens <= module.longest:
        raise InputError(f"max_tokens must be from 3 to {module.longest}, what {folder} can read; got {max_tokens}")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with torch.no_grad():
        tokens = [tokenizer(t, truncation=True, max_length=max_tokens, return_tensors="pt") for t in (*texts, "a")]
        rows = [module(t["input_ids"], t["attention_mask"]).numpy() for t in tokens]
    return np.concatenate(rows)[:-1], sum(p.numel() for p in module.parameters())


def _npy(array: npt.NDArray[Any]) -> Callable[[BinaryIO], object]:
    return lambda file: np.save(file, array, allow_pickle=False)
