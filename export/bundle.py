"""Writing bundles: one folder per device class, wholly there or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue as Json
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from edge.admission import ALWAYS
from edge.bundle import open_bundle
from edge.manifest import Pooling
from edge.recommender import Recommender
from export.candidates import candidates
from export.clients import Rows, Users, check
from export.encoders import Reading, stage_encoders
from export.folder import Kit, Plan, fill, place
from export.footprint import Footprints
from export.graphs import VECTORS
from export.learning import Lessons, stage_learning, trained_tables
from export.parity import Reference, compare
from export.parts import item_tables, stage_catalogue, stage_scoring, stage_tables
from export.quality import HeldOut, Judge
from export.stage import Stage
from export.variants import Choice, ClassLimits, Rules, choose, energy_j, latency_s, memory_mb
from privacy.errors import InputError, unknown
from privacy.files import beside

Progress = Callable[[str, int, int, str], None] | None
LONGEST = 36_500  # days: nobody means more


def export_bundles(
    *,
    out: Path,
    program: Any,
    shared: Mapping[str, Tensor],
    private: Mapping[str, Tensor],
    users: Sequence[str],
    history: Rows | None,
    seen: Rows,
    item_ids: Sequence[str],
    titles: Sequence[str],
    encoder: Path | None,
    pooling: Pooling,
    max_tokens: int,
    classes: Mapping[str, ClassLimits],
    users_of: Mapping[str, Sequence[int]],
    created: str,
    provenance: Mapping[str, Any],
    seed: int = 0,
    offered: Sequence[int] | None = None,
    expires_days: int | None = None,
    numbers: Sequence[int] | None = None,
    lessons: Lessons | None = None,
    students: Mapping[str, Path] | None = None,
    texts: Sequence[str] | None = None,
    vocabulary: int | None = None,
    held_out: HeldOut | None = None,
    rules: Rules | None = None,
    footprints: Footprints | None = None,
    times: Rows | None = None,
    progress: Progress = None,
) -> list[dict[str, Any]]:
    """Write the bundle of every device class to out/<class>; a row per class: what it got, how it compares.

    `shared` are whole tensors, `private` [U, ...] per user of `users`; clients without personal layers lack
    those tensors. `history` and `seen` are ragged item numbers per user; of programs that read sessions, `history` is
    each user's newest session in order and `times` its moments in unix seconds, rows alike. `encoder` is a transformers
    folder whose vectors `program.frozen` holds (ignored when it holds none). `users_of` says which users sit on which
    class. `created` is ISO 8601 and belongs to the run: exporting it again gives the same bundle_id.
    `seed` makes the private tensors a new device starts from. `offered` are the items that may be recommended
    (None: all), where others are in the catalogue only because they are in users' histories. Devices refuse the
    bundles `expires_days` after `created` (None: never). `numbers` key the users' draws in the run (None: 0, 1, ...).
    `lessons`: how devices learn (None: they only recommend).

    Variants: `students` are smaller encoders by name, in folders like `encoder`'s; `texts` is what encoders read of
    each item (None: the titles), `vocabulary` the pieces they keep (None: all). `held_out` items measure quality (None:
    not measured), `footprints` measure memory (None: estimated); `rules` say what a variant may lose and take.

    Rows: class, variant, files_mb, item_vectors, encoder ("f32", "f16", "i8", "i4", a student's after its name, or
    None), memory_mb, memory_from ("measured" or "estimate"), latency_ms and energy_mj (of a recommendation and reading
    one text; None: not known), fits, lacks (what the class has too little of, or None), overlap and hr_kept (None: not
    measured), passed_over (better variants and why not), parity_users, max_score_error, top10_equal, encoder_cosine,
    bundle_id, path, written (False: was there).
    Raises `InputError` for parts that do not belong together, for a folder that holds anything but the same bundle, and
    for a class whose every variant loses too much.
    """
    out, everyone = Path(out), Users(list(users), private, history, seen, numbers, times)
    _check_targets(out, classes, users_of, len(users))
    check(program, everyone, shared, len(item_ids))
    serial, origin, expires = _seconds(created), _plain(provenance), _expiry(created, expires_days)
    tell = progress or (lambda stage, done, total, note: None)
    with beside(out / "parts") as scratch:
        stage = Stage(scratch)
        stage_catalogue(stage, item_ids, titles, offered)
        whole = item_tables(program, shared, len(item_ids))
        tables = stage_tables(stage, whole, () if lessons is None else trained_tables(program))
        forms, texts = {}, titles if texts is None else texts
        if encoder is not None and program.frozen:
            tell("export", 0, len(classes), "tracing the text encoders")
            reading = Reading(pooling, max_tokens, vocabulary, texts)
            forms = stage_encoders(stage, {"": Path(encoder), **(students or {})}, reading)
            _check_width(program, forms["f32"].record.width, Path(encoder))
        tell("export", 0, len(classes), "tracing the score graph")
        stage_scoring(stage, program, shared, everyone, seed)
        if lessons is not None:
            tell("export", 0, len(classes), "tracing and rehearsing the training steps")
        learning = None if lessons is None else stage_learning(stage, program, lessons)
        kit = Kit(program, everyone, stage, tables, forms, len(item_ids), created, serial, origin, expires, learning)
        judge = None
        if held_out is not None and len(held_out.users):
            judge = Judge(program, shared, everyone, whole, held_out, offered, seed)
        tell("export", 0, len(classes), "measuring the variants")
        found = candidates(kit, whole, texts, judge, footprints, scratch / "measured")
        choices = {name: choose(found, name, limits, rules or Rules()) for name, limits in classes.items()}
        read = {VECTORS: torch.from_numpy(whole[VECTORS])} if VECTORS in whole else {}
        reference, rows = Reference(program, shared, everyone, read), []
        for done, (plan, choice) in enumerate(_plans(choices, classes, users_of)):
            tell("export", done, len(classes), plan.device_class)
            row = _one(kit, plan, out / plan.device_class, reference)
            rows.append(row | _figures(choice, classes[plan.device_class]))
        tell("export", len(classes), len(classes), "")
    return rows


def _plans(
    choices: Mapping[str, Choice], classes: Mapping[str, ClassLimits], users_of: Mapping[str, Sequence[int]]
) -> list[tuple[Plan, Choice]]:
    """What is written for every class."""
    encoder_in = [name for name, choice in choices.items() if choice.candidate.variant.encoder]
    return [
        (
            Plan(
                device_class=name,
                variant=choice.candidate.variant,
                # never the measured figure: exporting a run again must give the same bundle
                memory_mb=memory_mb(replace(choice.candidate, footprint=None), classes[name]),
                fits=choice.lacks is None,
                users=[int(user) for user in users_of.get(name, ())],
                encoder_in=encoder_in,
            ),
            choice,
        )
        for name, choice in choices.items()
    ]


def _figures(choice: Choice, limits: ClassLimits) -> dict[str, Any]:
    """What a variant costs the class, and what it keeps."""
    candidate, quality = choice.candidate, choice.candidate.quality
    seconds, joules = latency_s(candidate, limits), energy_j(candidate, limits)
    return {
        "memory_mb": memory_mb(candidate, limits),
        "memory_from": "estimate" if candidate.footprint is None else "measured",
        "latency_ms": None if seconds is None else 1e3 * seconds,
        "energy_mj": None if joules is None else 1e3 * joules,
        "overlap": None if quality is None else quality.overlap,
        "hr_kept": None if quality is None else quality.kept,
        "lacks": choice.lacks,
        "passed_over": [{"variant": name, "why": why} for name, why in choice.passed_over],
    }


def _one(kit: Kit, plan: Plan, target: Path, reference: Reference) -> dict[str, Any]:
    """Write one bundle, open and compare it as a device would, put it into place; its row."""
    form = kit.form(plan.variant)
    with beside(target) as folder:
        manifest = fill(folder, kit, plan)
        parity = compare(Recommender(folder), reference, kit.users, plan.users)
        written = place(folder, target, manifest.bundle_id)
    return {
        "class": plan.device_class,
        "variant": plan.variant.name,
        "files_mb": sum(f.size for f in manifest.files) / 1e6,
        "item_vectors": plan.variant.table,
        "encoder": plan.variant.encoder,
        "fits": plan.fits,
        "parity_users": parity.users,
        "max_score_error": parity.max_score_error,
        "top10_equal": parity.top10_equal,
        "encoder_cosine": None if form is None else form.cosine,
        "bundle_id": manifest.bundle_id,
        "path": str(target),
        "written": written,
    }


def _check_targets(
    out: Path, classes: Mapping[str, ClassLimits], users_of: Mapping[str, Sequence[int]], users: int
) -> None:
    """Before any work: plain class names, known users, and nothing in the way but bundles."""
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


def _check_width(program: Any, width: int, folder: Path) -> None:
    widths = {name: int(table.shape[1]) for name, table in program.frozen.items()}
    if width not in widths.values():
        raise InputError(f"{folder} makes vectors of {width} values, but the items' have {widths}; give their encoder")


def _seconds(created: str) -> int:
    """`created` in seconds since 1970: the manifest's serial."""
    return int(_moment(created).timestamp())


def _expiry(created: str, days: int | None) -> str | None:
    """`days` after `created`, ISO 8601, which must not be past yet."""
    if days is None:
        return None
    if not 1 <= days <= LONGEST:
        raise InputError(f"expires_days must be from 1 to {LONGEST:,}, got {days}")
    end = _moment(created) + timedelta(days=days)
    if end <= datetime.now(UTC):
        raise InputError(
            f"made {created}, with expires_days={days} the bundles expired on {end.isoformat()}; give more"
        )
    return end.isoformat()


def _moment(created: str) -> datetime:
    """`created` as a time, in UTC when it does not say."""
    try:
        moment = datetime.fromisoformat(created)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"created must be an ISO 8601 time such as 2026-11-21T10:00:00+00:00, got {created!r}"
        ) from error


def _plain(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Provenance as JSON values."""
    try:
        values: dict[str, Any] = TypeAdapter(dict[str, Json]).validate_python(dict(provenance))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:1])
        raise InputError(f"provenance '{where}' is not plain JSON; give texts, numbers and lists") from error
    return values
