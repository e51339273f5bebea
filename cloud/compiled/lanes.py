"""Lanes are as many numbers as one instruction takes, as a type of compiled functions: sums stay in registers.

A loop over arrays leaves it to the compiler whether it sees that they do not overlap; here nothing is left to it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from cloud.compiled import INLINED, LANES, compiled

F = np.float32
intrinsic: Any = extending.intrinsic
NUMBERS = ir.VectorType(ir.FloatType(), LANES)
WHOLE = ir.VectorType(ir.IntType(32), LANES)


class Lanes(types.Type):  # type: ignore[misc]
    """This is the type of `LANES` numbers, float32."""

    def __init__(self) -> None:
        super().__init__(name=f"lanes of {LANES} float32")


lanes = Lanes()


@register_model(Lanes)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, NUMBERS)


def _operator(symbol: Callable[[Any, Any], Any], instruction: str) -> None:
    """Let compiled functions take `symbol` between lanes: a product and its sum may be rounded once."""

    class _Template(ConcreteTemplate):  # type: ignore[misc]
        cases = (signature(lanes, lanes, lanes),)

    infer_global(symbol)(_Template)

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=("contract",))

    lower_builtin(symbol, Lanes, Lanes)(code)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_symbol, _instruction)


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Return where the numbers of an array begin at place `at` of all of them, row after row."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), NUMBERS.as_pointer())


@intrinsic
def load(context: Any, array: Any, at: Any) -> Any:
    """Return the lanes that begin at place `at` of a contiguous array, counted row after row."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_place(context, builder, signature.args[0], *arguments))
        value.align = 4
        return value

    return lanes(array, types.intp), code


@intrinsic
def store(context: Any, array: Any, at: Any, value: Any) -> Any:
    """Put lanes where `load` finds them."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(context, builder, signature.args[0], *arguments[:2])).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), code


@intrinsic
def spread(context: Any, number: Any) -> Any:
    """Return lanes that all are this number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = builder.insert_element(ir.Constant(NUMBERS, ir.Undefined), arguments[0], ir.IntType(32)(0))
        return builder.shuffle_vector(one, ir.Constant(NUMBERS, ir.Undefined), ir.Constant(WHOLE, [0] * LANES))

    return lanes(types.float32), code


@intrinsic
def total(context: Any, value: Any) -> Any:
    """Return the sum of lanes, halves added to each other."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (left,), count = arguments, LANES
        while count > 1:
            count //= 2
            half = ir.VectorType(ir.IntType(32), count)
            nothing = ir.Constant(left.type, ir.Undefined)
            parts = (ir.Constant(half, list(range(first, first + count))) for first in (0, count))
            left = builder.fadd(*(builder.shuffle_vector(left, nothing, part) for part in parts))
        return builder.extract_element(left, ir.IntType(32)(0))

    return types.float32(lanes), code


def _transposed(builder: Any, found: list[Any]) -> list[Any]:
    apart = LANES // 2
    while apart:  # halves of two that are so far apart change places
        for first in (i for i in range(LANES) if not i & apart):
            left, right = found[first], found[first + apart]
            for to, half in ((first, 0), (first + apart, apart)):
                places = [(k & ~apart) + half + (LANES if k & apart else 0) for k in range(LANES)]
                found[to] = builder.shuffle_vector(left, right, ir.Constant(WHOLE, places))
        apart //= 2
    return found


def _eight(context: Any, builder: Any, kinds: Any, rows: Any, places: Any, more: Any) -> list[Any]:
    """Return where `LANES` rows begin: numbers at `places`, and so many `more`."""
    numbers = context.make_array(kinds[1])(context, builder, places).data
    size = more.type
    begins = [builder.load(builder.gep(numbers, [size(x)])) for x in range(LANES)]
    return [_place(context, builder, kinds[0], rows, builder.add(begin, more)) for begin in begins]


@intrinsic
def rows_to_columns(context: Any, rows: Any, places: Any, more: Any, out: Any, at: Any, step: Any) -> Any:
    """Take lanes of `rows` at each of `LANES` places and so many `more`, and store them as columns of `out`.

    The first numbers of all of them are stored at place `at`, the second ones `step` further on, and so on.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, places, more, out, at, step = arguments
        found = []
        for place in _eight(context, builder, signature.args[:2], rows, places, more):
            found.append(builder.load(place))
            found[-1].align = 4
        for column in _transposed(builder, found):
            builder.store(column, _place(context, builder, signature.args[3], out, at)).align = 4
            at = builder.add(at, step)
        return context.get_dummy_value()

    return types.void(rows, places, types.intp, out, types.intp, types.intp), code


