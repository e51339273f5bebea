"""A graph can have smaller weights: this says what an encoder's tables and matrices are stored as, and where.

    f16   half precision, read back into single: the same arithmetic, half the file
    i8    tables in int8 with a scale per row; matrices in int8 with a scale per column, multiplied in int8
    i4    tables as in i8; matrices in 4 bits with a scale per 32 values (com.microsoft MatMulNBits)

Inputs and outputs stay int64 and float32. Every form needs only what onnxruntime 1.17 has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from export.quantise import table_int8

Weights = Literal["f32", "f16", "i8", "i4"]
WEIGHTS: tuple[Weights, ...] = ("f32", "f16", "i8", "i4")
CONTRIB = "com.microsoft"
BLOCK = 32  # values of a column that share a scale in 4 bits
SHRINK = (1.0, 0.93, 0.86, 0.79)  # scales tried for a block, as shares of the one that loses no extreme
SMALL = 1024  # values; a smaller tensor stays what it is
MAPPED = 16384  # bytes; smaller tensors stay in the graph
PAGE = 4096  # bytes: every tensor beside the graph starts on a page of its own, so that it can be mapped
Floats = npt.NDArray[np.float32]


def stored_as(weights: Weights, graph: Any, scratch: Path) -> Any:
    """Return a new graph whose tables and matrices are stored as `weights`; `scratch` takes files in between."""
    from onnx import ModelProto

    out = ModelProto()
    out.CopyFrom(graph)
    if weights == "f16":
        _rewrite(out, "Gather", _half_table)
        _rewrite(out, "MatMul", _half_matrix)
    elif weights == "i8":
        _rewrite(out, "Gather", _int8_table)
        out = _int8_matrices(out, scratch)
    elif weights == "i4":
        _rewrite(out, "Gather", _int8_table)
        _rewrite(out, "MatMul", _nibble_matrix)
        out.opset_import.add(domain=CONTRIB, version=1)
    elif weights != "f32":
        raise ValueError(f"weights are stored as {', '.join(WEIGHTS)}, not as {weights}")
    return out


def beside(graph: Any, name: str) -> tuple[bytes, bytes]:
    """Return the graph with its large tensors in another file, `name`: the bytes of both.

    A runtime maps that file instead of reading it, so weights are not held twice while a model loads.
    """
    [small], data = beside_all([graph], name)
    return small, data


def beside_all(graphs: Sequence[Any], name: str) -> tuple[list[bytes], bytes]:
    """Return graphs with their large tensors in one other file: a tensor that several of them hold is in it once."""
    from onnx import ModelProto, TensorProto

    out, data, offsets = [], bytearray(), dict[bytes, int]()
    for graph in graphs:
        copy = ModelProto()
        copy.CopyFrom(graph)
        for tensor in copy.graph.initializer:
            content = tensor.raw_data
            if len(content) < MAPPED:
                continue
            if content not in offsets:
                data += bytes(-len(data) % PAGE)
                offsets[content] = len(data)
                data += content
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in {"location": name, "offset": offsets[content], "length": len(content)}.items():
                tensor.external_data.add(key=key, value=str(value))
        out.append(copy.SerializeToString(deterministic=True))
    return out, bytes(data)


def nibbles(matrix: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """A matrix [k, n] in 4 bits, as MatMulNBits reads it: packed [n, blocks, 16], scales [n * blocks].

    A value is (nibble - 8) times the scale of its block: 32 values of a column; the even one of a pair lies in the low
    half of a byte. Of four scales a block takes the one with the least squared error.

    >>> packed, scale = nibbles(np.array([[8.0], [-7.0]], np.float32))
    >>> hex(packed[0, 0, 0]), packed.shape, scale.tolist()
    ('0xf0', (1, 1, 16), [-1.0])
    """
    rows, columns = matrix.shape
    count = -(-rows // BLOCK)
    blocks = np.zeros((columns, count * BLOCK), np.float32)
    blocks[:, :rows] = matrix.T
    blocks = blocks.reshape(columns, count, BLOCK)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    best, scale, least = np.zeros_like(blocks), np.zeros_like(extreme), np.full_like(extreme, np.inf)
    for share in SHRINK:
        tried = (extreme * np.float32(share) / -8).astype(np.float32)
        safe = np.where(tried != 0, tried, np.float32(1))
        values = np.clip(np.rint(blocks / safe), -8, 7)
        error = ((values * tried - blocks) ** 2).sum(axis=2, keepdims=True)
        better = error < least
        best, scale, least = (np.where(better, a, b) for a, b in ((values, best), (tried, scale), (error, least)))
    whole = (best + 8).astype(np.uint8)
    packed: npt.NDArray[np.uint8] = whole[:, :, 0::2] + 16 * whole[:, :, 1::2]
    return packed, scale.reshape(-1).astype(np.float32)


def _rewrite(model: Any, kind: str, form: Callable[[Any, Floats, str], tuple[list[Any], dict[str, Any]]]) -> None:
    """Replace every large table (of Gather) or matrix (of MatMul) by what `form` makes of node, values and name.

    `form` gives nodes in place of the one, and tensors in place of the float ones.
    """
    from onnx import numpy_helper

    graph, at = model.graph, 0 if kind == "Gather" else 1
    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[Any] = []
    tensors: dict[str, Any] = {}
    gone = set()
    for node in graph.node:
        tensor = held.get(node.input[at]) if node.op_type == kind and len(node.input) > at else None
        values: npt.NDArray[Any] = numpy_helper.to_array(tensor) if tensor is not None else np.empty(0)
        if values.ndim != 2 or values.dtype != np.float32 or values.size < SMALL:
            nodes.append(node)
            continue
        assert tensor is not None
        replaced, added = form(node, values, tensor.name)
        nodes += replaced
        tensors |= added
        gone.add(tensor.name)
    kept = [t for t in graph.initializer if t.name not in gone or any(t.name in node.input for node in nodes)]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *(numpy_helper.from_array(array, name) for name, array in tensors.items())])


def _half_table(node: Any, values: Floats, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Gather rows of halves, then make singles of them: the table itself stays small in memory too."""
    from onnx import TensorProto
    from onnx.helper import make_node

    rows, out = f"{node.output[0]}.f16", node.output[0]
    taken = make_node("Gather", [f"{name}.f16", node.input[1]], [rows], axis=0)
    return [taken, make_node("Cast", [rows], [out], to=TensorProto.FLOAT)], {f"{name}.f16": _halves(values)}


