"""This leaves the device in a round: one update, clipped jointly, with the device's own noise where a run asks for it.

Where anything is promised about it, an update is one array of whole steps of a grid, as long for every client in every
round, and nothing else that depends on data: no counts, no list of rows. How training went stays on the device
(`WorkRecord`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter

from edge.delta import check_rows
from edge.learning import Learning, ReleaseRecord
from edge.manifest_check import reason
from edge.records import MOST_ROUNDS, Record
from edge.tensors import parse
from edge.training import Trained
from privacy.clip import clip_factors, joint_norms
from privacy.compress import Projection
from privacy.errors import InputError
from privacy.files import packed
from privacy.grid import to_grid

SCHEMA: Literal["edgefr.release/2"] = "edgefr.release/2"
LARGEST = 1e6  # joint norm above which an update has diverged: it is not sent
HEADER_LIMIT = 1 << 20  # bytes of a release's header
WIDEST = np.iinfo(np.int32)
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Tensors = Mapping[str, Floats]
Rows = dict[str, tuple[Ints, Floats]]


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Number = Annotated[int, Field(strict=True, ge=0, le=MOST_ROUNDS)]


class SealedFacts(Record):
    """The facts of a release of which something is promised are the same for every device of a round."""

    schema_: Literal["edgefr.release/2"] = Field(alias="schema", description="format of the release")
    bundle: Digest = Field(description="id of the device's bundle")
    round: Number = Field(description="round that it is a release of")


class OpenFacts(SealedFacts):
    """The facts of a release without a guarantee say more."""

    examples: Number | None = Field(description="the client's interactions, where the server weighs by them; else null")
    dropped: Annotated[bool, Field(strict=True)] = Field(description="training had diverged, and nothing is in it")
    tables: list[str] = Field(description="tables of which it changes rows")


RELEASE_FACTS: TypeAdapter[SealedFacts | OpenFacts] = TypeAdapter(SealedFacts | OpenFacts)


@dataclass(frozen=True)
class ClientUpdate:
    """A release is one client's upload of a round.

    `update`, where something is promised: int32 steps of the grid, every coordinate of every shared tensor that rounds
    train, in the program's order, or of their projection. There is nothing beside it then.

    Without a guarantee: float32 changes of the dense tensors, or a projection; `rows`: of each trained table the
    items whose row is sent, ascending, and its changes [n, width]; `prototype`: what the server is told of the client's
    session, where that goes with the update; `examples`: the client's interactions (of a session: its targets), where
    the server weighs by them; `dropped`: it had diverged, and nothing is in it.
    """

    bundle: str
    round: int
    update: npt.NDArray[Any]
    rows: Rows
    examples: int | None = None
    dropped: bool = False
    prototype: Floats | None = None

    @property
    def whole(self) -> bool:
        """Say whether it is one array of whole steps, of which something is promised."""
        return self.update.dtype == np.int32

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, as they are stored."""
        out: dict[str, npt.NDArray[Any]] = {"update": self.update}
        if self.prototype is not None:
            out["prototype"] = self.prototype
        for table, (items, values) in self.rows.items():
            out |= {f"rows.{table}.items": items, f"rows.{table}.values": values}
        return out

    def facts(self) -> dict[str, Any]:
        """Return all that is not an array."""
        always = {"schema": SCHEMA, "bundle": self.bundle, "round": self.round}
        more = {"examples": self.examples, "dropped": self.dropped, "tables": list(self.rows)}
        return always if self.whole else always | more

    def to_bytes(self) -> bytes:
        return packed(self.arrays(), {"release": json.dumps(self.facts())})

    @classmethod
    def of(cls, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> ClientUpdate:
        """Make an update from `facts()` and `arrays()`; KeyError or TypeError for what they do not hold."""
        tables = facts.get("tables", [])
        rows = {table: (arrays[f"rows.{table}.items"], arrays[f"rows.{table}.values"]) for table in tables}
        more = facts.get("examples"), facts.get("dropped", False), arrays.get("prototype")
        found = cls(facts["bundle"], facts["round"], arrays["update"], rows, *more)
        if found.facts() != dict(facts) or found.arrays().keys() != arrays.keys():
            raise ValueError("it says other things than a device says")
        return found


@dataclass(frozen=True)
class WorkRecord:
    """This is how a round's work went, which the device keeps to itself.

    `steps` of `planned` were taken; `stopped` says what ended them early ("time", "memory"). `clipped`: the update was
    longer than the clip; `dropped`: it had diverged or failed, and zeros took its place; `failed`: what went wrong, if
    something did. `noise_ms`: what the noise took.
    """

    steps: int
    planned: int
    stopped: str | None
    clipped: bool
    dropped: bool
    noise_ms: float = 0.0
    failed: str | None = None


@dataclass(frozen=True)
class Change:
    """These are a client's changes against the broadcast: of dense tensors end to end, and of rows of tables."""

    dense: Floats
    rows: Rows

    @classmethod
    def of(cls, learning: Learning, before: Tensors, tables: Tensors, trained: Trained) -> Change:
        """Return what training changed of `before` and of whole `tables`."""
        shared = [name for name in learning.trained("round", "shared") if learning.tensor(name).kind == "dense"]
        changes = [(trained.dense[name] - before[name]).reshape(-1) for name in shared]
        rows = {name: (items, values - tables[name][items]) for name, (items, values) in trained.rows.items()}
        return cls(np.concatenate([np.zeros(0, np.float32), *changes]), rows)

    @classmethod
    def none(cls, learning: Learning) -> Change:
        """Return no change of anything."""
        shared = [learning.tensor(name) for name in learning.trained("round", "shared")]
        size = sum(int(np.prod(tensor.shape)) for tensor in shared if tensor.kind == "dense")
        nothing = np.zeros(0, np.int64)
        rows = {t.name: (nothing, np.zeros((0, t.shape[1]), np.float32)) for t in shared if t.kind == "rows"}
        return cls(np.zeros(size, np.float32), rows)

    def norm(self, order: Literal["l1", "l2"]) -> float:
        """Return the joint norm of all of it; not a number, or infinite, where a value is."""
        parts = [self.dense, *(values for _, values in self.rows.values())]
        return float(joint_norms([part.reshape(1, -1) for part in parts], order)[0])

    def placed(self, learning: Learning) -> tuple[Ints, Floats, int]:
        """Return places and values of what changed in the joint vector, in the program's order, and its length."""
        places, values, at, taken = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], 0, 0
        for name, size in learning.released.items():
            if name in self.rows:
                items, changes = self.rows[name]
                places.append((at + items[:, None] * changes.shape[1] + np.arange(changes.shape[1])).ravel())
                values.append(changes.ravel())
            else:
                places.append(np.arange(at, at + size))
                values.append(self.dense[taken : taken + size])
                taken += size
            at += size
        return np.concatenate(places), np.concatenate(values), at

    def projected(self, learning: Learning, number: int, kept: int) -> Floats:
        """Return the projection of a round of the joint vector."""
        places, values, size = self.placed(learning)
        return Projection.of_round(learning.seed, number, size, kept).of_some(places, values).astype(np.float32)

    def whole(self, learning: Learning) -> Floats:
        """Return every coordinate of every shared tensor that rounds train, in the program's order."""
        places, values, size = self.placed(learning)
        found = np.zeros(size, np.float32)
        found[places] = values
        return found

    def times(self, factor: float) -> Change:
        """Return this multiplied by a clip's factor."""
        f = np.float32(factor)
        return Change(self.dense * f, {name: (items, values * f) for name, (items, values) in self.rows.items()})


