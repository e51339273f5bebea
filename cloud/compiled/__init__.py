"""Functions of hot loops are compiled to machine code at their first call, and kept on disk for later processes.

The disk knows of a function what stands in its folder, and in this one: what it calls has to stand there too, or here.

Owns: when and where machine code is kept. Does not own: the loops themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import njit, types
from numba.core import event
from numba.extending import intrinsic

from privacy.files import cache_dir
from privacy.progress import aside

OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": False}
"""Every operation is the one that is written, in its order: the same bits on every machine.

What is not said here is taken from who calls it first: from a function whose sums may be reordered, that too.
"""

REORDERED: dict[str, Any] = {**OPTIONS, "fastmath": {"contract", "reassoc", "nsz", "arcp"}}
"""Sums may be taken in another order; numbers that are not finite stay what they are, so that divergence is seen."""
KEPT = "to machine code, once on this machine"
NOT_KEPT = "to machine code, in every process: no folder to keep it in can be written"


class Told(event.Listener):  # type: ignore[misc]
    """This says that a function is being compiled, which takes seconds; one that was kept on disk is not.

    `note`: what is said beside it.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.done = 0
        self.note = KEPT

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__qualname__ in self.names:
            self._tell()

    def on_end(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__qualname__ in self.names:
            self.done += 1
            self._tell()

    def _tell(self) -> None:
        aside("compile", min(self.done, len(self.names)), len(self.names), self.note)


TOLD = Told()
event.register("numba:compile", TOLD)

LANES = 8
"""Sums that a product of vectors is added up in, on every machine: wider registers hold two, narrower ones a half."""


def compiled(function: Callable[..., Any], options: dict[str, Any] = OPTIONS) -> Callable[..., Any]:
    """Return a function of arrays and numbers compiled to machine code, for one thread.

    It is kept in the user's cache; where that cannot be written, every process compiles it again.
    """
    TOLD.names.append(function.__qualname__)
    folder = Path(function.__code__.co_filename).parent
    files = (*sorted(Path(__file__).parent.glob("*.py")), *sorted(folder.glob("*.py")))
    content = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_dir() / "compiled" / content.hexdigest()[:16])
    try:
        kept: Callable[..., Any] = njit(cache=True, **options)(function)
    except (RuntimeError, OSError):  # there is nowhere to keep it
        kept, TOLD.note = njit(**options)(function), NOT_KEPT
    finally:
        config.CACHE_DIR = before
    return kept


def reordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled as by `compiled`, whose sums may be taken in another order on another machine."""
    return compiled(function, REORDERED)


@intrinsic
def _dot(context: Any, rows: Any, i: Any, vector: Any, width: Any) -> Any:
    """Return the product of row `i` of `rows` [n, width] and `vector` [width], added up in `LANES` sums, float32.

    A loop over numbers would be one sum, value after value, or as many as this machine likes.
    """
    number, wide = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table = context.make_array(signature.args[0])(context, builder, arguments[0])
        other = context.make_array(signature.args[2])(context, builder, arguments[2])
        size = arguments[3]
        left, right = builder.gep(table.data, [builder.mul(arguments[1], size)]), other.data
        whole = builder.sub(size, builder.srem(size, size.type(LANES)))

        def at(pointer: Any, k: Any, kind: Any) -> Any:
            value = builder.load(builder.bitcast(builder.gep(pointer, [k]), kind.as_pointer()))
            value.align = 4
            return value

        def over(start: Any, stop: Any, step: int, first: Any, kind: Any) -> Any:
            before, head = builder.block, builder.append_basic_block("head")
            body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
            builder.branch(head)
            builder.position_at_end(head)
            k, total = builder.phi(size.type), builder.phi(kind)
            k.add_incoming(start, before)
            total.add_incoming(first, before)
            builder.cbranch(builder.icmp_signed("<", k, stop), body, after)
            builder.position_at_end(body)
            more = builder.fadd(total, builder.fmul(at(left, k, kind), at(right, k, kind)))
            k.add_incoming(builder.add(k, size.type(step)), body)
            total.add_incoming(more, body)
            builder.branch(head)
            builder.position_at_end(after)
            return total

        lanes, count = over(size.type(0), whole, LANES, ir.Constant(wide, [0.0] * LANES), wide), LANES
        while count > 1:  # halves are added to each other
            count //= 2
            nothing = ir.Constant(lanes.type, ir.Undefined)
            half = ir.VectorType(ir.IntType(32), count)
            parts = (ir.Constant(half, list(range(first, first + count))) for first in (0, count))
            lanes = builder.fadd(*(builder.shuffle_vector(lanes, nothing, part) for part in parts))
        return over(whole, size, 1, builder.extract_element(lanes, ir.IntType(32)(0)), number)

    return types.float32(rows, types.intp, vector, types.intp), code


@intrinsic
def _float_of(context: Any, bits: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), code


dot: Any = _dot
float_of: Any = _float_of
