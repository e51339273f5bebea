"""Columns are checked and turned into numbers, block by block: ids, ratings and parts of a split.

Owns: valid ids, ratings and parts, and the row number of a bad one. Does not own: times (`times`). Columns keep their
file's types; text is parsed where numbers are wanted. No row becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgefr.data.files.table import Opened, printable
from privacy.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_ID = 64
"""The characters that an id may have."""

MOST_BLOCKS = 1001

_NO_BLOCK = "data_options.columns.block=-"
_ID = f"an id is 1 to {LONGEST_ID} printable characters, or a whole number"
_PARTS = {
    **dict.fromkeys(("train", "training", "tr", "0"), 0),
    **dict.fromkeys(("valid", "validation", "val", "dev", "1"), 1),
    **dict.fromkeys(("test", "testing", "te", "2"), 2),
}


def ids(table: Opened, row: int, column: str, values: pa.Array) -> pa.DictionaryArray:
    """Return ids as numbers of a dictionary: of whole numbers (int64), or of stripped text.

    `row` is the number of the block's first row. The dictionary may repeat an id. Raises `InputError` for a bad id.
    """
    import pyarrow as pa

    if values.null_count:
        table.refuse(row, column, values.is_null().to_numpy(zero_copy_only=False), values, _ID)
    if pa.types.is_nested(values.type):
        raise table.fault(row, column, values[0].as_py(), f"{_ID}, not {values.type}")
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    names, places = coded.dictionary, coded.indices.cast(pa.int32())
    if names.null_count:  # a dictionary may hold nothing as a value
        _refuse_names(table, row, column, names.is_null(), coded, _ID)
    whole = _whole(table, row, column, names, coded)
    return pa.DictionaryArray.from_arrays(places, _text(table, row, column, names, coded) if whole is None else whole)


def _whole(table: Opened, row: int, column: str, names: pa.Array, coded: pa.DictionaryArray) -> pa.Array | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(names.type):  # what a data frame makes of whole numbers where some are missing
        whole = pc.and_(pc.is_finite(names), pc.equal(pc.floor(names), names))
        whole = pc.and_(whole, pc.less(pc.abs(names), 2.0**53))
        _refuse_names(table, row, column, pc.invert(whole), coded, _ID)
        return pc.cast(pc.if_else(whole, names, 0.0), pa.int64())
    if not pa.types.is_integer(names.type) or pa.types.is_uint64(names.type):  # hashes may use all 64 bits
        return None
    return converted(table, row, column, names, lambda part: part.cast(pa.int64()), _ID)


def _text(table: Opened, row: int, column: str, names: pa.Array, coded: pa.DictionaryArray) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "string" not in str(names.type) and not pa.types.is_uint64(names.type):
        raise table.fault(row, column, coded[0].as_py() if len(coded) else names.type, f"{_ID}, not {names.type}")
    _check_encoding(table, row, column, names, coded)
    names = pc.utf8_trim_whitespace(names.cast(pa.string()))
    length = pc.utf8_length(names)
    odd = pc.or_(pc.or_(pc.equal(length, 0), pc.greater(length, LONGEST_ID)), pc.invert(pc.utf8_is_printable(names)))
    _refuse_names(table, row, column, odd, coded, _ID)
    return names


def _check_encoding(table: Opened, row: int, column: str, names: pa.Array, coded: pa.DictionaryArray) -> None:
    """Raise `InputError` for text that is not UTF-8, which not all readers look at."""
    import pyarrow as pa

    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        entry = _first_failing(names, lambda part: part.validate(full=True))
        at = int((coded.indices.to_numpy(zero_copy_only=False) == entry).argmax())
        raise InputError(f"{table.name}: row {row + at}, column {printable(column, 40)}: it is not UTF-8") from None


def _refuse_names(
    table: Opened, row: int, column: str, bad: pa.BooleanArray, coded: pa.DictionaryArray, rule: str
) -> None:
    """Raise `InputError` for the first row whose entry of the dictionary is bad; entries that no row has may be."""
    wrong = bad.to_numpy(zero_copy_only=False)
    if wrong.any():
        rows = wrong[coded.indices.to_numpy(zero_copy_only=False)]
        if rows.any():
            at = int(rows.argmax())
            raise table.fault(row + at, column, coded[at].as_py(), rule)


NOTHING = ("", "na", "n/a", "nan", "null", "none", "\\n", "<na>")
"""What files write, in lower case, where there is no value."""


def missing(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return whether each value stands for none, bool [n].

    >>> import pyarrow
    >>> missing(pyarrow.array(["u1", "NaN", None, " "])).tolist()
    [False, True, True, True]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        inside = missing(values.dictionary)
        nothing = values.indices.is_null().to_numpy(zero_copy_only=False)
        codes = values.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return nothing | (inside[codes] if len(inside) else True)
    if pa.types.is_floating(values.type):
        return values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    found = values.is_null()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        try:
            plain = pc.utf8_lower(pc.utf8_trim_whitespace(values))
        except pa.ArrowInvalid:  # no UTF-8, which `ids` says
            return found.to_numpy(zero_copy_only=False)
        named = pc.is_in(plain, value_set=pa.array(NOTHING, plain.type))
        found = pc.or_(found, pc.fill_null(named, True))
    return found.to_numpy(zero_copy_only=False)


def numbers(
    table: Opened, row: int, column: str, values: pa.Array, rule: str, decimal: str = "."
) -> npt.NDArray[np.float64]:
    """Return numbers, float64 [n]. Raises `InputError` by the `rule` for what is missing, infinite or no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = decoded(table, row, column, values, rule)
    if values.null_count:
        table.refuse(row, column, values.is_null().to_numpy(zero_copy_only=False), values, rule)
    if pa.types.is_boolean(values.type) or pa.types.is_nested(values.type) or pa.types.is_temporal(values.type):
        raise table.fault(row, column, values[0].as_py(), f"{rule}, and this column is of {values.type}")
    plain = trimmed(values)
    if "string" in str(plain.type):
        if decimal == ",":
            plain = pc.replace_substring(plain, ",", ".")
        elif pc.any(pc.match_substring_regex(plain, r"^[+-]?[0-9]+,[0-9]+$")).as_py():
            rule = f"{rule}; where fractions follow a comma, set data_options.decimal=,"
    found = converted(table, row, column, plain, lambda part: part.cast(pa.float64(), safe=False), rule)
    out: npt.NDArray[np.float64] = found.to_numpy(zero_copy_only=False)
    table.refuse(row, column, ~np.isfinite(out), values, rule)
    return out


