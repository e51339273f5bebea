"""This leaves the device in a round: one update, clipped jointly, with the device's own noise where a run asks for it.

Owns: what an upload contains and how it is written. Does not own: training, clip and noise themselves (`privacy`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge.learning import Learning, ReleaseRecord
from edge.training import Trained
from privacy.clip import clip_factors, joint_norms
from privacy.compress import Projection
from privacy.errors import InputError
from privacy.files import packed
from privacy.mechanism import Noise

SCHEMA: Literal["edgefr.release/1"] = "edgefr.release/1"
LARGEST = 1e6  # joint norm above which an update has diverged: it is not sent
LIMIT = 1 << 30  # bytes of a release file
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Tensors = Mapping[str, Floats]


@dataclass(frozen=True)
class ClientUpdate:
    """A release is one client's upload of a round.

    `update` is one array: the changes of all shared dense tensors that the round trains, one after another in the
    program's order. `rows`: of each trained table the items whose row is sent, ascending, and its changes [n, width];
    under the device's own noise all of the table. Where the run projects, `update` is the projection of the changes of
    all shared tensors, and `rows` is empty. `prototype`: what the server is told of the client's session, where that
    goes with the update; neither clipped nor noised. `examples`: the client's interactions (of a session: its targets),
    only where the server weighs by them. `steps` of `planned` were taken; `stopped` says what ended them early
    ("time", "memory").
    `dropped`: it had diverged, and nothing is in it.
    """

    bundle: str
    round: int
    update: Floats
    rows: dict[str, tuple[Ints, Floats]]
    examples: int | None
    steps: int
    planned: int
    dropped: bool = False
    clipped: bool = False
    stopped: str | None = None
    prototype: Floats | None = None

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
        names = ("bundle", "round", "examples", "steps", "planned", "dropped", "clipped", "stopped")
        return {"schema": SCHEMA, **{name: getattr(self, name) for name in names}, "tables": list(self.rows)}

    def to_bytes(self) -> bytes:
        """Return it as safetensors."""
        return packed(self.arrays(), {"release": json.dumps(self.facts())})

    @classmethod
    def of(cls, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> ClientUpdate:
        """Make an update from `facts()` and `arrays()`; KeyError or TypeError for what they do not hold."""
        rows = {table: (arrays[f"rows.{table}.items"], arrays[f"rows.{table}.values"]) for table in facts["tables"]}
        names = ("bundle", "round", "examples", "steps", "planned", "dropped", "clipped", "stopped")
        sent = arrays.get("prototype")
        return cls(update=arrays["update"], rows=rows, prototype=sent, **{name: facts[name] for name in names})


def make(
    learning: Learning,
    bundle: str,
    before: Tensors,
    tables: Tensors,
    trained: Trained,
    examples: int,
    number: int,
    generator: np.random.Generator,
    prototype: Floats | None = None,
) -> ClientUpdate:
    """Make the release of round `number`: changes against the broadcast (`before`, whole `tables`), clipped, noised.

    `prototype` goes with it as it is, unless training has diverged. `generator` draws the device's own noise; it is not
    used where the run adds none or the server does.
    """
    shared = [name for name in learning.trained("round", "shared") if learning.tensor(name).kind == "dense"]
    changes = [(trained.dense[name] - before[name]).reshape(-1) for name in shared]
    update = np.concatenate([np.zeros(0, np.float32), *changes])
    rows = {name: (items, values - tables[name][items]) for name, (items, values) in trained.rows.items()}
    terms = learning.release
    joint = _norm(update, rows, terms)
    sound = bool(joint[0] <= LARGEST)  # false for NaN
    if terms.project is not None:
        update, rows = _projected(learning, number, update, rows) if sound else np.zeros(terms.project, np.float32), {}
        joint = _norm(update, rows, terms)
    factor = 1.0 if terms.clip is None or not sound else float(clip_factors(joint, terms.clip)[0])
    if not sound:
        update, rows = np.zeros_like(update), {name: (items[:0], values[:0]) for name, (items, values) in rows.items()}
    elif factor != 1.0:
        update = update * np.float32(factor)
        rows = {name: (items, values * np.float32(factor)) for name, (items, values) in rows.items()}
    if terms.noise is not None:
        update, rows = _noised(terms, update, rows, tables, generator)
    count = {"uniform": None, "size": examples}[terms.weights]
    facts = (trained.steps, trained.planned, not sound, factor != 1.0, trained.stopped)
    sent = prototype if sound and prototype is not None and np.isfinite(prototype).all() else None
    return ClientUpdate(bundle, number, update, rows, count, *facts, prototype=sent)


def _norm(update: Floats, rows: Mapping[str, tuple[Ints, Floats]], terms: ReleaseRecord) -> npt.NDArray[np.float64]:
    """Joint norm of all that is going to leave, [1]."""
    return joint_norms([part.reshape(1, -1) for part in (update, *(values for _, values in rows.values()))], terms.norm)


def _projected(learning: Learning, number: int, update: Floats, rows: Mapping[str, tuple[Ints, Floats]]) -> Floats:
    """Return the round's public projection of the joint vector.

    It has the shared tensors in the program's order, rows not sent as 0.
    """
    assert learning.release.project is not None
    places, values, at, taken = [], [], 0, 0
    for name, size in learning.released.items():
        if name in rows:
            items, changes = rows[name]
            places.append((at + items[:, None] * changes.shape[1] + np.arange(changes.shape[1])).ravel())
            values.append(changes.ravel())
        else:
            places.append(np.arange(at, at + size))
            values.append(update[taken : taken + size])
            taken += size
        at += size
    projection = Projection.of_round(learning.seed, number, at, learning.release.project)
    return projection.of_some(np.concatenate(places), np.concatenate(values)).astype(np.float32)


def _noised(
    terms: ReleaseRecord,
    update: Floats,
    rows: dict[str, tuple[Ints, Floats]],
    tables: Tensors,
    generator: np.random.Generator,
) -> tuple[Floats, dict[str, tuple[Ints, Floats]]]:
    """Add noise to every coordinate, of touched rows and of all others: which rows changed is part of the release."""

    assert terms.noise is not None
    own = Noise(terms.noise, terms.scale)

    def noise(shape: tuple[int, ...]) -> Floats:
        return own.of_sum(1, shape, generator).astype(np.float32)

    whole = {}
    for name, (items, values) in rows.items():
        everywhere = noise(tables[name].shape)
        everywhere[items] += values
        whole[name] = (np.arange(len(everywhere)), everywhere)
    return update + noise(update.shape), whole


def read_update(content: bytes | Path, learning: Learning, bundle: str) -> ClientUpdate:
    """A device's upload, checked against what a device of this bundle may send.

    Raises `InputError` for a file over 1 GiB, another format or bundle, tensors of other shapes or types, items that do
    not ascend or are not in the catalogue, and values that are not finite.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if isinstance(content, Path):
        if content.stat().st_size > LIMIT:
            raise InputError(f"{content} is larger than {LIMIT >> 20} MiB: not a release")
        content = content.read_bytes()
    try:
        size = int.from_bytes(content[:8], "little")
        if size > 1 << 20:
            raise ValueError("its header is larger than 1 MiB")
        header = json.loads(content[8 : 8 + size])
        facts = json.loads(header["__metadata__"]["release"])
        if facts["schema"] != SCHEMA or facts["bundle"] != bundle:
            raise ValueError(f"it is {facts['schema']} of bundle {str(facts['bundle'])[:12]}, not of {bundle[:12]}")
        found = ClientUpdate.of(facts, load(content))
        _check(found, learning)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise InputError(f"not a release of this bundle: {str(error) or type(error).__name__}") from error
    return found


