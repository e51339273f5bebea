"""A finished run's model is saved with what bundles are made of, and read back as one value.

Owns: which tensors and names of a run are kept, and under what names; which of its users had which device. Does not
own: files (`edgefr.simulation.runs.folder`), what becomes of the model (export, audit, serving).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from edge.ragged import Ragged, joined
from edgefr.engine.aggregate import restricted
from edgefr.engine.model import Model
from edgefr.experiment.experiment import Experiment
from edgefr.methods.transfr.parts import CLIENTS
from edgefr.methods.transfr.settings import TransFRSettings
from edgefr.simulation.runs.folder import RunFolder
from edgefr.simulation.runs.layout import CHECKPOINT
from export.given import Given
from export.model import HeldOut, Names, TrainedModel
from export.program import LocalProgram
from privacy.errors import InputError
from privacy.files import write_atomic, write_json

Ints = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from edgefr.methods.transfr.bert import TitleReader
    from edgefr.simulation.stages.stage import Running


@dataclass(frozen=True)
class Saved:
    """A finished run saved this.

    Its `model`, of all its users; their `activity` (interactions, int64 [users]), which decides who has which device;
    when the run was `created`; and over blocks of time the one that each item is `born` in, int64 [items].
    """

    model: TrainedModel
    activity: Ints
    created: str
    born: Ints | None = None

    @property
    def learners(self) -> Ints:
        """Users who had something to train on, ascending."""
        return np.flatnonzero(np.diff(self.model.seen.offsets))

    def pool_of(self, block: int) -> Ints:
        """Return the items that there are in a block of time, ascending: those born in it or before.

        Raises `InputError` for a run that did not save when they are born.
        """
        if self.born is None:
            raise InputError("this run does not say which items its blocks have; run the experiment again")
        return np.flatnonzero((self.born >= 0) & (self.born <= block))

    def at_block(self, block: int) -> TrainedModel:
        """Return the model as a block of time has it that nobody has had anything in, nor in any before."""
        pool, users, held = self.pool_of(block), len(self.model.names.users), self.model.held_out
        if held is not None:
            there = np.isin(held.items, pool)
            held = HeldOut(held.users[there], held.items[there])
        nothing = Ragged.empty(users)
        history = None if self.model.history is None else nothing
        return replace(self.model, seen=nothing, own=nothing, history=history, held_out=held, pool=pool.tolist())


def save_model(run: RunFolder, sim: Running) -> None:
    """Save what bundles are made of: tensors, item vectors, users' own items, names, and the encoder's folder."""
    from export.peft_format import write_peft

    dataset, model, stage = sim.prepared.dataset, sim.final, sim.schedule[-1]
    task = stage.task
    assert model is not None
    tensors = {_name(name): value.cpu() for name, value in model.flat().items() if not name.startswith("reply.")}
    tensors |= {f"frozen.{name}": value.cpu() for name, value in sim.federation.program.frozen.items()}
    for name, rows in {"history": task.history, "train": task.train, **stage.present()}.items():
        tensors[f"{name}.values"] = torch.from_numpy(np.ascontiguousarray(rows.values))
        tensors[f"{name}.offsets"] = torch.from_numpy(rows.offsets)
    tensors["pool"] = torch.from_numpy(np.ascontiguousarray(task.pool))
    tensors["activity"] = torch.from_numpy(np.diff(dataset.offsets))
    if sim.experiment.protocol.entry.hands_on:
        tensors["born"] = torch.from_numpy(_born([stage.task.pool for stage in sim.schedule], len(sim.names.items)))
    tensors["valid.users"] = torch.from_numpy(task.users("valid"))
    tensors["valid.items"] = torch.from_numpy(task.held("valid").astype(np.int64))
    if sim.experiment.model.get("adapter_fit") == "source":
        tensors["source"] = torch.from_numpy(sim.prepared.source_items)
    run.write_tensors("model", tensors)
    names = {**asdict(sim.names), "created": datetime.now(UTC).isoformat(timespec="seconds")}
    write_json(run.closed(CHECKPOINT) / "names.json", names, mode=0o600)
    if sim.prepared.text is not None and sim.prepared.text.folder is not None:
        shutil.copytree(sim.prepared.text.folder, run.path / "encoder", copy_function=_linked, dirs_exist_ok=True)
    if isinstance(sim.experiment.settings, TransFRSettings) and CLIENTS[sim.experiment.settings.client].reads:
        write_peft(run.path / "adapters" / "lora", model.shared, sim.experiment.model["lora_alpha"], base="encoder")


def _born(pools: Sequence[npt.NDArray[np.int32]], items: int) -> Ints:
    """Return the first of `pools` that each item is in, -1 for one that is in none."""
    born = np.full(items, -1, np.int64)
    for number in reversed(range(len(pools))):
        born[pools[number]] = number
    return born


def _name(name: str) -> str:
    """Tables of clients' own rows are called `rows.*` in the file of a model."""
    return "rows." + name.removeprefix("tables.") if name.startswith("tables.") else name


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        with open(source, "rb") as file:
            write_atomic(Path(target), partial(shutil.copyfileobj, file))


