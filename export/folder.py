"""The folder of one bundle: written beside its place, opened as a device would, then renamed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edge.bundle import open_bundle
from edge.learning import Learning
from edge.manifest import (
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
from export.clients import Users
from export.encoders import Form
from export.graphs import EXPLAIN, window_of
from export.learning import paths as learning_paths
from export.model_card import model_card
from export.program import LocalProgram, SessionProgram
from export.shared_files import IDS, INIT, SCORE, SHARED
from export.staged_files import Staging
from export.trace import IR, OPSET
from export.variants import Size, Variant
from privacy.errors import InputError
from privacy.files import packed, settle, write_atomic

MIN_ORT = "1.17"  # oldest release the graphs were tried with
USERS, PRIVATE = "private/users.json", "private/users.safetensors"


@dataclass(frozen=True)
class Kit:
    """All bundles of one export have this in common."""

    program: LocalProgram
    users: Users
    stage: Staging
    tables: Mapping[TableType, list[Table]]
    encoders: Mapping[str, Form]
    items: int
    created: str
    serial: int
    provenance: dict[str, Any]
    expires: str | None = None
    learning: Learning | None = None
    promise: Promise | None = None
    start: Start | None = None

    def paths(self, variant: Variant) -> list[str]:
        """Return the staged files of a variant."""
        tables = [path for t in self.tables[variant.table] for path in (t.path, t.scale) if path]
        form = self.form(variant)
        encoder = () if form is None else form.record.files
        learning = learning_paths(self.learning) if self.learning else []
        told = [EXPLAIN] if self.program.explains else []
        start = [] if self.start is None else [self.start.path]
        return list(dict.fromkeys([SCORE, *told, *learning, *encoder, *tables, IDS, SHARED, INIT, *start]))

    def size(self, variant: Variant) -> Size:
        """Bytes a device keeps; simulated users are carried for tests and do not count."""
        files = [self.stage.files[path] for path in self.paths(variant)]
        return Size(sum(f.size for f in files), sum(f.size for f in files if f.role == "encoder"))

    def form(self, variant: Variant) -> Form | None:
        return None if variant.encoder is None else self.encoders[variant.encoder]


@dataclass(frozen=True)
class Plan:
    """A plan is one class's bundle: what was chosen for it, its users, and which classes get an encoder.

    `users` are compared with the finished bundle; `carried`: whether they are in it, for tests alone.
    """

    device_class: str
    variant: Variant
    memory_mb: float
    fits: bool
    users: list[int]
    encoder_in: list[str]
    carried: bool = False


def fill(folder: Path, kit: Kit, plan: Plan) -> Manifest:
    """Write all files of one bundle, the manifest last."""
    form, sessions = kit.form(plan.variant), isinstance(kit.program, SessionProgram)
    config = Config(
        score=SCORE,
        tables=kit.tables[plan.variant.table],
        history=kit.program.needs_history,
        window=window_of(kit.program) if sessions else None,
        last=None if sessions else window_of(kit.program),
        explain=EXPLAIN if kit.program.explains else None,
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
        _add_users(own, kit.users, plan.users)
    own.add("MODEL_CARD.md", "card", model_card(manifest, config, plan.fits, None if form is None else form.cosine))
    shared = [kit.stage.files[path] for path in kit.paths(plan.variant)]
    for entry in shared:
        write_atomic(folder / entry.path, _copy(kit.stage.root / entry.path))
    files: list[File] = sorted([*own.files.values(), *shared], key=lambda f: f.path)
    manifest = manifest.model_copy(update={"files": files})
    manifest = manifest.model_copy(update={"bundle_id": identify(manifest)})
    write_atomic(folder / MANIFEST, canonical(manifest))
    return manifest


def _add_users(own: Staging, users: Users, chosen: list[int]) -> None:
    own.add(PRIVATE, "private", packed(users.columns(chosen)))
    ids = {"users": [users.ids[u] for u in chosen], "numbers": [users.number(u) for u in chosen]}
    own.add(USERS, "private", json.dumps(ids, ensure_ascii=False))


def place(folder: Path, target: Path, bundle_id: str) -> bool:
    """Rename a finished bundle into place; if it was there, sign it anew and say False. `InputError` for another."""
    if target.exists():
        there = open_bundle(target, now=ALWAYS).manifest.bundle_id
        if there != bundle_id:
            raise InputError(
                f"{target} holds another bundle ({there[:12]}, not {bundle_id[:12]}); choose another folder"
            )
        _sign_again(folder, target)
        return False
    settle(folder, target)
    return True


def _sign_again(folder: Path, target: Path) -> None:
    new, old = folder / SIGNATURE, target / SIGNATURE
    if new.exists() and not (old.exists() and old.read_bytes() == new.read_bytes()):
        write_atomic(old, new.read_bytes())


def _draft(kit: Kit, plan: Plan) -> Manifest:
    specs, form = kit.program.specs, kit.form(plan.variant)
    return Manifest(
        schema_=SCHEMA,
        bundle_id="0" * 64,
        serial=kit.serial,
        created=kit.created,
        expires=kit.expires,
        method=kit.program.name,
        device_class=plan.device_class,
        variant=plan.variant.name,
        onnx=Onnx(opset=OPSET, ir=IR, min_ort=MIN_ORT),
        model=Sizes(
            shared_parameters=sum(s.size for s in specs.values() if s.place == "shared" and s.kind == "dense"),
            private_parameters=sum(specs[name].size for name in kit.users.private),
            encoder_parameters=0 if form is None else form.parameters,
            users=len(plan.users) if plan.carried else 0,
            memory_mb=round(plan.memory_mb, 3),
        ),
        privacy=kit.promise,
        item_count=kit.items,
        ids_file=IDS,
        provenance=kit.provenance,
        files=[],
    )


def _copy(source: Path) -> Callable[[BinaryIO], object]:
    def write(file: BinaryIO) -> None:
        with open(source, "rb") as whole:
            shutil.copyfileobj(whole, file)

    return write
