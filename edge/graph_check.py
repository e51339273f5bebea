"""A graph is looked at before onnxruntime sees it: it may do what our exporter writes, and nothing else.

No control flow, no graphs within graphs, no functions, no sequences, no domains but the two below, no operator or
attribute that is not listed, and no tensor in another file than the one that it is given. What a listed operator costs
while the graph runs, `edge.graph` bounds by memory and by time. While a graph loads neither is heard,
since onnxruntime then computes what depends on no input: that is bounded here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edge.protobuf import MOST_NUMBERS, Fields, Span, Wire, signed, spanned

MICROSOFT = "com.microsoft"
PLAIN = """Abs Add And CastLike Clip ConstantOfShape Div DynamicQuantizeLinear Equal Erf Exp Expand Floor Greater
GreaterOrEqual Identity Less LessOrEqual Log MatMul MatMulInteger Max Min Mul Neg Not Or Pow Range Reciprocal Relu
Sigmoid Sign Slice Softplus Sqrt Squeeze Sub Tanh Unsqueeze Where""".split()  # noqa: SIM905
REDUCTIONS = ["ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"]
OPERATORS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "": {
        **{name: frozenset[str]() for name in PLAIN},
        **{name: frozenset({"keepdims", "noop_with_empty_axes"}) for name in REDUCTIONS},
        **{name: frozenset({"axis"}) for name in ("Concat", "Gather", "GatherElements", "LogSoftmax", "Softmax")},
        "Cast": frozenset({"to"}),
        "CumSum": frozenset({"exclusive", "reverse"}),
        "Constant": frozenset({"value", "value_float", "value_floats", "value_int", "value_ints"}),
        "GatherND": frozenset({"batch_dims"}),
        "Gemm": frozenset({"alpha", "beta", "transA", "transB"}),
        "LayerNormalization": frozenset({"axis", "epsilon", "stash_type"}),
        "Pad": frozenset({"mode"}),
        "Reshape": frozenset({"allowzero"}),
        "ScatterElements": frozenset({"axis", "reduction"}),
        "ScatterND": frozenset({"reduction"}),
        "Shape": frozenset({"start", "end"}),
        "Transpose": frozenset({"perm"}),
        "Trilu": frozenset({"upper"}),
    },
    MICROSOFT: {"MatMulNBits": frozenset({"K", "N", "accuracy_level", "bits", "block_size"})},
}
"""Operators by domain, with the attributes that they may have."""

FIELDS = {
    kind: frozenset(numbers)
    for kind, numbers in {
        "model": {1, 2, 3, 4, 5, 6, 7, 8, 14},
        "opset": {1, 2},
        "entry": {1, 2},
        "graph": {1, 2, 5, 10, 11, 12, 13},
        "node": {1, 2, 3, 4, 5, 6, 7},
        "attribute": {1, 2, 3, 4, 5, 7, 8, 13, 20},
        "tensor": {1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14},
        "value": {1, 2, 3},
        "type": {1, 6},
        "array": {1, 2},
        "shape": {1},
        "extent": {1, 2, 3},
    }.items()
}
"""The fields of onnx.proto3 that a message may have: without training, functions, sparse tensors and inner graphs."""

MOST_NODES, MOST_TENSORS = 20_000, 20_000
MOST_FOLDED = 1 << 26  # values that onnxruntime may compute while it loads
MOST_PACKED = 1 << 20  # bytes of a tensor's values that are not as they lie in memory, of which 1 may become 8
KNOWN = 64  # whole numbers of a tensor that are looked at
TYPES = {1: "<f4", 2: "|u1", 3: "|i1", 6: "<i4", 7: "<i8", 10: "<f2", 11: "<f8"}
"""Types of tensors that may lie beside a graph."""

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Outside:
    """This is a tensor that lies in the file beside a graph."""

    dtype: str
    shape: tuple[int, ...]
    offset: int

    def of(self, name: str, data: bytes | memoryview) -> npt.NDArray[np.generic]:
        """Return the tensor in the file's bytes; ValueError where they are too few."""
        dtype = np.dtype(self.dtype)
        if self.offset + math.prod(self.shape) * dtype.itemsize > len(data):
            raise ValueError(f"its weights end before its tensor {name!r:.80}")
        found = np.frombuffer(data, dtype, math.prod(self.shape), self.offset).reshape(self.shape)
        return np.require(found, requirements="A")  # no processor takes all numbers from anywhere