def make(
    learning: Learning,
    bundle: str,
    change: Change,
    work: Trained,
    examples: int,
    number: int,
    prototype: Floats | None = None,
) -> tuple[ClientUpdate, WorkRecord]:
    """Make the release of round `number`, and the record of the work that stays here: clipped, on the grid, noised.

    A change that has diverged is replaced by none. `examples` and `prototype` go along only without a guarantee.
    """
    terms = learning.release
    sound = change.norm(terms.norm) <= LARGEST  # false for NaN
    change = change if sound else Change.none(learning)
    if terms.project is not None:
        change = Change(change.projected(learning, number, terms.project), {})
    norm = np.array([change.norm(terms.norm)])
    factor = 1.0 if terms.clip is None else float(clip_factors(norm, terms.clip)[0])
    change = change if factor == 1.0 else change.times(factor)
    record = WorkRecord(work.steps, work.planned, work.stopped, factor != 1.0, not sound)
    if terms.promises:
        vector, began = change.dense if terms.project is not None else change.whole(learning), time.perf_counter()
        update = _noised(terms, vector)
        took = 0.0 if terms.own_noise is None else 1e3 * (time.perf_counter() - began)
        return ClientUpdate(bundle, number, update, {}), replace(record, noise_ms=took)
    told = {"uniform": None, "size": examples}[terms.weights]
    sent = prototype if sound and prototype is not None and takeable(prototype) else None
    return ClientUpdate(bundle, number, change.dense, change.rows, told, not sound, sent), record


