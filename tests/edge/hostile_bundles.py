"""Small bundles that make a device do too much: each is a shipped one after a change, packed to a few kilobytes."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.contract import bundles
from tests.edge.folders import edit_json, resign

STEP = "onnx/step.0.onnx"


def repeated(path: Path, piece: bytes, times: int) -> None:
    """Add the same bytes to the end of a file so many times."""
    with path.open("ab") as file:
        for _ in range(0, times, 1 << 20):
            file.write(piece * min(times, 1 << 20))


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def empty_nodes(bundle: Path, count: int = 16 << 20) -> None:
    """A step graph with so many nodes of nothing."""
    path = bundle / STEP
    path.write_bytes(b"\x08\x08" + b"\x3a" + varint(2 * count))
    repeated(path, b"\x0a\x00", count)


def wide_table(width: int) -> Callable[[Path], None]:
    """A table of int8 with such wide rows, all zeros."""

    def change(bundle: Path) -> None:
        items = bundles.ITEMS
        for name, array in (("item.i8", np.zeros((items, width), np.int8)), ("scale", np.ones(items, np.float32))):
            np.save(bundle / "index" / f"{name}.npy", array)
        table = {"name": "item", "dtype": "i8", "width": width, "path": "index/item.i8.npy", "scale": "index/scale.npy"}

        def config(record: dict[str, Any]) -> None:
            record["tables"] = [table]
            record["learning"]["tensors"][0]["shape"] = [items, width]

        edit_json(bundle / "config.json", config)
        (bundle / "index" / "item.f32.npy").unlink()

    return change


def worked(*nodes: onnx.NodeProto, held: tuple[onnx.TensorProto, ...] = ()) -> Callable[[Path], None]:
    """A step graph that works a tensor `w`, of one value, out of its labels, and adds it to the loss."""

    def change(bundle: Path) -> None:
        made = onnx.load(bundle / STEP)
        made.graph.initializer.extend(held)
        made.graph.node.append(helper.make_node("ReduceSum", ["label"], ["sum"], keepdims=0))
        made.graph.node.extend(nodes)
        last = next(node for node in made.graph.node if "loss" in node.output)
        last.output[list(last.output).index("loss")] = "own loss"
        made.graph.node.append(helper.make_node("Add", ["own loss", "w"], ["loss"]))
        (bundle / STEP).write_bytes(made.SerializeToString())

    return change


def shape(*extents: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(extents, np.int64), "extents")


SPLIT = worked(
    helper.make_node("Expand", ["sum", "extents"], ["wide"]),
    helper.make_node("SplitToSequence", ["wide"], ["pieces"], axis=0, keepdims=1),
    helper.make_node("SequenceAt", ["pieces", "place"], ["piece"]),
    helper.make_node("ReduceSum", ["piece"], ["w"], keepdims=0),
    held=(shape(4_000_000), numpy_helper.from_array(np.array(0, np.int64), "place")),
)


def product(side: int, kind: int = TensorProto.FLOAT) -> Callable[[Path], None]:
    """A step graph with one product of two matrices; of whole numbers it is a hundred times slower."""
    return worked(
        helper.make_node("Cast", ["sum"], ["number"], to=kind),
        helper.make_node("Expand", ["number", "extents"], ["wide"]),
        helper.make_node("MatMul", ["wide", "wide"], ["much"]),
        helper.make_node("ReduceSum", ["much"], ["few"], keepdims=0),
        helper.make_node("Cast", ["few"], ["w"], to=TensorProto.FLOAT),
        held=(shape(side, side),),
    )


SLOW = product(3200, TensorProto.INT64)


def spaces(path: str, megabytes: int) -> Callable[[Path], None]:
    """A JSON file with so much space at its end."""
    return lambda bundle: repeated(bundle / path, b" ", megabytes << 20)


def empty_files(bundle: Path, count: int = 300) -> None:
    (bundle / "more").mkdir()
    for number in range(count):
        (bundle / "more" / f"{number}").touch()


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a table of 60 x 800,000": wide_table(800_000),
    "a sequence of 4 M": SPLIT,
    "a product of 12000^2": product(12_000),
    "a slow product": SLOW,
    "ids with 60 MB of space": spaces("index/ids.json", 60),
    "300 empty files": empty_files,
}
LARGER: dict[str, Callable[[Path], None]] = {
    "16 M empty nodes": empty_nodes,
    "a table of 60 x 2,000,000": wide_table(2_000_000),
    "a config with 100 MB of space": spaces("config.json", 100),
}
"""Bundles by what they do; the larger ones take a while to make."""


def made(change: Callable[[Path], None], folder: Path) -> Path:
    """Return a zip of the changed bundle."""
    bundle = shutil.copytree(bundles.bundle("fedmf"), folder / "bundle")
    change(bundle)
    return packed(bundle, folder / "hostile.zip")


def packed(bundle: Path, archive: Path) -> Path:
    """List all that a folder has and pack it; the folder is gone then."""

    def listed(record: dict[str, Any]) -> None:
        roles = {entry["path"]: entry["role"] for entry in record["files"]}
        names = sorted(p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file())
        new = [name for name in names if name not in ("manifest.json", "manifest.sig.json")]
        record["files"] = [{"path": n, "size": 0, "sha256": "0" * 64, "role": roles.get(n, "table")} for n in new]

    edit_json(bundle / "manifest.json", listed)
    resign(bundle)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(bundle.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(bundle).as_posix())
    shutil.rmtree(bundle)
    return archive
