"""Columns are checked and turned into numbers, block by block: ids, ratings and parts of a split.

Owns: valid ids, ratings and parts, and the row number of a bad one. Does not own: times (`times`). Columns keep their
file's types; text is parsed where numbers are wanted. No row becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.table import Column, first_failing, is_text

LONGEST_ID = 64
"""The characters that an id may have."""

MOST_BLOCKS = 1001

_ID = f"an id is 1 to {LONGEST_ID} printable characters, or a whole number"
PARTS = {
    **dict.fromkeys(("train", "training", "tr", "0"), 0),
    **dict.fromkeys(("valid", "validation", "val", "dev", "1"), 1),
    **dict.fromkeys(("test", "testing", "te", "2"), 2),
}
"""What a split calls its parts: 0 training, 1 validation, 2 test."""
A_PART = "a part is train, valid or test; if the column is no split, set data_options.columns.split=-"
_A_BLOCK = (
    f"a block is a whole number from 0 to {MOST_BLOCKS - 1}; if the column is none, set data_options.columns.block=-"
)


def ids(column: Column) -> pa.DictionaryArray:
    """Return ids as numbers of a dictionary: of whole numbers (int64), or of stripped text.

    The dictionary may repeat an id. Raises `InputError` for a bad id.
    """
    values = column.values
    column.refuse(values.is_null(), _ID)
    if pa.types.is_nested(values.type):
        raise column.fault(0, f"{_ID}, not {values.type}")
    coded = column.of(values if pa.types.is_dictionary(values.type) else values.dictionary_encode())
    names, places = coded.values.dictionary, coded.values.indices.cast(pa.int32())
    coded.refuse_entries(names.is_null(), _ID)  # a dictionary may hold nothing as a value
    if pa.types.is_floating(names.type):  # what a data frame makes of whole numbers where some are missing
        whole = pc.and_(pc.is_finite(names), pc.equal(pc.floor(names), names))
        whole = pc.and_(whole, pc.less(pc.abs(names), 2.0**53))
        coded.refuse_entries(pc.invert(whole), _ID)
        names = pc.cast(pc.if_else(whole, names, 0.0), pa.int64())
    elif pa.types.is_integer(names.type) and not pa.types.is_uint64(names.type):  # hashes may use all 64 bits
        names = names.cast(pa.int64())
    else:
        names = _text(coded)
    return pa.DictionaryArray.from_arrays(places, names)


def _text(coded: Column) -> pa.Array:
    names = coded.values.dictionary
    if not is_text(names) and not pa.types.is_uint64(names.type):
        raise coded.fault(0, f"{_ID}, not {names.type}")
    try:
        names.validate(full=True)  # not all readers look at the encoding
    except pa.ArrowInvalid:
        wrong = first_failing(names, lambda part: part.validate(full=True))
        coded.refuse_entries(pa.array(np.arange(len(names)) == wrong), _ID)
    names = pc.utf8_trim_whitespace(names.cast(pa.string()))
    length = pc.utf8_length(names)
    odd = pc.or_(pc.or_(pc.equal(length, 0), pc.greater(length, LONGEST_ID)), pc.invert(pc.utf8_is_printable(names)))
    coded.refuse_entries(odd, _ID)
    return names


NOTHING = ("", "na", "n/a", "nan", "null", "none", "\\n", "<na>")
"""What files write, in lower case, where there is no value."""


def missing(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return whether each value stands for none, bool [n].

    >>> import pyarrow
    >>> missing(pyarrow.array(["u1", "NaN", None, " "])).tolist()
    [False, True, True, True]
    """
    if pa.types.is_dictionary(values.type):
        inside = np.append(missing(values.dictionary), True)  # the last one stands for no entry
        return inside[values.indices.fill_null(len(inside) - 1).to_numpy(zero_copy_only=False)]
    found = values.is_null(nan_is_null=pa.types.is_floating(values.type))
    if is_text(values):
        try:
            plain = pc.utf8_lower(pc.utf8_trim_whitespace(values))
            found = pc.or_(found, pc.fill_null(pc.is_in(plain, value_set=pa.array(NOTHING, plain.type)), True))
        except pa.ArrowInvalid:  # no UTF-8, which `ids` says
            pass
    return found.to_numpy(zero_copy_only=False)


def numbers(column: Column, rule: str, decimal: str = ".") -> npt.NDArray[np.float64]:
    """Return numbers, float64 [n]. Raises `InputError` by the `rule` for what is missing, infinite or no number."""
    column = decoded(column, rule)
    kind = column.values.type
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        raise column.fault(0, f"{rule}, and this column is of {kind}")
    said = rule
    if is_text(column.values):
        if decimal == ",":
            column = column.of(pc.replace_substring(column.values, ",", "."))
        elif pc.any(pc.match_substring_regex(column.values, r"^[+-]?[0-9]+,[0-9]+$")).as_py():
            said = f"{rule}; where fractions follow a comma, set data_options.decimal=,"
    found = column.converted(lambda part: part.cast(pa.float64(), safe=False), said)
    out: npt.NDArray[np.float64] = found.to_numpy(zero_copy_only=False)
    column.refuse(~np.isfinite(out), rule)
    return out


def labels(column: Column, known: Mapping[str, int], rule: str) -> npt.NDArray[np.uint8]:
    """Return the number of each label, uint8 [n]; those of `known` are in lower case."""
    coded = ids(column)
    number = [known.get(name.lower(), -1) for name in coded.dictionary.cast(pa.string()).to_pylist()]
    found = np.array(number, np.int64)[coded.indices.to_numpy()]
    column.of(coded).refuse(found < 0, rule)
    return found.astype(np.uint8)


def blocks(column: Column) -> npt.NDArray[np.int16]:
    """Return numbers of blocks, int16 [n]."""
    found = numbers(column, _A_BLOCK)
    column.refuse((found != np.floor(found)) | (found < 0) | (found >= MOST_BLOCKS), _A_BLOCK)
    return found.astype(np.int16)


def decoded(column: Column, rule: str) -> Column:
    """Return the column without a dictionary and without spaces around text; nothing is missing in it."""
    values = column.values
    if pa.types.is_dictionary(values.type):
        names = values.dictionary
        if is_text(names):  # a long one, repeated in all rows, would fill the memory
            length = pc.binary_length(names.cast(pa.large_string()))
            column.refuse_entries(pc.fill_null(pc.greater(length, 100), False), rule)
        values = values.dictionary_decode()
    column.refuse(values.is_null(), rule)
    return column.of(pc.utf8_trim_whitespace(values) if is_text(values) else values)
