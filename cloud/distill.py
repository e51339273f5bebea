"""Hierarchical knowledge distillation: a small BERT that attends as a large one does (TransFR §3.2.2).

student = distill(texts, DistillSettings(layers=2, hidden=156, layer_map=[3, 6]), Path("cache"))
AutoModel.from_pretrained(student.path)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor, nn

from cloud import random_streams as purposes
from cloud.batches import Ints, Tokens, by_length, corpus, digest_of, padded, tokenise, visit
from cloud.distillation import STARTS, TERMS, DistillSettings, Lesson
from cloud.encode import vectors_of
from cloud.model_folder import digest, open_config, open_model, open_tokenizer, resolve, save, usable_device
from cloud.settings import EncodeSettings
from cloud.student import layer_map, new_student, student_config
from cloud.train import TrainingSchedule, few_threads, train
from privacy import keyed
from privacy.errors import InputError
from privacy.files import write_atomic, write_json
from privacy.machine import hold
from privacy.progress import Progress

Matrix = npt.NDArray[np.floating]


def cosine_after_fit(student: Matrix, teacher: Matrix, seed: int) -> float | None:
    """Return the mean cosine between teacher vectors and the best linear map of student vectors, on held-out texts.

    `student` [n, f], `teacher` [n, f']. The map (with an offset) is fitted by least squares on a keyed 80 % of the
    texts and judged on the rest. None when there are too few texts to fit it (fewer than f + 1 to fit on).
    """
    count, width = student.shape
    held_out = np.zeros(count, dtype=bool)
    held_out[keyed.choose(keyed.key(seed, purposes.HELD_OUT), np.arange(count), count // 5)] = True
    if not held_out.any() or count - held_out.sum() <= width:
        return None
    inputs = np.hstack([student, np.ones((count, 1))]).astype(np.float64)
    fit, *_ = np.linalg.lstsq(inputs[~held_out], teacher[~held_out].astype(np.float64), rcond=None)
    return float((unit(inputs[held_out] @ fit) * unit(teacher[held_out])).sum(1).mean())


def neighbours_overlap(student: Matrix, teacher: Matrix, count: int = 10) -> float | None:
    """Return the share of each text's `count` nearest neighbours that both spaces agree on, mean over texts.

    `student` [n, f], `teacher` [n, f']; a text is not its own neighbour. None when there are no more than
    `count` other texts, since every text would be everyone's neighbour.
    """
    if len(student) <= count + 1:
        return None
    mine, theirs = (nearest(vectors, count) for vectors in (student, teacher))
    return float((mine[:, :, None] == theirs[:, None, :]).any(2).mean())


def nearest(vectors: Matrix, count: int) -> npt.NDArray[np.int64]:
    """Return the `count` other rows of highest cosine, nearest first, ties by number: [n, count]."""
    normal = unit(vectors)
    similarity = normal @ normal.T
    np.fill_diagonal(similarity, -np.inf)
    return np.argsort(-similarity, axis=1, kind="stable")[:, :count]


def unit(vectors: Matrix) -> Matrix:
    """Return rows of length 1; a zero row stays zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)


EVERYTHING = {"output_attentions": True, "output_hidden_states": True}
RECIPE = 1  # raise it when the same settings would give another student: it is part of the cache's key
KEPT_BYTES = 2**30  # teacher outputs kept in memory between passes over the texts
JUDGED_TEXTS = 300  # texts on which the report compares student and teacher


@dataclass(frozen=True)
class Student:
    """A student has a transformers folder, its digest, what it kept of the teacher, and whether it was there."""

    path: Path
    digest: str
    report: dict[str, Any]
    cached: bool


@few_threads()
def distill(
    texts: Sequence[str],
    settings: DistillSettings,
    cache_dir: Path,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Student:
    """Distil the teacher into a smaller BERT on `texts` (TransFR Eq. 1-3).

    Empty and repeated texts are left out. The student lies in `cache_dir` under the digest of teacher, texts and
    settings: a second call returns it at once, a killed one goes on from its last checkpoint. Raises `InputError` for
    settings that do not fit the teacher, no text, an unusable teacher or device, a full disk.
    """
    started, teacher_folder = time.monotonic(), resolve(settings.teacher)
    distinct = corpus(texts)
    config = student_config(settings, open_config(teacher_folder))
    layers = layer_map(settings, open_config(teacher_folder).num_hidden_layers)
    final = _place(cache_dir, teacher_folder, settings, digest_of(distinct))
    if final.exists():
        return _kept(final)
    with _only_one(final):
        if final.exists():  # another process has made it meanwhile
            return _kept(final)
        working = final.with_name(final.name + ".part")
        teacher = open_model(teacher_folder, usable_device(device), attention="eager")
        tokenizer = open_tokenizer(teacher_folder)
        tokens = tokenise(tokenizer, distinct, settings.max_tokens)
        student, projections = _start(config, settings, teacher, layers, tokens)
        batches = by_length(tokens.lengths, settings.batch_size)
        lesson = _lessons(teacher, tokens, batches, layers, device)
        terms = _terms(student, projections, settings, device)

        def loss(number: int) -> tuple[Tensor, Mapping[str, Tensor]]:
            return terms(lesson(visit(len(batches), number, settings.seed, purposes.DISTILLATION_ORDER)))

        plan = TrainingSchedule(settings.steps, settings.lr, settings.warmup, settings.accumulate)
        kept = working / "checkpoint.safetensors"
        first = train("distill", _trained(student, projections), loss, plan, kept, progress)
        with torch.no_grad():
            ends = [terms(lesson(i))[1] for i in range(0, len(batches), max(1, len(batches) // 20))]
        report: dict[str, Any] = {"layer_map": layers, "texts": len(distinct), "resumed_at_step": first}
        report["loss"] = {name: float(np.mean([float(end[name]) for end in ends])) for name in ends[0]}
        _save_student(working, student, projections, tokenizer)
        report |= _sizes(student, teacher) | _judged(working, teacher_folder, distinct, settings, device)
        report["seconds"] = round(time.monotonic() - started, 2)
        return _finish(working, final, report)


def untrained(settings: DistillSettings, cache_dir: Path) -> Student:
    """Make the same student with random weights from the seed, never trained: the ablation's "Random"."""
    teacher_folder = resolve(settings.teacher)
    config = student_config(settings, open_config(teacher_folder))
    final = _place(cache_dir, teacher_folder, settings, "untrained")
    if final.exists():
        return _kept(final)
    with _only_one(final):
        if final.exists():  # another process has made it meanwhile
            return _kept(final)
        working = final.with_name(final.name + ".part")
        student = new_student(config, settings.seed)
        _save_student(working, student, {}, open_tokenizer(teacher_folder))
        return _finish(working, final, _sizes(student, open_model(teacher_folder)))


@contextmanager
def _only_one(final: Path) -> Iterator[None]:
    """Wait until no other process makes the same student. Raises `InputError` where its folder cannot be written."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle = hold(final.with_name(f".{final.name}.lock"), wait_s=math.inf)
    except OSError as error:
        raise InputError(f"cannot write {final.parent}: {error.strerror or error}") from error
    try:
        yield
    finally:
        os.close(handle)


def _place(cache_dir: Path, teacher: Path, settings: DistillSettings, corpus_digest: str) -> Path:
    left_out = {"teacher"} if settings.terms else {"teacher", "terms"}  # students keep the place they had
    named = [RECIPE, digest(teacher), corpus_digest, settings.model_dump(exclude=left_out)]
    return Path(cache_dir) / f"student-{hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:24]}"


def _kept(folder: Path) -> Student:
    try:
        record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        intact = record["digest"] == digest(folder)
    except (OSError, ValueError, KeyError):
        intact = False
    if not intact:
        raise InputError(f"the kept student in {folder} is damaged; delete that folder and run again")
    return Student(folder, record["digest"], record["report"], cached=True)


def _start(
    config: Any, settings: DistillSettings, teacher: nn.Module, layers: list[int], tokens: Tokens
) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """Return the student before its first step, and the learnable W of each state it compares, [f, f']."""
    embeddings = teacher.get_input_embeddings().weight  # type: ignore[operator]
    device = embeddings.device
    student = new_student(config, settings.seed).to(device)
    first = STARTS[settings.init].start(settings, student, teacher, layers, tokens)
    names = [name for name, term in TERMS.items() if term.projects and term.weighed(settings)]
    return student, {name: nn.Parameter(first.to(device, copy=True)) for name in names}


def _trained(student: nn.Module, projections: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Return what learns: all but the pooler, which no term reaches."""
    of_student = {f"student.{n}": p for n, p in student.named_parameters() if not n.startswith("pooler.")}
    return of_student | {f"projection.{name}": p for name, p in projections.items()}


def _lessons(
    teacher: nn.Module, tokens: Tokens, batches: list[Ints], layers: list[int], device: str
) -> Callable[[int], Lesson]:
    """Return the teacher's outputs for a batch, computed once and kept while they fit into `KEPT_BYTES`."""
    kept: dict[int, Lesson] = {}
    free = KEPT_BYTES

    def lesson(batch: int) -> Lesson:
        nonlocal free
        if batch in kept:
            return kept[batch]
        ids, mask = padded(tokens, batches[batch], device)
        with torch.no_grad(), _half(device):
            out = teacher(input_ids=ids, attention_mask=mask, **EVERYTHING)
        attention = tuple(out.attentions[layer - 1] for layer in layers[1:])
        made = Lesson(ids, mask, out.hidden_states[0], attention, out.last_hidden_state)
        size = sum(t.nbytes for t in (made.embedding, made.last_hidden, *attention))
        if size <= free:
            kept[batch], free = made, free - size
        return made

    return lesson


def _terms(
    student: nn.Module, projections: Mapping[str, Tensor], settings: DistillSettings, device: str
) -> Callable[[Lesson], tuple[Tensor, dict[str, Tensor]]]:
    """Return a function that gives the loss of a batch, and its terms by name (`attention` is the sum over layers)."""
    weights = {name: list(term.weighed(settings)) for name, term in TERMS.items()}

    def terms(lesson: Lesson) -> tuple[Tensor, dict[str, Tensor]]:
        with _half(device):
            out = student(input_ids=lesson.ids, attention_mask=lesson.mask, **EVERYTHING)
        named, sums = {}, []
        for name in (name for name, weight in weights.items() if weight):
            parts = TERMS[name].errors(out, lesson, partial(_projected, projections.get(name)))
            named[name] = torch.stack(list(parts)).sum().detach()
            sums.append(torch.stack([w * part for w, part in zip(weights[name], parts, strict=True)]).sum())
        return reduce(torch.add, sums), named  # TransFR Eq. 1

    return terms


def _projected(projection: Tensor | None, states: Tensor) -> Tensor:
    if projection is None:
        raise ValueError("a term that projects says so, and this one does not")
    return states @ projection


def _half(device: str) -> torch.autocast:
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")


def _save_student(folder: Path, student: nn.Module, projections: Mapping[str, Tensor], tokenizer: Any) -> None:
    save(folder, student.cpu(), tokenizer)
    if projections:
        kept = {name: value.detach().cpu().contiguous() for name, value in projections.items()}
        write_atomic(folder / "projections.safetensors", safetensors.torch.save(kept))


def _sizes(student: nn.Module, teacher: nn.Module) -> dict[str, Any]:
    mine, its = (sum(p.numel() for p in model.parameters()) for model in (student, teacher))
    return {"parameters": mine, "teacher_parameters": its, "size_ratio": mine / its}


def _judged(
    folder: Path, teacher: Path, texts: list[str], settings: DistillSettings, device: str
) -> dict[str, float | int | str | None]:
    """Measure what the student kept, on mean-pooled vectors of at most `JUDGED_TEXTS` keyed texts of the corpus."""
    rows = keyed.choose(keyed.key(settings.seed, purposes.JUDGED_TEXTS), np.arange(len(texts)), JUDGED_TEXTS)
    sample = [texts[row] for row in rows]
    how = EncodeSettings(pooling="mean", max_tokens=settings.max_tokens)
    vectors, seconds = [], []
    for place in (folder, teacher):
        model, tokenizer = open_model(place, device), open_tokenizer(place)
        vectors_of(model, tokenizer, sample[:8], how)
        started = time.perf_counter()
        vectors.append(vectors_of(model, tokenizer, sample, how))
        seconds.append(time.perf_counter() - started)
    return {
        "judged_texts": len(sample),
        "pooling": "mean",
        "encoding_speedup": seconds[1] / seconds[0],
        "cosine_after_fit": cosine_after_fit(vectors[0], vectors[1], settings.seed),
        "neighbours_overlap_10": neighbours_overlap(vectors[0], vectors[1], 10),
    }


def _finish(working: Path, final: Path, report: dict[str, Any]) -> Student:
    whole = digest(working)
    write_json(working / "report.json", {"digest": whole, "report": report})
    (working / "checkpoint.safetensors").unlink(missing_ok=True)
    try:
        os.replace(working, final)
    except OSError as error:
        if not final.exists():
            raise InputError(f"cannot write {final}: {error.strerror or error}") from error
        shutil.rmtree(working, ignore_errors=True)  # another process made the same student meanwhile
    return Student(final, whole, report, cached=False)
