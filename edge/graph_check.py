"""A graph is looked at before onnxruntime sees it: it may do what our exporter writes, and nothing else.

No control flow, no graphs within graphs, no functions, no domains but the two below, no operator or attribute that is
not listed. What a listed operator costs while the graph runs, `edge.graph` bounds by memory and `edge.watch` by time.
While a graph loads neither is heard, since onnxruntime then computes what depends on no input: that is bounded here.

Owns: the list, and reading a graph as far as it needs. Does not own: files beside a graph (`edge.external`).
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.external import varint
from privacy.errors import InputError

MICROSOFT = "com.microsoft"
PLAIN = """Abs Add And CastLike Clip ConstantOfShape Div DynamicQuantizeLinear Equal Erf Exp Expand Floor Greater
GreaterOrEqual Identity Less LessOrEqual Log MatMul MatMulInteger Max Min Mul Neg Not Or Pow Range Reciprocal Relu
SequenceAt Sigmoid Sign Slice Softplus Sqrt Squeeze Sub Tanh Unsqueeze Where""".split()  # noqa: SIM905
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
        "SplitToSequence": frozenset({"axis", "keepdims"}),
        "Transpose": frozenset({"perm"}),
        "Trilu": frozenset({"upper"}),
    },
    MICROSOFT: {"MatMulNBits": frozenset({"K", "N", "accuracy_level", "bits", "block_size"})},
}
"""Operators by domain, with the attributes that they may have."""

FIELDS = {
    "model": {1, 2, 3, 4, 5, 6, 7, 8, 14},
    "graph": {1, 2, 5, 10, 11, 12, 13},
    "node": {1, 2, 3, 4, 5, 6, 7},
    "attribute": {1, 2, 3, 4, 5, 7, 8, 13, 20},
}
"""The fields of onnx.proto3 that a message may have: without training, functions, sparse tensors and inner graphs."""

MOST_NODES, MOST_TENSORS = 20_000, 20_000
MOST_NUMBERS = 4096  # of one attribute
MOST_FOLDED = 1 << 26  # values that onnxruntime may compute while it loads
KNOWN = 64  # whole numbers of a tensor that are looked at
Numbers = tuple[int, ...]
Fields = dict[int, list[Any]]


@dataclass
class Loading:
    """This is what is computed while a graph loads: sizes of tensors that depend on no input, and numbers in them."""

    sizes: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, Numbers] = field(default_factory=dict)
    inputs: dict[str, list[int | None]] = field(default_factory=dict)
    total: int = 0
    bounded: bool = True


def check_graph(path: Path) -> bool:
    """Say whether what onnxruntime computes while it loads the graph is known to be little.

    Raises `InputError` for a graph that has anything which is not on the list, and for a file that is not ONNX.
    """
    if not path.stat().st_size:
        return True
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            return _model(raw)
    except (IndexError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no graph for a device: {error}; export again, or do not use it") from error


def _model(raw: mmap.mmap) -> bool:
    model = _message(raw, "model", 0, len(raw))
    for start, stop in model.get(8, []):
        domain = _text(raw, _message(raw, "opset", start, stop), 1)
        if domain not in OPERATORS:
            raise ValueError(f"it has operators of domain {domain!r}")
    if len(model.get(7, [])) != 1:
        raise ValueError("it has not one graph")
    graph = _message(raw, "graph", *model[7][0])
    if len(graph.get(1, [])) > MOST_NODES or len(graph.get(5, [])) > MOST_TENSORS:
        raise ValueError(f"it has more than {MOST_NODES:,} nodes or {MOST_TENSORS:,} tensors")
    loading = Loading()
    for span in graph.get(11, []):
        loading.inputs.update([_shape(raw, span)])
    for span in graph.get(5, []):
        name, size, numbers = _tensor(raw, span)
        loading.sizes[name] = size
        if numbers is not None:
            loading.numbers[name] = numbers
    for span in graph.get(1, []):
        _node(raw, span, loading)
    return loading.bounded and loading.total <= MOST_FOLDED


def _node(raw: mmap.mmap, span: tuple[int, int], loading: Loading) -> None:
    """Check a node, and what it comes to while the graph loads."""
    node = _message(raw, "node", *span)
    kind, domain = _text(raw, node, 4), _text(raw, node, 7)
    allowed = OPERATORS.get(domain, {}).get(kind)
    if allowed is None:
        raise ValueError(
            f"it has the operator {domain + '.' if domain else ''}{kind!r}, which no graph of a device has"
        )
    made: tuple[int, Numbers | None] | None = None
    for start, stop in node.get(5, []):
        attribute = _message(raw, "attribute", start, stop)
        name = _text(raw, attribute, 1)
        if name not in allowed:
            raise ValueError(f"its {kind} has the attribute {name!r}, which no graph of a device has")
        found = _attribute(raw, attribute)
        made = found if kind == "Constant" else made
    inputs = [raw[start:stop].decode("utf-8") for start, stop in node.get(1, [])]
    outputs = [raw[start:stop].decode("utf-8") for start, stop in node.get(2, [])]
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
    """Return at most how many values a tensor has in the larger of two shapes."""
    size = _by_shape(numbers[1]) if len(numbers) == 2 else None
    return None if size is None else size * sizes[0]


def _counted(sizes: list[int], numbers: list[Numbers | None]) -> int | None:
    """Return how many whole numbers a range has."""
    ends = [only[0] for only in numbers if only is not None and len(only) == 1]
    return max((ends[1] - ends[0]) // ends[2], 0) + 1 if len(ends) == 3 and ends[2] else None


def _padded(sizes: list[int], numbers: list[Numbers | None]) -> int | None:
    """Return at most how many values a tensor has with others around it."""
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


def _attribute(raw: mmap.mmap, attribute: Fields) -> tuple[int, Numbers | None]:
    """Return how many values an attribute has, and its whole numbers where they are some."""
    if sum(len(attribute.get(n, [])) for n in (2, 3, 4, 5)) > 1:
        raise ValueError("an attribute has more than one value")
    if 5 in attribute:
        _, size, numbers = _tensor(raw, attribute[5][0])
        return size, numbers
    whole: list[int] = []
    for entry in attribute.get(8, []):
        whole += [_signed(n) for n in _packed(raw, entry)] if isinstance(entry, tuple) else [_signed(entry)]
    floats = sum((e[1] - e[0]) // 4 if isinstance(e, tuple) else 1 for e in attribute.get(7, []))
    if max(len(whole), floats) > MOST_NUMBERS:
        raise ValueError(f"an attribute has more than {MOST_NUMBERS:,} numbers")
    return max(len(whole), floats, 1), tuple(whole) if 8 in attribute and len(whole) <= KNOWN else None


def _tensor(raw: mmap.mmap, span: tuple[int, int]) -> tuple[str, int, Numbers | None]:
    """Return a tensor's name, how many values it says it has, and its whole numbers where they are few."""
    tensor = _message(raw, "tensor", *span)
    dims: list[int] = []
    for entry in tensor.get(1, []):
        dims += _packed(raw, entry) if isinstance(entry, tuple) else [entry]
    size = math.prod(dims)
    if len(dims) > 8 or any(dim >> 40 for dim in dims) or size >> 40:
        raise ValueError("it has a tensor of no such shape")
    numbers = None
    if tensor.get(2) == [7] and len(tensor.get(9, [])) == 1 and size <= KNOWN:
        start, stop = tensor[9][0]
        if stop - start == 8 * size:
            numbers = tuple(int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(start, stop, 8))
    return _text(raw, tensor, 8), size, numbers