@dataclass
class Loading:
    """This is what a graph has to load: sizes of tensors that depend on no input, numbers in them, and what is outside.

    `small`: whether what onnxruntime computes of them while it loads is known to be little.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, Numbers] = field(default_factory=dict)
    inputs: dict[str, list[int | None]] = field(default_factory=dict)
    outside: dict[str, Outside] = field(default_factory=dict)
    total: int = 0
    bounded: bool = True

    @property
    def small(self) -> bool:
        return self.bounded and self.total <= MOST_FOLDED


def check_graph(content: bytes, data: str | None = None) -> Loading:
    """Return what a graph has to load. `data`: name of the file beside it that its tensors may lie in (None: of none).

    Raises ValueError for a graph that has anything which is not on the list, and for bytes that are not ONNX.
    """
    loading, wire = Loading(), Wire(content, FIELDS)
    if not content:
        return loading
    model = wire.message("model", (0, len(content)))
    for entry in model.get(14, []):
        wire.message("entry", entry)
    for entry in model.get(8, []):
        domain = wire.text(wire.message("opset", entry), 1)
        if domain not in OPERATORS:
            raise ValueError(f"it has operators of domain {domain!r}")
    if len(model.get(7, [])) != 1:
        raise ValueError("it has not one graph")
    graph = wire.message("graph", model[7][0])
    if len(graph.get(1, [])) > MOST_NODES or len(graph.get(5, [])) > MOST_TENSORS:
        raise ValueError(f"it has more than {MOST_NODES:,} nodes or {MOST_TENSORS:,} tensors")
    for number in (12, 13, 11):
        shapes = [_shape(wire, span) for span in graph.get(number, [])]
    loading.inputs.update(shapes)
    for span in graph.get(5, []):
        _held(wire, span, loading, data)
    for span in graph.get(1, []):
        _node(wire, span, loading)
    return loading


def _held(wire: Wire, span: int | Span, loading: Loading, data: str | None) -> None:
    tensor = wire.message("tensor", span)
    name, dims, numbers = _tensor(wire, tensor)
    if name in loading.sizes:
        raise ValueError(f"it has the tensor {name!r:.80} twice")
    loading.sizes[name] = math.prod(dims)
    if numbers is not None:
        loading.numbers[name] = numbers
    found = _entries(wire, tensor)
    if not found and tensor.get(14, [0]) == [0]:
        return
    if data is None or found.get("location") != data:
        may = "no file" if data is None else f"{data} alone"
        raise ValueError(f"it refers to {found.get('location', '')!r:.80}, but may refer to {may}")
    (kind,), offset = tensor.get(2, [0]), found.get("offset", "0")
    if kind not in TYPES or not offset.isdecimal() or len(offset) > 15:
        raise ValueError(f"its weights have no tensor such as {name!r:.80}")
    loading.outside[name] = Outside(TYPES[kind], tuple(dims), int(offset))


def _entries(wire: Wire, tensor: Fields) -> dict[str, str]:
    """Return what a tensor says of where it lies outside; nothing where it does not. ValueError for a key twice."""
    entries = [wire.message("entry", entry) for entry in tensor.get(13, [])]
    found = {wire.text(entry, 1): wire.text(entry, 2) for entry in entries}
    if len(found) < len(entries):
        raise ValueError("a tensor says twice where it lies")
    return found


def _node(wire: Wire, span: int | Span, loading: Loading) -> None:
    node = wire.message("node", span)
    kind, domain = wire.text(node, 4), wire.text(node, 7)
    allowed = OPERATORS.get(domain, {}).get(kind)
    if allowed is None:
        raise ValueError(
            f"it has the operator {domain + '.' if domain else ''}{kind!r}, which no graph of a device has"
        )
    made: tuple[int, Numbers | None] | None = None
    for entry in node.get(5, []):
        attribute = wire.message("attribute", entry)
        name = wire.text(attribute, 1)
        if name not in allowed:
            raise ValueError(f"its {kind} has the attribute {name!r}, which no graph of a device has")
        found = _attribute(wire, attribute)
        made = found if kind == "Constant" else made
    inputs, outputs = ([wire.string(name) for name in node.get(number, [])] for number in (1, 2))
    fold(loading, kind, [name for name in inputs if name], outputs, made)


def fold(
    loading: Loading, kind: str, inputs: list[str], outputs: list[str], made: tuple[int, Numbers | None] | None
) -> None:
    """Follow what a node makes while the graph loads: nothing, unless all that it reads is known then."""
    if kind == "Shape":
        shape = loading.inputs.get(inputs[0]) if inputs else None
        if shape is not None and None in shape:
            return  # it depends on an input's size
        made = KNOWN, None
    elif kind != "Constant":
        if not inputs or any(name not in loading.sizes for name in inputs):
            return
        made = _size(loading, kind, inputs)
    size, numbers = made or (1, None)
    loading.total += size
    for name in outputs:
        loading.sizes[name] = size
        if numbers is not None:
            loading.numbers[name] = numbers


def _by_shape(shape: Numbers | None) -> int | None:
    return None if shape is None else math.prod(max(abs(n), 1) for n in shape)


def _expanded(sizes: list[int], numbers: list[Numbers | None]) -> int | None:
    size = _by_shape(numbers[1]) if len(numbers) == 2 else None
    return None if size is None else size * sizes[0]


def _counted(sizes: list[int], numbers: list[Numbers | None]) -> int | None:
    ends = [only[0] for only in numbers if only is not None and len(only) == 1]
    return max((ends[1] - ends[0]) // ends[2], 0) + 1 if len(ends) == 3 and ends[2] else None


def _padded(sizes: list[int], numbers: list[Numbers | None]) -> int | None:
    pads = numbers[1] if len(numbers) > 1 else None
    return None if pads is None else sizes[0] * math.prod(1 + max(n, 0) for n in pads)


SAME = frozenset(["Cast", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Trilu", "Unsqueeze"])
MOVED = frozenset(["Slice", "Transpose", "Trilu"])
SHAPED: Mapping[str, Callable[[list[int], list[Numbers | None]], int | None]] = {
    "ConstantOfShape": lambda sizes, numbers: _by_shape(numbers[0]),
    "Expand": _expanded,
    "Range": _counted,
    "Pad": _padded,
}
"""At most how many values an operator makes, whose output is as large as numbers in its inputs say; None: not known."""


def _size(loading: Loading, kind: str, inputs: list[str]) -> tuple[int, Numbers | None]:
    """Return at most how many values a node makes of known tensors, and its whole numbers where they are known."""
    sizes = [loading.sizes[name] for name in inputs]
    first = loading.numbers.get(inputs[0])
    if kind in SAME:
        return sizes[0], None if kind in MOVED else first
    if kind == "Concat":
        parts = [loading.numbers.get(name) for name in inputs]
        known = None if None in parts else tuple(n for part in parts for n in part or ())
        return sum(sizes), known
    if kind in SHAPED:
        numbers = [loading.numbers.get(name) for name in inputs]
        size = SHAPED[kind](sizes, numbers)
        loading.bounded &= size is not None
        return size or 1, None
    return math.prod(max(size, 1) for size in sizes), None


def _attribute(wire: Wire, attribute: Fields) -> tuple[int, Numbers | None]:
    if sum(len(attribute.get(n, [])) for n in (2, 3, 4, 5)) > 1:
        raise ValueError("an attribute has more than one value")
    if 5 in attribute:
        tensor = wire.message("tensor", attribute[5][0])
        if 13 in tensor or 14 in tensor:
            raise ValueError("an attribute refers to a file")
        _, dims, numbers = _tensor(wire, tensor)
        return math.prod(dims), numbers
    whole = [signed(n) for n in wire.numbers(attribute, 8)]
    floats = sum(1 if isinstance(e, int) else (e[1] - e[0]) // 4 for e in attribute.get(7, []))
    if floats > MOST_NUMBERS:
        raise ValueError(f"an attribute has more than {MOST_NUMBERS:,} numbers")
    return max(len(whole), floats, 1), tuple(whole) if 8 in attribute and len(whole) <= KNOWN else None


def _tensor(wire: Wire, tensor: Fields) -> tuple[str, list[int], Numbers | None]:
    """Return a tensor's name, the shape it says it has, and its whole numbers where they are few."""
    dims = wire.numbers(tensor, 1)
    if len(dims) > 8 or any(dim >> 40 for dim in dims) or math.prod(dims) >> 40:
        raise ValueError("it has a tensor of no such shape")
    packed = [entry for number in (4, 5, 7, 10, 11) for entry in tensor.get(number, [])]
    if sum(entry[1] - entry[0] for entry in packed if not isinstance(entry, int)) > MOST_PACKED:
        raise ValueError(f"it has a tensor of more than {MOST_PACKED:,} bytes that is not raw")
    numbers = None
    if tensor.get(2) == [7] and len(tensor.get(9, [])) == 1 and math.prod(dims) <= KNOWN:
        start, stop = spanned(tensor[9][0])
        if stop - start == 8 * math.prod(dims):
            values = (wire.content[at : at + 8] for at in range(start, stop, 8))
            numbers = tuple(int.from_bytes(value, "little", signed=True) for value in values)
    return wire.text(tensor, 8), dims, numbers


def _shape(wire: Wire, span: int | Span) -> tuple[str, list[int | None]]:
    at = value = wire.message("value", span)
    for number, kind in ((2, "type"), (1, "array"), (2, "shape")):
        inner = at.get(number, [])
        if len(inner) > 1:
            raise ValueError(f"an input has more than one {kind}")
        if not inner:
            return wire.text(value, 1), [None]
        at = wire.message(kind, inner[0])
    extents = (wire.message("extent", entry).get(1, [None])[0] for entry in at.get(1, []))
    return wire.text(value, 1), [extent if isinstance(extent, int) else None for extent in extents]
