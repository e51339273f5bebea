"""From a run to what is shipped: the model as it was left, and the bundles made of it."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch

from edge.ragged import Ragged
from edgefr.data.blocks import Blocks
from edgefr.data.sessions import SessionsProtocol
from edgefr.engine.release import restricted
from edgefr.engine.tables import tensors_of
from edgefr.experiment import Experiment, check_shippable
from edgefr.fleet import Fleet, FleetFile, cost, load_fleet
from edgefr.methods.f3crec.strategies import strategy
from edgefr.methods.program import LocalProgram
from edgefr.prepare import Prepared, Progress
from edgefr.run import Run
from edgefr.sections import ExportSection
from privacy.errors import InputError
from privacy.files import write_atomic, write_json
from privacy.plan import plan

Ints = npt.NDArray[np.int64]

if TYPE_CHECKING:
    from edgefr.continual import Continual
    from edgefr.methods.transfr.bert import Reader
    from edgefr.simulation import Simulation
    from export.learning import Lessons
    from export.quality import HeldOut
    from export.variants import ClassLimits, Rules


ONLY_RECOMMENDS = "none: the run trained with DP-SGD (privacy.examples), whose noise a device cannot add"


def save_model(run: Run, sim: Simulation | Continual) -> None:
    """Save what bundles are made of: tensors, item vectors, users' own items, names, and the encoder's folder."""
    from export.peft_format import write_peft

    f, dataset = sim.federation, sim.prepared.dataset
    history, train, pool, shared, private = sim.shipped()
    tensors = {f"shared.{n}": v.cpu() for n, v in shared.items()} | {f"private.{n}": v for n, v in private.items()}
    tensors |= {f"frozen.{n}": v.cpu() for n, v in f.program.frozen.items()}
    for name, rows in (("history", history), ("train", train)):
        tensors[f"{name}.values"] = torch.from_numpy(np.ascontiguousarray(rows.values))
        tensors[f"{name}.offsets"] = torch.from_numpy(rows.offsets)
    tensors |= {f"rows.{name}": value for name, value in tensors_of(sim.tables).items()}
    tensors |= _newest_sessions(sim)
    tensors["pool"] = torch.from_numpy(np.ascontiguousarray(pool))
    tensors["activity"] = torch.from_numpy(np.diff(dataset.offsets))
    for name, numbers in zip(("users", "items"), held_out(sim.prepared), strict=True):
        tensors[f"valid.{name}"] = torch.from_numpy(numbers)
    run.write_tensors("model", tensors)
    catalogue = dataset.catalogue
    names = {
        "users": [str(u) for u in dataset.users],
        "items": [str(i) for i in catalogue.ids],
        "titles": list(catalogue.title),
        "texts": list(catalogue.text),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(run.path / "checkpoint" / "names.json", names)
    if sim.prepared.text is not None:
        _link(sim.prepared.text.folder, run.path / "encoder")
    if sim.experiment.model.get("client") == "lora":
        write_peft(run.path / "adapters" / "lora", shared, sim.experiment.model["lora_alpha"], base="encoder")


def _newest_sessions(sim: Simulation | Continual) -> dict[str, torch.Tensor]:
    """Every user's newest training session, where clients read sessions: what a device knows of its user's present."""
    sessions = sim.prepared.sessions
    if sessions is None or sim.experiment.row.reads != "sessions":
        return {}
    some = sessions.train.counts > 0
    newest = sessions.train.values[sessions.train.offsets[1:][some] - 1]
    users = np.flatnonzero(some)
    own = {"items": sessions.items.take(newest), "times": sessions.times.take(newest)}
    rows = {name: Ragged.from_sorted(users[kept.rows], kept.values, len(some)) for name, kept in own.items()}
    columns = {f"session.{name}.values": np.ascontiguousarray(kept.values) for name, kept in rows.items()}
    columns |= {f"session.{name}.offsets": kept.offsets for name, kept in rows.items()}
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def held_out(prepared: Prepared) -> tuple[Ints, Ints]:
    """Users with a validation item in what was learned last, and that item (the first of several), int64 [n] both."""
    if prepared.blocks:
        block = prepared.blocks[-1]
        users = block.users("valid")
        return users.astype(np.int64), block.valid.values[block.valid.offsets[users]].astype(np.int64)
    split = list(prepared.splits.values())[-1]
    users = split.users("valid")
    return users.astype(np.int64), split.valid[users].astype(np.int64)


def _link(source: Path, target: Path) -> None:
    """The encoder's files in the run folder, as hard links where the file system allows."""
    target.mkdir(exist_ok=True)
    for file in sorted(p for p in source.iterdir() if p.is_file()):
        try:
            os.link(file, target / file.name)
        except OSError:
            write_atomic(target / file.name, partial(_pour, file))