@intrinsic
def add_columns_to_rows(context: Any, rows: Any, places: Any, more: Any, columns: Any, at: Any, step: Any) -> Any:
    """Add to what `rows_to_columns` takes what stands where it stores it, row after row."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, places, more, columns, at, step = arguments
        found = []
        for _ in range(LANES):
            found.append(builder.load(_place(context, builder, signature.args[3], columns, at)))
            found[-1].align = 4
            at = builder.add(at, step)
        begins = _eight(context, builder, signature.args[:2], rows, places, more)
        for place, value in zip(begins, _transposed(builder, found), strict=True):
            now = builder.load(place)
            now.align = 4
            builder.store(builder.fadd(now, value), place).align = 4
        return context.get_dummy_value()

    return types.void(rows, places, types.intp, columns, types.intp, types.intp), code


def _selected(relation: str) -> Any:
    """Return an intrinsic that takes, where `a` stands in an ordered relation to `b`, `c`, elsewhere `d`."""

    @intrinsic
    def select(context: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            left, right, then, other = arguments
            return builder.select(builder.fcmp_ordered(relation, left, right), then, other)

        return lanes(lanes, lanes, lanes, lanes), code

    return select


where_above: Any = _selected(">")
"""where_above(a, b, c, d): `c` where a > b, else `d`; so where a or b is no number."""

where_not_above: Any = _selected("<=")
"""where_not_above(a, b, c, d): `c` where a <= b, else `d`; so where a or b is no number."""


@intrinsic
def root(context: Any, value: Any) -> Any:
    """Return the square roots of lanes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(NUMBERS, [NUMBERS])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{LANES}f32")
        return builder.call(function, arguments)

    return lanes(lanes), code


@intrinsic
def _power_of_two(context: Any, value: Any) -> Any:
    """Return 2^k for whole k from -126 to 127."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = builder.fptosi(arguments[0], WHOLE)
        biased = builder.add(whole, ir.Constant(WHOLE, [127] * LANES))
        return builder.bitcast(builder.shl(biased, ir.Constant(WHOLE, [23] * LANES)), NUMBERS)

    return lanes(lanes), code


@compiled
def exp(x: Any) -> Any:
    """Return e^x of lanes, to 2 units in the last place (Cephes, expf); beyond 87 it is that of 87."""
    most = spread(F(87))
    y = where_above(x, most, most, x)
    y = where_not_above(y, spread(F(-87)), spread(F(-87)), y)  # what is no number stays none
    k = (y * spread(F(1.44269504)) + spread(F(12582912))) - spread(F(12582912))
    y = (y - k * spread(F(0.693359375))) + k * spread(F(2.12194440e-4))
    p = spread(F(1.9875691500e-4)) * y + spread(F(1.3981999507e-3))
    p = p * y + spread(F(8.3334519073e-3))
    p = p * y + spread(F(4.1665795894e-2))
    p = p * y + spread(F(1.6666665459e-1))
    p = p * y + spread(F(5.0000001201e-1))
    return (p * y * y + y + spread(F(1))) * _power_of_two(k)


@intrinsic
def _add_product(context: Any, sums: Any, left: Any, right: Any) -> Any:
    """Return sums + left x right, each rounded."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, left, right = arguments
        return builder.fadd(sums, builder.fmul(left, right))

    return lanes(lanes, lanes, lanes), code


def _dot(rows: Any, i: Any, vector: Any, width: Any) -> Any:
    """Return the product of row `i` of `rows` [n, width] and `vector` [width], added up in `LANES` sums, float32."""
    sums, at, whole = spread(F(0)), i * width, width - width % LANES
    for k in range(0, whole, LANES):
        sums = _add_product(sums, load(rows, at + k), load(vector, k))
    out = total(sums)
    for k in range(whole, width):
        out += rows[i, k] * vector[k]
    return out


dot: Any = compiled(_dot, INLINED)
