"""A delta has the server's new values of shared tensors, tied to their bundle: it is written, read and checked here.

One safetensors file. Metadata: one key `delta`, whose JSON has `schema`, `base_digest` (the bundle's id), `from_round`,
`to_round` and `kind`. Tensors, all of them optional:

    dense.<name>            float32, a whole shared tensor
    rows.<table>.items      int64 [n], ascending: rows of a shared table that changed
    rows.<table>.values     float32 [n, width]: their new values
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from edge.learning import Learning
from edge.manifest_check import reason
from edge.records import Record, Round
from edge.signature import LIMIT as SIGNATURE_LIMIT
from edge.signature import Trusted, check, place
from edge.tensors import parse
from edge.verified_files import read
from privacy.errors import InputError
from privacy.files import packed, write_atomic

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
SCHEMA: Literal["edgefr.delta/1"] = "edgefr.delta/1"
LIMIT = 1 << 30  # bytes of a file
HEADER_LIMIT = 1 << 20  # bytes of its header
NAME_LIMIT = 128  # characters of a tensor's name


class Facts(Record):
    """This is the metadata of a delta."""

    schema_: Literal["edgefr.delta/1"] = Field(default=SCHEMA, alias="schema", description="format of the file")
    base_digest: str = Field(pattern="^[0-9a-f]{64}$", description="id of the bundle whose tensors it changes")
    from_round: Round = Field(description="federated rounds behind what it starts from")
    to_round: Round = Field(description="federated rounds behind its values")
    kind: Literal["values"] = Field(default="values", description="values: new ones, in place of the old")

    @model_validator(mode="after")
    def _forward(self) -> Facts:
        if self.to_round <= self.from_round:
            raise ValueError(f"to_round {self.to_round} is not after from_round {self.from_round}")
        return self


@dataclass(frozen=True)
class Delta:
    """A delta brings new values of shared tensors, from one round to another.

    `dense`: by tensor. `rows`: by table its changed items, int64 [n] ascending, and their rows, float32 [n, width].
    `signed_by`: id of the key that signed the file; None: it is not signed.
    """

    base_digest: str
    from_round: int
    to_round: int
    dense: Mapping[str, Floats] = field(default_factory=dict)
    rows: Mapping[str, tuple[Ints, Floats]] = field(default_factory=dict)
    signed_by: str | None = None


def write_delta(path: str | Path, delta: Delta) -> Path:
    """Write a delta, wholly or not at all; the same delta gives the same bytes.

    Raises `InputError` for one that `read_delta` would refuse, and for a full disk.

    >>> import tempfile
    >>> change = Delta("0" * 64, 0, 3, rows={"item": (np.array([2, 5]), np.zeros((2, 4), np.float32))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_delta(write_delta(f"{folder}/update.safetensors", change)).rows["item"][0].tolist()
    [2, 5]
    """
    tensors: dict[str, npt.NDArray[Any]] = {f"dense.{name}": delta.dense[name] for name in sorted(delta.dense)}
    for name in sorted(delta.rows):
        tensors[f"rows.{name}.items"], tensors[f"rows.{name}.values"] = delta.rows[name]
    try:
        facts = Facts(base_digest=delta.base_digest, from_round=delta.from_round, to_round=delta.to_round)
        _parts(tensors)
    except ValueError as error:
        raise InputError(f"cannot write {path}: {reason(error)}; nothing was changed") from error
    # one key: the order of several would change from write to write
    return write_atomic(path, packed(tensors, {"delta": facts.model_dump_json(by_alias=True)}))


def read_delta(
    path: str | Path, learning: Learning | None = None, *, trusted: Trusted = None, limit: int = LIMIT
) -> Delta:
    """Read and check a delta.

    `learning`: the bundle's, whose shared tensors and shapes it must have; None: not compared. `trusted`: public key
    files, one of which must have signed the file in <path>.sig.json. `limit`: bytes; a larger file is not read. Raises
    `InputError` for a file that is too large, wrongly signed, not a delta, or has other tensors or values.
    """
    path = Path(path)
    where = f"update {path}"
    try:
        if not path.is_file():
            raise InputError(f"{where} is not there; check the path")
        content, beside = read(path, most=limit), place(path)
        signature = read(beside, most=SIGNATURE_LIMIT) if beside.is_file() else None
        signed_by = check("delta", where, content, signature, trusted)
        found = parse(content, HEADER_LIMIT, ("F32", "I64"))
        if list(found.metadata) != ["delta"]:
            raise ValueError("its metadata is not a delta's")
        facts = Facts.model_validate_json(found.metadata["delta"])
        dense, rows = _parts(found.copied())
        if learning is not None:
            _compare(dense, rows, learning)
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror or error}; check the path") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not a {SCHEMA} file ({reason(error)}); fetch it again") from error
    return Delta(facts.base_digest, facts.from_round, facts.to_round, dense, rows, signed_by)


def check_fits(delta: Delta, learning: Learning) -> None:
    """Check that a delta changes what the bundle has, in its shapes, to numbers. Raises `InputError`."""
    try:
        for name, tensor in delta.dense.items():
            _check_floats(name, tensor)
        for table, (items, values) in delta.rows.items():
            check_rows(table, items, values)
        _compare(delta.dense, delta.rows, learning)
    except ValueError as error:
        raise InputError(f"the update does not fit: {error}; nothing was changed") from error


def _parts(tensors: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Floats], dict[str, tuple[Ints, Floats]]]:
    """Return the tensors of a delta by what they are; ValueError naming one that it may not have."""
    dense: dict[str, Floats] = {}
    rows: dict[str, tuple[Ints, Floats]] = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        if len(name) > NAME_LIMIT or not name.isprintable():
            raise ValueError(f"tensor name {name[:NAME_LIMIT]!r} is too long or not plain")
        kind, _, rest = name.partition(".")
        table, _, part = rest.rpartition(".")
        if kind == "dense" and rest:
            _check_floats(name, tensor)
            dense[rest] = tensor
        elif kind == "rows" and table and part in ("items", "values"):
            items, values = tensors.get(f"rows.{table}.items"), tensors.get(f"rows.{table}.values")
            if items is None or values is None:
                raise ValueError(f"it has {name!r} alone, of items and values")
            rows[table] = items, values
        else:
            raise ValueError(f"it has {name!r}, which is no part of a delta")
    for table, (items, values) in rows.items():
        check_rows(table, items, values)
    return dense, rows


def check_rows(table: str, items: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
    """Check items that ascend and their rows of finite numbers; ValueError."""
    _check_floats(f"rows.{table}.values", values)
    if items.dtype != np.int64 or items.ndim != 1:
        raise ValueError(f"rows.{table}.items is {items.dtype} {list(items.shape)} instead of int64 [n]")
    if values.ndim != 2 or len(values) != len(items):
        raise ValueError(f"rows.{table}.values is {list(values.shape)} instead of [{len(items)}, width]")
    if (len(items) and items[0] < 0) or (items[1:] <= items[:-1]).any():
        raise ValueError(f"rows.{table}.items do not ascend from 0 or more")


def _check_floats(name: str, tensor: npt.NDArray[Any]) -> None:
    if tensor.dtype != np.float32:
        raise ValueError(f"{name} is {tensor.dtype} instead of float32")
    if not np.isfinite(tensor).all():
        raise ValueError(f"{name} has values that are not finite")


def _compare(dense: Mapping[str, Floats], rows: Mapping[str, tuple[Ints, Floats]], learning: Learning) -> None:
    shared = {(t.kind, t.name): t.shape for t in learning.tensors if t.place == "shared"}
    for name, tensor in dense.items():
        want = shared.get(("dense", name))
        if want != list(tensor.shape):
            raise ValueError(f"dense.{name} is {list(tensor.shape)}, the bundle has {want or 'none'}")
    for name, (items, values) in rows.items():
        table = shared.get(("rows", name))
        if table is None or values.shape[1] != table[1] or (len(items) and items[-1] >= table[0]):
            last = int(items[-1]) if len(items) else None
            raise ValueError(
                f"rows.{name} has width {values.shape[1]} up to item {last}, the bundle has {table or 'none'}"
            )