def _pour(source: Path, into: BinaryIO) -> None:
    with open(source, "rb") as file:
        shutil.copyfileobj(file, into)


def export_run(
    run: Run, out: Path | None = None, progress: Progress | None = None, expires_days: int | None = None
) -> list[dict[str, Any]]:
    """Write a bundle for every device class of the run's fleet to `out` (default: in the run); one row per class.

    A class that lies there already with the same content is kept. Devices refuse the bundles `expires_days` after the
    run was made (None: never). Raises `InputError` for a run that is not whole, a folder in the way, and a full disk.

    Example: ``edgefr.export_run(edgefr.Run.open("runs/demo"), Path("shipped"))[0]["variant"]``
    """
    from export.bundle import export_bundles
    from export.footprint import Footprints

    check_shippable(run.experiment)
    experiment, tensors, names = run.experiment, run.read_tensors("model"), names_of(run)
    fleet = Fleet(load_fleet(run.path / "devices.yaml"), tensors["activity"].numpy(), experiment.seed)
    tables = {n: Ragged(tensors[f"{n}.values"].numpy(), tensors[f"{n}.offsets"].numpy()) for n in ("history", "train")}
    blocks = isinstance(experiment.protocol, Blocks)  # whose users may have learned in an earlier block alone
    users = np.flatnonzero(tables["train"].counts + (tables["history"].counts if blocks else 0))
    windowed = experiment.row.reads == "sessions"
    for name in ("session.items", "session.times") if windowed else ():
        tables[name] = Ragged(tensors[f"{name}.values"].numpy(), tensors[f"{name}.offsets"].numpy())
    rows = {name: table.take(users) for name, table in tables.items()}
    pool = tensors["pool"].numpy().astype(np.int64)
    program = program_of(run, experiment, tensors, len(names["items"]))
    encoder = run.path / "encoder" if "frozen.text" in tensors else None
    texts = names.get("texts", names["titles"])
    students: dict[str, Path] = {}
    if encoder is not None and experiment.export.students:
        from edgefr.students import students_of

        how, wanted = experiment.encoder.encode, experiment.export.students
        students = students_of(encoder, texts, wanted, how, experiment.seed, run.path / "students", progress)
    index = torch.from_numpy(users)
    return export_bundles(
        out=out if out is not None else run.path / "bundles",
        program=program,
        shared=part(tensors, "shared."),
        private={name: value[index] for name, value in part(tensors, "private.").items()},
        users=[names["users"][u] for u in users],
        history=rows["session.items"] if windowed else _past(rows) if program.needs_history else None,
        times=rows.get("session.times"),
        seen=_past(rows) if blocks else rows["train"],
        item_ids=names["items"],
        titles=names["titles"],
        encoder=encoder,
        pooling=experiment.encoder.encode.pooling,
        max_tokens=experiment.encoder.encode.max_tokens,
        classes={name: limits_of(fleet.spec, name) for name in fleet.classes},
        users_of={
            name: np.flatnonzero(fleet.device_of[users] == index).tolist() for index, name in enumerate(fleet.classes)
        },
        created=names["created"],
        provenance={
            "experiment": experiment.name,
            "data": experiment.data,
            "seed": experiment.seed,
            "pool": len(pool),
            **({} if experiment.privacy.examples is None else {"learning": ONLY_RECOMMENDS}),
        },
        seed=experiment.seed,
        offered=pool.tolist() if len(pool) < len(names["items"]) else None,
        expires_days=expires_days,
        numbers=users.tolist(),
        lessons=lessons_of(experiment, len(users)),
        students=students,
        texts=texts,
        vocabulary=experiment.export.vocabulary,
        held_out=_judged(tensors, users),
        rules=rules_of(experiment.export),
        footprints=Footprints(run.path / "footprints.json"),
        progress=progress,
    )


def limits_of(spec: FleetFile, name: str) -> ClassLimits:
    """What a device class allows, and what a call of a graph takes there by the fleet's cost model."""
    from export.variants import ClassLimits, Work

    device, runtime = spec.devices[name], spec.runtimes[spec.fleet.stack]
    fp32, int8 = device.compute.fp32_gflops.v, device.compute.int8_gops.v

    def seconds(work: Work) -> float:
        rate = int8 if work.integer else fp32
        took = cost.inference_seconds(work.flops, work.weights, rate, device.memory.copy_gbs.v)
        return float(took + cost.overhead_seconds(runtime.step_overhead_ms.v, fp32))

    return ClassLimits(device.memory.app_mb.v, runtime.rss_mb.v, None, seconds, device.power.active_w.v)