def takeable(message: Floats) -> bool:
    """Say whether a message is one of numbers that is no longer than a sound update."""
    return bool(np.linalg.norm(message.astype(np.float64).ravel()) <= LARGEST)  # false for NaN


def _noised(terms: ReleaseRecord, vector: Floats) -> npt.NDArray[np.int32]:
    assert terms.step is not None
    steps = (to_grid(vector, terms.step) / terms.step).astype(np.int64)
    if terms.own_noise is not None:
        steps += terms.own_noise.exact(len(steps))
    return np.clip(steps, WIDEST.min, WIDEST.max).astype(np.int32)


def whole_steps(update: ClientUpdate, learning: Learning) -> npt.NDArray[np.int32]:
    """Return an update in whole steps of its grid, every coordinate that rounds train: what a secure sum adds up.

    Raises `InputError` where it has no grid, being of no bounded length, and for what no sum can have in it.
    """
    terms = learning.release
    if update.whole:
        return update.update
    if terms.grid is None or terms.weights != "uniform" or update.prototype is not None:
        raise InputError("uploads without a clip, with weights or with messages beside them cannot be summed masked")
    change = Change(update.update, update.rows)
    vector = change.dense if terms.project is not None else change.whole(learning)
    return (to_grid(vector, terms.grid) / terms.grid).astype(np.int32)


def read_update(content: bytes, learning: Learning, bundle: str) -> ClientUpdate:
    """Return a device's upload, checked against what a device of this bundle may send.

    Raises `InputError` for another format or bundle, tensors of other shapes or types, items that do not ascend or are
    not in the catalogue, and values that are not finite.
    """
    try:
        file = parse(content, HEADER_LIMIT)
        facts = RELEASE_FACTS.validate_json(file.metadata["release"])
        if facts.bundle != bundle:
            raise ValueError(f"it is {facts.schema_} of bundle {facts.bundle[:12]}, not of {bundle[:12]}")
        found = ClientUpdate.of(facts.model_dump(by_alias=True), file.copied())
        _check(found, learning)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise InputError(f"not a release of this bundle: {reason(error)}") from error
    return found


def _check(found: ClientUpdate, learning: Learning) -> None:
    promises, project = learning.release.promises, learning.release.project
    shared = {name: learning.tensor(name) for name in learning.trained("round", "shared")}
    size = sum(int(np.prod(t.shape)) for t in shared.values() if t.kind == "dense") if project is None else project
    kind, size = (np.dtype(np.int32), learning.uploaded) if promises else (np.dtype(np.float32), size)
    if found.update.dtype != kind or found.update.shape != (size,):
        raise ValueError(f"update is {found.update.dtype} {list(found.update.shape)} instead of {kind} [{size}]")
    if not promises:
        _check_open(found, {n: t.shape for n, t in shared.items() if t.kind == "rows" and project is None}, learning)


def _check_open(found: ClientUpdate, tables: Mapping[str, list[int]], learning: Learning) -> None:
    if set(found.rows) != set(tables):
        raise ValueError(f"it changes tables {sorted(found.rows)} instead of {sorted(tables)}")
    for name, (items, values) in found.rows.items():
        check_rows(name, items, values)
        if values.shape[1] != tables[name][1] or (len(items) and items[-1] >= tables[name][0]):
            raise ValueError(f"rows of {name} are not of the catalogue")
    _check_prototype(found.prototype, learning)
    if not np.isfinite(found.update).all():
        raise ValueError("it has values that are not finite")


def _check_prototype(prototype: Floats | None, learning: Learning) -> None:
    if prototype is None:
        return
    how = learning.exchange
    if how is None or how.order != "trained" or how.reply is None:
        raise ValueError("it has a prototype, which devices of this bundle do not send with an update")
    shape = learning.tensor(how.reply).shape
    if prototype.dtype != np.float32 or list(prototype.shape) != shape or not takeable(prototype):
        raise ValueError(f"its prototype is not {shape} finite numbers")