def parts(table: Opened, row: int, column: str, values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the parts of a split: 0 training, 1 validation, 2 test, uint8 [n]."""
    import pyarrow as pa

    coded = ids(table, row, column, values)
    known = [_PARTS.get(name.lower()) for name in coded.dictionary.cast(pa.string()).to_pylist()]
    bad = np.array([number is None for number in known])
    where = coded.indices.to_numpy()
    rule = "a part is train, valid or test; if the column is no split, set data_options.columns.split=-"
    table.refuse(row, column, bad[where], coded, rule)
    return np.array([number or 0 for number in known], np.uint8)[where]


def blocks(table: Opened, row: int, column: str, values: pa.Array) -> npt.NDArray[np.int16]:
    """Return numbers of blocks, int16 [n]."""
    rule = f"a block is a whole number from 0 to {MOST_BLOCKS - 1}; if the column is none, set {_NO_BLOCK}"
    found = numbers(table, row, column, values, rule)
    table.refuse(row, column, (found != np.floor(found)) | (found < 0) | (found >= MOST_BLOCKS), values, rule)
    return found.astype(np.int16)


def decoded(table: Opened, row: int, column: str, values: pa.Array, rule: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(values.type):
        return values
    names = values.dictionary
    if "string" in str(names.type):  # a long one, repeated in all rows, would fill the memory
        names = names.cast(pa.large_string())
        _refuse_names(table, row, column, pc.fill_null(pc.greater(pc.binary_length(names), 100), False), values, rule)
    return values.dictionary_decode()


def trimmed(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    return pc.utf8_trim_whitespace(values)


def converted(
    table: Opened, row: int, column: str, values: pa.Array, convert: Callable[[Any], Any], rule: str
) -> pa.Array:
    """Return `convert(values)`; where that fails, raise an `InputError` that names the first row at fault."""
    import pyarrow as pa

    try:
        return convert(values)
    except pa.ArrowException:
        at = _first_failing(values, convert)
        raise table.fault(row + at, column, values[at].as_py(), rule) from None


def _first_failing(values: pa.Array, convert: Callable[[Any], Any]) -> int:
    """Return the place of the first value that `convert` fails for."""
    import pyarrow as pa

    low, high = 0, len(values)  # the first `low` values convert, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values.slice(low, middle - low))
            low = middle
        except pa.ArrowException:
            high = middle
    return low