def rules_of(section: ExportSection) -> Rules:
    """The experiment's limits on what variants lose and take."""
    from export.variants import Rules

    deadline = None if section.deadline_ms is None else section.deadline_ms / 1e3
    return Rules(section.max_quality_loss, section.min_overlap, deadline, section.budget_j)


def _judged(tensors: dict[str, torch.Tensor], users: Ints) -> HeldOut | None:
    """Validation items of the users that are exported; None for a run that did not save them."""
    from export.quality import HeldOut

    if "valid.users" not in tensors:
        return None
    given, items = (tensors[f"valid.{name}"].numpy().astype(np.int64) for name in ("users", "items"))
    there = np.isin(given, users)
    return HeldOut(np.searchsorted(users, given[there]), items[there])


def names_of(run: Run) -> dict[str, Any]:
    """`users`, `items`, `titles` and when the run was `created`. Raises `InputError` for a run that is not whole."""
    try:
        names: dict[str, Any] = json.loads((run.path / "checkpoint" / "names.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the names of run {run.path}: {error}; run the experiment again") from None
    return names


def program_of(run: Run, experiment: Experiment, tensors: dict[str, torch.Tensor], items: int) -> LocalProgram:
    """The local program of a finished run, from its model's tensors."""
    row = experiment.row
    made = row.build(
        row.settings.model_validate(experiment.model),
        items,
        tensors.get("frozen.text"),
        experiment.local_epochs,
        partial(_reader, run, experiment, tensors),
    )
    return restricted(made, experiment.privacy.tensors)


def _reader(run: Run, experiment: Experiment, tensors: dict[str, torch.Tensor]) -> Reader:
    """What clients of the run read for themselves: the titles' tokens as they were, and the encoder."""
    from edgefr.methods.transfr.bert import Bert, Reader

    return Reader(tensors["frozen.tokens"], Bert.open(run.path / "encoder", experiment.encoder.encode.pooling))


def lessons_of(experiment: Experiment, clients: int) -> Lessons | None:
    """How the devices of a run learn; None where they cannot: for want of what the strategy remembers or pulls to, or
    since they would train without the noise of DP-SGD."""
    from edge.learning import ReleaseRecord, ReplayRecord
    from edgefr.engine.optimisers import adam, sgd
    from edgefr.methods.f3crec.memory import rule_of
    from export.learning import Lessons

    how, e = strategy(experiment.strategy), experiment
    if e.privacy.step is not None:  # an upload is float32, which does not hold every multiple of a step
        return None
    if e.privacy.examples is not None:
        return None
    if e.prototypes is not None and e.privacy.clip is not None:  # a device does not clip what it tells of a session
        return None
    if how.anchored or how.remembers not in ("nothing", "best") or how.replays == "discrepancy":
        return None
    rounds = e.rounds * (e.protocol.increments + 1 if isinstance(e.protocol, Blocks) else 1)
    resolved = plan(e.privacy, max(rounds, 1), e.cohort_size(clients), clients, e.aggregation.weights)
    noise = resolved.noise if resolved.where == "each upload" else None
    replay = None
    if how.remembers == "best":
        rule = rule_of(e.continual, how.replays, e.seed)
        replay = ReplayRecord(
            picks=how.replays,
            list_size=rule.list_size,
            shift_scale=rule.shift_scale,
            weight=rule.weight,
            reduction=rule.reduction,
        )
    sessions: dict[str, Any] = {}
    batch_size = e.batch_size
    if isinstance(e.protocol, SessionsProtocol) and e.row.reads == "sessions":
        sessions = {"gap_s": round(60 * e.protocol.gap_minutes), "receiver_noise": e.model["receiver_noise"]}
        batch_size = e.model["length"] * (1 + e.negatives)  # a window is one batch
    return Lessons(
        optimisers={"sgd": sgd, "adam": adam},
        negatives=e.negatives,
        batch_size=batch_size,
        **sessions,
        seed=e.seed,
        round=rounds,
        release=ReleaseRecord(
            clip=resolved.clip,
            norm=resolved.norm,
            noise=noise.kind if noise else None,
            scale=noise.scale if noise else 0.0,
            weights=e.aggregation.weights,
            project=e.privacy.project,
        ),
        replay=replay,
    )


def part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors of a run's model whose names start with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _past(rows: dict[str, Ragged]) -> Ragged:
    """Items of all blocks, the last included."""
    from edgefr.measure import joined

    return joined(rows["history"], rows["train"])