def _half_matrix(node: Any, values: Floats, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Store a matrix as halves that are made single once, when the runtime loads it."""
    from onnx import TensorProto
    from onnx.helper import make_node

    single = f"{node.output[0]}.weight"
    product = make_node("MatMul", [node.input[0], single], list(node.output))
    cast = make_node("Cast", [f"{name}.f16"], [single], to=TensorProto.FLOAT)
    return [cast, product], {f"{name}.f16": _halves(values)}


def _int8_table(node: Any, values: Floats, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Gather int8 rows and their scales, and multiply."""
    from onnx import TensorProto
    from onnx.helper import make_node

    small, scale = table_int8(values)
    out, ids = node.output[0], node.input[1]
    return [
        make_node("Gather", [f"{name}.i8", ids], [f"{out}.i8"], axis=0),
        make_node("Cast", [f"{out}.i8"], [f"{out}.whole"], to=TensorProto.FLOAT),
        make_node("Gather", [f"{name}.scale", ids], [f"{out}.scale"], axis=0),
        make_node("Mul", [f"{out}.whole", f"{out}.scale"], [out]),
    ], {f"{name}.i8": small, f"{name}.scale": scale[:, None]}


def _nibble_matrix(node: Any, values: Floats, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Make the product with a matrix in 4 bits; activations in int8 (accuracy_level 4)."""
    from onnx.helper import make_node

    packed, scale = nibbles(values)
    rows, columns = values.shape
    product = make_node(
        "MatMulNBits",
        [node.input[0], f"{name}.i4", f"{name}.scale"],
        list(node.output),
        domain=CONTRIB,
        K=rows,
        N=columns,
        bits=4,
        block_size=BLOCK,
        accuracy_level=4,
    )
    return [product], {f"{name}.i4": packed, f"{name}.scale": scale}


def _int8_matrices(model: Any, scratch: Path) -> Any:
    """Quantise the matrices by onnxruntime's dynamic quantisation: unsigned, a scale and a zero per column.

    Signed ones come out wrong where a processor has no dot product of bytes (x86 before VNNI): sums of two products of
    an unsigned and a signed byte are kept in 16 bits there, and saturate.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: TID251

    import edge.ort  # noqa: F401 - before any module of onnxruntime

    path = scratch / "int8.onnx"
    with _no_advice():
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["MatMul"],
            weight_type=QuantType.QUInt8,
            per_channel=True,
            extra_options={"MatMulConstBOnly": True},
        )
    out = onnx.load(path)
    path.unlink()
    return out


@contextmanager
def _no_advice() -> Iterator[None]:
    """Hide onnxruntime's advice of a preparation step that folding has already done."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def _halves(values: Floats) -> npt.NDArray[np.float16]:
    return np.clip(values, -65504, 65504).astype(np.float16)
