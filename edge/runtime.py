"""This asks whether the installed onnxruntime can read a bundle's graphs, before it is handed one.

The table of what a release reads is the release itself: it is given a graph of one Identity node that we write, with
the file format and operator set that the bundle names.
"""

import re
from functools import cache

from edge.limited_process import NOW
from edge.manifest import Onnx
from privacy.errors import InputError


def check_runtime(where: str, onnx: Onnx) -> None:
    """Raise `InputError` when the installed onnxruntime is older than `min_ort` or cannot read `opset` and `ir`.

    >>> check_runtime("bundle x", Onnx(opset=18, ir=8, min_ort="1.17"))
    """
    from edge.ort import ort

    if version(ort.__version__) < version(onnx.min_ort):
        raise InputError(
            f"{where} needs onnxruntime {onnx.min_ort} or newer, installed is {ort.__version__}; update onnxruntime"
        )
    if not reads(onnx.ir, onnx.opset):
        raise InputError(
            f"{where} has graphs of opset {onnx.opset} and IR {onnx.ir}, which onnxruntime {ort.__version__} does not "
            "read; update onnxruntime, or export for an older one"
        )


def version(text: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, missing ones 0.

    >>> version("1.17") < version("1.17.1") < version("1.31.0.dev2")
    True
    """
    found = [int(number) for number in re.findall(r"\d+", text)[:3]]
    return tuple(found + [0] * (3 - len(found)))


@cache
def reads(ir: int, opset: int) -> bool:
    """Say whether the installed onnxruntime loads the smallest graph of this file format and operator set."""
    from edge.ort import ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        ort.InferenceSession(identity(ir, opset), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common class of their own
        if NOW.ram_mb is not None and not any(words in str(error) for words in ("opset", "IR version")):
            raise MemoryError from error
        return False
    return True


def identity(ir: int, opset: int) -> bytes:
    """Return y = x as an ONNX file: a protobuf of few fields (onnx.proto: ModelProto, GraphProto, NodeProto)."""
    kind = _part(1, _number(1, 1) + _part(2, _part(1, _number(2, 1))))  # tensor(float) of shape [1]
    node = _part(1, b"x") + _part(2, b"y") + _part(4, b"Identity")
    ends = _part(11, _part(1, b"x") + _part(2, kind)) + _part(12, _part(1, b"y") + _part(2, kind))
    graph = _part(1, node) + _part(2, b"probe") + ends
    return _number(1, ir) + _part(7, graph) + _part(8, _number(2, opset))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _part(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
