"""Bundles are written as one folder per device class, wholly there or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from pydantic import JsonValue as Json
from pydantic import TypeAdapter, ValidationError

from edge.bundle import Bundle, open_bundle
from edge.manifest import SIGNATURE, canonical
from edge.manifest_check import ALWAYS
from edge.policy import Policy
from edge.recommender import Recommender
from export.candidates import candidates
from export.cold_start import stage_start, start_list
from export.encoders import Reads
from export.folder import Kit, PlannedBundle, Provenance, fill, place
from export.graphs import VECTORS
from export.learning import LearningSpec, stage_learning, trained_tables
from export.model import TrainedModel, check
from export.parity import Reference, compare
from export.program import LocalProgram
from export.quality import Judge
from export.shared_files import item_tables, stage_catalogue, stage_scoring, stage_tables
from export.sign import signature_of
from export.staged_files import Staging
from export.variants import (
    Candidate,
    ClassLimits,
    Rules,
    choose,
    energy_j,
    in_order,
    latency_s,
    memory_mb,
    why_not,
)
from privacy.errors import InputError, unknown
from privacy.files import beside, write_atomic
from privacy.progress import Progress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Targets:
    """These are the device classes that bundles are made for, and the numbers of the users that sit on each.

    A finished bundle is compared with the model on its users. `with_users`: it carries them too, private state and
    names, for tests that compare devices with the simulator; no device needs them.
    """

    classes: Mapping[str, ClassLimits]
    users_of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    with_users: bool = False


def export_bundles(
    out: Path,
    model: TrainedModel,
    targets: Targets,
    provenance: Provenance,
    *,
    text: Reads | None = None,
    learning: LearningSpec | None = None,
    rules: Rules | None = None,
    key: Ed25519PrivateKey | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write the bundle of every device class to out/<class>; a row per class: what it got, how it compares.

    `text`: the encoder whose vectors the program's frozen tables hold (ignored when it holds none). `learning`: how
    devices learn (None: they only recommend). `rules` say what a variant may lose and take; the model's held-out items
    measure quality (None: not measured). `key` signs them (None: nobody does, and devices refuse them by default).

    Rows: class, variant, files_mb, item_vectors, encoder ("f32", "f16", "i8", "i4", a student's after its name, or
    None), memory_mb, latency_ms and energy_mj (of a recommendation and reading one text; None: not known), fits, lacks
    (what the class has too little of, or None), overlap and hr_kept (None: not measured), considered (every variant
    with the same figures, the best first, and why not), parity_users, max_score_error, top10_equal, encoder_cosine,
    policy_needs (keys and values without which a device's default policy lets no update leave; None: none is made),
    bundle_id, path, written (False: was there). Raises `InputError` for parts that do not belong together, for a folder
    that holds anything but the same bundle, and for a class whose every variant loses too much.
    """
    out, classes = Path(out), targets.classes
    _check_targets(out, targets, len(model.names.users))
    check(model)
    origin = replace(provenance, facts=_plain(provenance.facts))
    tell = progress or (lambda stage, done, total, note: None)
    with beside(out / "parts") as scratch:
        staged = lambda note: tell("export", 0, len(classes), note)  # noqa: E731
        kit, whole = _kit(Staging(scratch), model, origin, text, learning, staged)
        tell("export", 0, len(classes), "measuring the variants")
        judge: Judge | None = None
        if model.held_out is not None and len(model.held_out.users):
            judge = Judge(model, whole, origin.seed)
        found = candidates(kit, whole, model.names.read, judge)
        rules = rules or Rules()
        choices = {name: choose(found, name, limits, rules) for name, limits in classes.items()}
        encoder_in = [name for name, choice in choices.items() if choice.candidate.variant.encoder]
        reference, rows = Reference(model, _read(whole)), []
        for done, (name, choice) in enumerate(choices.items()):
            tell("export", done, len(classes), name)
            users = [int(user) for user in targets.users_of.get(name, ())]
            plan = PlannedBundle(
                name, choice, memory_mb(choice.candidate, classes[name]), users, encoder_in, targets.with_users
            )
            row = _one(kit, plan, out / name, reference, key)
            considered = [_considered(one, classes[name], rules) for one in in_order(found)]
            row |= _figures(choice.candidate, classes[name]) | {"lacks": choice.lacks, "considered": considered}
            rows.append(row)
        tell("export", len(classes), len(classes), "")
    return rows