def _shape(raw: mmap.mmap, span: tuple[int, int]) -> tuple[str, list[int | None]]:
    """Return the name of an input and its extents, None for any."""
    value = _message(raw, "value", *span)
    dims: list[int | None] = []
    at = value
    for step in (2, 1, 2):  # its type, the tensor's, the shape
        inner = at.get(step, [])
        if len(inner) != 1 or not isinstance(inner[0], tuple):
            return _text(raw, value, 1), [None]
        at = _message(raw, "type", *inner[0])
    for entry in at.get(1, []):
        found = _message(raw, "extent", *entry).get(1, [None])[0]
        dims.append(found if isinstance(found, int) else None)
    return _text(raw, value, 1), dims


def _message(raw: mmap.mmap, kind: str, start: int, stop: int) -> Fields:
    """Return the fields of a message by number: whole numbers, and where the bytes of others begin and end."""
    found: Fields = {}
    for number, value in _fields(raw, start, stop):
        if number not in FIELDS.get(kind, (number,)):
            raise ValueError(f"its {kind} has the field {number}, which no graph of a device has")
        found.setdefault(number, []).append(value)
    return found


def _fields(raw: mmap.mmap, at: int, stop: int) -> Iterator[tuple[int, int | tuple[int, int]]]:
    while at < stop:
        key, at = varint(raw, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(raw, at)
            yield number, value
            continue
        if wire == 2:
            size, at = varint(raw, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > stop:
            raise ValueError("a field is longer than its message")
        yield number, (at, at + size)
        at += size
    if at != stop:
        raise ValueError("a field is longer than its message")


def _packed(raw: mmap.mmap, span: tuple[int, int]) -> list[int]:
    out: list[int] = []
    at = span[0]
    while at < span[1]:
        if len(out) > MOST_NUMBERS:
            raise ValueError(f"it has a list of more than {MOST_NUMBERS:,} numbers")
        value, at = varint(raw, at)
        out.append(value)
    return out


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _text(raw: mmap.mmap, message: Fields, number: int) -> str:
    """Return a text field, empty where there is none; ValueError for two."""
    found = message.get(number, [])
    if len(found) > 1 or (found and not isinstance(found[0], tuple)):
        raise ValueError(f"a text is given {len(found)} times")
    return raw[found[0][0] : found[0][1]].decode("utf-8") if found else ""