def _check(found: ClientUpdate, learning: Learning) -> None:
    """ValueError that names what a device of this bundle cannot have sent."""
    shared = {name: learning.tensor(name) for name in learning.trained("round", "shared")}
    project = learning.release.project
    size = sum(int(np.prod(t.shape)) for t in shared.values() if t.kind == "dense") if project is None else project
    whole = [found.round, found.steps, found.planned, *([] if found.examples is None else [found.examples])]
    if not all(type(n) is int and n >= 0 for n in whole) or not all(
        type(b) is bool for b in (found.dropped, found.clipped)
    ):
        raise ValueError("its counts are not whole numbers")
    if found.stopped not in (None, "time", "memory"):
        raise ValueError(f"stopped is {str(found.stopped)[:20]!r}")
    if found.update.dtype != np.float32 or found.update.shape != (size,):
        raise ValueError(f"update is {found.update.dtype} {list(found.update.shape)} instead of float32 [{size}]")
    tables = {name: tensor.shape for name, tensor in shared.items() if tensor.kind == "rows" and project is None}
    if set(found.rows) != set(tables):
        raise ValueError(f"it changes tables {sorted(found.rows)} instead of {sorted(tables)}")
    for name, (items, values) in found.rows.items():
        if items.dtype != np.int64 or items.ndim != 1 or values.dtype != np.float32:
            raise ValueError(f"rows of {name} are {items.dtype} and {values.dtype}")
        if values.shape != (len(items), tables[name][1]):
            raise ValueError(f"rows of {name} are {list(values.shape)} for {len(items)} items")
        if len(items) and not (items[0] >= 0 and items[-1] < tables[name][0] and (np.diff(items) > 0).all()):
            raise ValueError(f"items of {name} do not ascend within the catalogue")
    _check_prototype(found.prototype, learning)
    if not all(np.isfinite(array).all() for array in (found.update, *(values for _, values in found.rows.values()))):
        raise ValueError("it has values that are not finite")


def _check_prototype(prototype: Floats | None, learning: Learning) -> None:
    """Raise ValueError where devices of this bundle send no prototype with an update, or another."""
    if prototype is None:
        return
    how = learning.sessions
    if how is None or how.order != "trained" or how.reply is None:
        raise ValueError("it has a prototype, which devices of this bundle do not send with an update")
    shape = learning.tensor(how.reply).shape
    if prototype.dtype != np.float32 or list(prototype.shape) != shape or not np.isfinite(prototype).all():
        raise ValueError(f"its prototype is not {shape} finite numbers")