def open_model(run: RunFolder) -> Saved:
    """Read a finished run's model back. Raises `InputError` for a run that is not whole."""
    experiment, tensors, names = run.experiment, run.read_tensors("model"), _names(run)
    program = _program(run, experiment, tensors, len(names["items"]))
    history, own = (_rows(tensors, name) for name in ("history", "train"))
    past, windowed = joined(history, own), "session.items.values" in tensors
    pool = tensors["pool"].numpy().astype(np.int64)
    flat = {f"tables.{n[5:]}" if n.startswith("rows.") else n: value for n, value in tensors.items()}
    parts = Model.of(flat, program)
    model = TrainedModel(
        program=program,
        shared=parts.shared,
        private=parts.private,
        names=Names(names["users"], names["items"], names["titles"], names.get("texts", names["titles"])),
        seen=past if experiment.protocol.entry.hands_on else own,  # who learned in an earlier stage too
        own=own,
        history=_rows(tensors, "session.items") if windowed else past if program.needs_history else None,
        times=_rows(tensors, "session.times") if windowed else None,
        pool=pool.tolist() if len(pool) < len(names["items"]) else None,
        held_out=_judged(tensors),
        tables=parts.tables,
    )
    born = tensors["born"].numpy() if "born" in tensors else None
    return Saved(model, tensors["activity"].numpy(), names["created"], born)


def of_users(model: TrainedModel, users: Ints) -> TrainedModel:
    """Cut a model of all users down to some of them, in that order; they keep their numbers in the run."""
    index, held = torch.from_numpy(users), model.held_out

    def rows(table: object) -> Ragged | None:
        return table.take(users) if isinstance(table, Ragged) else None

    seen = rows(model.seen)
    assert seen is not None
    if held is not None:
        there = np.isin(held.users, users)
        held = HeldOut(np.searchsorted(users, held.users[there]), held.items[there])
    return replace(
        model,
        private={name: value[index] for name, value in model.private.items()},
        names=replace(model.names, users=[model.names.users[u] for u in users]),
        seen=seen,
        own=rows(model.own),
        history=rows(model.history),
        times=rows(model.times),
        held_out=held,
        numbers=users.tolist(),
        tables={},
    )


def _rows(tensors: Mapping[str, torch.Tensor], name: str) -> Ragged:
    return Ragged(tensors[f"{name}.values"].numpy(), tensors[f"{name}.offsets"].numpy())


def _judged(tensors: Mapping[str, torch.Tensor]) -> HeldOut | None:
    """Return the validation items; None for a run that did not save them."""
    if "valid.users" not in tensors:
        return None
    users, items = (tensors[f"valid.{name}"].numpy().astype(np.int64) for name in ("users", "items"))
    return HeldOut(users, items)


def _names(run: RunFolder) -> dict[str, Any]:
    """`users`, `items`, `titles` and when the run was `created`. Raises `InputError` for a run that is not whole."""
    try:
        names: dict[str, Any] = json.loads((run.path / CHECKPOINT / "names.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the names of run {run.path}: {error}; run the experiment again") from None
    return names


def _program(run: RunFolder, experiment: Experiment, tensors: dict[str, torch.Tensor], items: int) -> LocalProgram:
    row = experiment.row
    text, reader = tensors.get("frozen.text"), partial(reader_of, run, experiment, tensors)
    given = Given(items, experiment.local_epochs, text, reader, source=tensors.get("source"))
    made = row.program(row.settings.model_validate(experiment.model), given)
    return restricted(made, experiment.privacy.tensors)


def reader_of(run: RunFolder, experiment: Experiment, tensors: dict[str, torch.Tensor]) -> TitleReader:
    """Return what clients of the run read for themselves: the titles' tokens as they were, and the encoder."""
    from edgefr.methods.transfr.bert import Bert, TitleReader

    return TitleReader(tensors["frozen.tokens"], Bert.open(run.path / "encoder", experiment.encoder.encode.pooling))