def _kit(
    stage: Staging,
    model: TrainedModel,
    origin: Provenance,
    text: Reads | None,
    learning: LearningSpec | None,
    tell: Callable[[str], None],
) -> tuple[Kit, dict[str, npt.NDArray[Any]]]:
    """Stage what all bundles have in common; return it with the unquantised tables [items, width] by name."""
    program, names, kit = model.program, model.names, Kit(model, stage, origin)
    stage_catalogue(stage, names.items, names.titles, model.pool)
    whole = item_tables(model)
    kit.tables = stage_tables(stage, whole, () if learning is None else trained_tables(program))
    if text is not None and program.frozen:
        tell("tracing the text encoders")
        kit.encoders = text.forms(stage, names.read)
        _check_width(program, next(iter(kit.encoders.values())).record.width)
    tell("tracing the score graph")
    stage_scoring(stage, model, origin.seed)
    if learning is not None:
        tell("tracing and rehearsing the training steps")
        kit.learning = stage_learning(stage, program, learning)
    kit.start = stage_start(stage, start_list(model, origin.seed, origin.counted, _read(whole)))
    return kit, whole


def _read(whole: Mapping[str, npt.NDArray[Any]]) -> dict[str, torch.Tensor]:
    """Return the items' vectors where clients read texts themselves, in place of what is read for each."""
    return {VECTORS: torch.from_numpy(whole[VECTORS])} if VECTORS in whole else {}


def _considered(candidate: Candidate, limits: ClassLimits, rules: Rules) -> dict[str, Any]:
    """Return what a variant would be on a class, and why it cannot be used there (None: it can)."""
    size = {"variant": candidate.variant.name, "files_mb": candidate.size.files / 1e6}
    return size | _figures(candidate, limits) | {"why": why_not(candidate, limits, rules)}


def _figures(candidate: Candidate, limits: ClassLimits) -> dict[str, Any]:
    quality = candidate.quality
    seconds, joules = latency_s(candidate, limits), energy_j(candidate, limits)
    return {
        "memory_mb": memory_mb(candidate, limits),
        "latency_ms": None if seconds is None else 1e3 * seconds,
        "energy_mj": None if joules is None else 1e3 * joules,
        "overlap": None if quality is None else quality.overlap,
        "hr_kept": None if quality is None else quality.kept,
    }


def _one(
    kit: Kit, plan: PlannedBundle, target: Path, reference: Reference, key: Ed25519PrivateKey | None
) -> dict[str, Any]:
    """Write and sign one bundle, open and compare it as a device would, put it into place; its row."""
    variant, form = plan.variant, kit.form(plan.variant)
    with beside(target) as folder:
        manifest = fill(folder, kit, plan)
        if key is not None:
            write_atomic(folder / SIGNATURE, signature_of("bundle", canonical(manifest), key))
        opened = Recommender(folder)
        parity = compare(opened, reference, plan.users)
        written = place(folder, target, manifest.bundle_id)
    return {
        "class": plan.device_class,
        "variant": variant.name,
        "files_mb": sum(f.size for f in manifest.files) / 1e6,
        "item_vectors": variant.table,
        "encoder": variant.encoder,
        "fits": plan.choice.lacks is None,
        "parity_users": parity.users,
        "max_score_error": parity.max_score_error,
        "top10_equal": parity.top10_equal,
        "encoder_cosine": None if form is None else form.cosine,
        "policy_needs": _policy_needs(opened.bundle, signed=key is not None),
        "bundle_id": manifest.bundle_id,
        "path": str(target),
        "written": written,
    }


def _policy_needs(bundle: Bundle, *, signed: bool) -> list[str] | None:
    """Return what a device's default policy lacks to let updates of a bundle leave, the key that signed it trusted."""
    learning = bundle.config.learning
    if learning is None:
        return None
    by = "the publisher's key" if signed else None
    return Policy().needs(learning.release, bundle.manifest.privacy, by, learning.leaving)


def _check_targets(out: Path, targets: Targets, users: int) -> None:
    """Check before any work that there are plain class names, known users, and nothing in the way but bundles."""
    classes, users_of = targets.classes, targets.users_of
    if not classes:
        raise InputError("no device classes to export for; give at least one")
    for name in users_of:
        if name not in classes:
            raise unknown("device class", name, classes)
        wrong = [user for user in users_of[name] if not 0 <= user < users]
        if wrong:
            raise InputError(f"device class {name} has user number {wrong[0]}, but there are {users} users")
    for name in classes:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise InputError(f"device class '{name}' cannot name a folder; use letters, digits, '_', '-' and '.'")
        if (out / name).exists():
            try:
                open_bundle(out / name, now=ALWAYS)
            except InputError as error:
                raise InputError(f"{out / name} is in the way: {error}") from error


def _check_width(program: LocalProgram, width: int) -> None:
    widths = {name: int(table.shape[1]) for name, table in program.frozen.items()}
    if width not in widths.values():
        raise InputError(f"the encoder makes vectors of {width} values, but the items' have {widths}; give their own")


def _plain(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        values: dict[str, Any] = TypeAdapter(dict[str, Json]).validate_python(dict(provenance))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:1])
        raise InputError(f"provenance '{where}' is not plain JSON; give texts, numbers and lists") from error
    return values
