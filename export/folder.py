"""The folder of one bundle: written beside its place, opened as a device would, then renamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from edge.bundle import open_bundle
from edge.learning import Learning
from edge.manifest import (
    LASTS_DAYS,
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    Config,
    File,
    Manifest,
    Onnx,
    Promise,
    Sizes,
    Start,
    Table,
    TableType,
    canonical,
    identify,
)
from edge.manifest_check import ALWAYS
from export.encoders import StagedEncoder
from export.graphs import EXPLAIN
from export.learning import paths as learning_paths
from export.model import TrainedModel
from export.model_card import model_card
from export.program import SessionProgram
from export.shared_files import IDS, INIT, SCORE, SHARED
from export.staged_files import Staging
from export.trace import IR, OPSET
from export.variants import Choice, Size, Variant
from privacy.errors import InputError
from privacy.files import packed, settle, share, write_atomic

MIN_ORT = "1.17"  # oldest release the graphs were tried with
LONGEST = 36_500  # days: nobody means more
USERS, PRIVATE = "private/users.json", "private/users.safetensors"


@dataclass(frozen=True)
class Provenance:
    """This says where bundles come from.

    `created` (ISO 8601) belongs to the run, so exporting it again gives the same bundle_id.

    `facts` are plain JSON. `seed` makes the private tensors a new device starts from. Devices refuse the bundles
    `expires_days` after `created` (None: never). `promise`: what is promised of a client's data (None: nothing).
    `counted`: bundles may rank items by how many people had them, which is nothing that anybody was promised.
    """

    created: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    expires_days: int | None = LASTS_DAYS
    promise: Promise | None = None
    counted: bool = False

    def __post_init__(self) -> None:
        if self.counted and self.promise is not None:
            raise ValueError("what people had is not counted where something is promised of it")

    @property
    def moment(self) -> datetime:
        """Return `created`; raises `InputError` for what is no ISO 8601 time."""
        try:
            moment = datetime.fromisoformat(self.created)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, TypeError, OverflowError) as error:
            wanted = "an ISO 8601 time such as 2026-11-21T10:00:00+00:00"
            raise InputError(f"created must be {wanted}, got {self.created!r}") from error

    @property
    def expires(self) -> str | None:
        """Return when the bundles expire, ISO 8601. Raises `InputError` where that is past."""
        days = self.expires_days
        if days is None:
            return None
        if not 1 <= days <= LONGEST:
            raise InputError(f"expires_days must be from 1 to {LONGEST:,}, got {days}")
        end = (self.moment + timedelta(days=days)).isoformat()
        if self.moment + timedelta(days=days) <= datetime.now(UTC):
            raise InputError(f"made {self.created}, with expires_days={days} the bundles expired on {end}; give more")
        return end


@dataclass
class Kit:
    """All bundles of one export have this in common; what is staged is filled in as it is."""

    model: TrainedModel
    stage: Staging
    origin: Provenance
    tables: Mapping[TableType, list[Table]] = field(default_factory=dict)
    encoders: Mapping[str, StagedEncoder] = field(default_factory=dict)
    learning: Learning | None = None
    start: Start | None = None

    @property
    def items(self) -> int:
        return len(self.model.names.items)

    def paths(self, variant: Variant) -> list[str]:
        """Return the staged files of a variant."""
        tables = [path for t in self.tables[variant.table] for path in (t.path, t.scale) if path]
        form = self.form(variant)
        encoder = () if form is None else form.record.files
        learning = learning_paths(self.learning) if self.learning else []
        told = [EXPLAIN] if self.model.program.explains else []
        start = [] if self.start is None else [self.start.path]
        return list(dict.fromkeys([SCORE, *told, *learning, *encoder, *tables, IDS, SHARED, INIT, *start]))

    def size(self, variant: Variant) -> Size:
        """Bytes a device keeps; simulated users are carried for tests and do not count."""
        files = [self.stage.files[path] for path in self.paths(variant)]
        return Size(sum(f.size for f in files), sum(f.size for f in files if f.role == "encoder"))

    def form(self, variant: Variant) -> StagedEncoder | None:
        return None if variant.encoder is None else self.encoders[variant.encoder]


@dataclass(frozen=True)
class PlannedBundle:
    """A plan is one class's bundle: what was chosen for it, its users, and which classes get an encoder.

    `users` are compared with the finished bundle; `carried`: whether they are in it, for tests alone.
    """

    device_class: str
    choice: Choice
    memory_mb: float
    users: list[int]
    encoder_in: list[str]
    carried: bool = False

    @property
    def variant(self) -> Variant:
        return self.choice.candidate.variant


def fill(folder: Path, kit: Kit, plan: PlannedBundle) -> Manifest:
    """Write all files of one bundle, the manifest last."""
    form, program, model = kit.form(plan.variant), kit.model.program, kit.model
    sessions = isinstance(program, SessionProgram)
    config = Config(
        score=SCORE,
        tables=kit.tables[plan.variant.table],
        history=program.needs_history,
        window=program.window if sessions else None,
        last=None if sessions else program.window,
        explain=EXPLAIN if program.explains else None,
        shared=SHARED,
        users=USERS if plan.carried else None,
        private=PRIVATE if plan.carried else None,
        init=INIT,
        learning=kit.learning,
        start=kit.start,
        encoder=None if form is None else form.record,
        encoder_in=plan.encoder_in,
    )
    manifest = _draft(kit, plan)
    own = Staging(folder)
    own.add("config.json", "config", json.dumps(config.model_dump(mode="json"), indent=2) + "\n")
    if plan.carried:
        own.add(PRIVATE, "private", packed(model.columns(plan.users)))
        ids = {"users": [model.names.users[u] for u in plan.users], "numbers": [model.number(u) for u in plan.users]}
        own.add(USERS, "private", json.dumps(ids, ensure_ascii=False))
    own.add(
        "MODEL_CARD.md",
        "card",
        model_card(manifest, config, plan.choice.lacks is None, None if form is None else form.cosine),
    )
    shared = [kit.stage.files[path] for path in kit.paths(plan.variant)]
    for entry in shared:
        share(kit.stage.root / entry.path, folder / entry.path)
    files: list[File] = sorted([*own.files.values(), *shared], key=lambda f: f.path)
    manifest = manifest.model_copy(update={"files": files})
    manifest = manifest.model_copy(update={"bundle_id": identify(manifest)})
    write_atomic(folder / MANIFEST, canonical(manifest))
    return manifest


def place(folder: Path, target: Path, bundle_id: str) -> bool:
    """Rename a finished bundle into place; if it was there, sign it anew and say False. `InputError` for another."""
    if target.exists():
        there = open_bundle(target, now=ALWAYS).manifest.bundle_id
        if there != bundle_id:
            raise InputError(
                f"{target} holds another bundle ({there[:12]}, not {bundle_id[:12]}); choose another folder"
            )
        new, old = folder / SIGNATURE, target / SIGNATURE
        if new.exists() and not (old.exists() and old.read_bytes() == new.read_bytes()):
            write_atomic(old, new.read_bytes())
        return False
    settle(folder, target)
    return True


def _draft(kit: Kit, plan: PlannedBundle) -> Manifest:
    specs, form = kit.model.program.specs, kit.form(plan.variant)
    return Manifest(
        schema_=SCHEMA,
        bundle_id="0" * 64,
        serial=int(kit.origin.moment.timestamp()),
        created=kit.origin.created,
        expires=kit.origin.expires,
        method=kit.model.program.name,
        device_class=plan.device_class,
        variant=plan.variant.name,
        onnx=Onnx(opset=OPSET, ir=IR, min_ort=MIN_ORT),
        model=Sizes(
            shared_parameters=sum(s.size for s in specs.values() if s.place == "shared" and s.kind == "dense"),
            private_parameters=sum(specs[name].size for name in kit.model.private),
            encoder_parameters=0 if form is None else form.parameters,
            users=len(plan.users) if plan.carried else 0,
            memory_mb=round(plan.memory_mb, 3),
        ),
        privacy=kit.origin.promise,
        item_count=kit.items,
        ids_file=IDS,
        provenance=dict(kit.origin.facts),
        files=[],
    )
