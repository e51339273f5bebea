"""A bundle learns by a step graph per phase, a score graph of what rounds train, and the rules of local work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import cast

import torch

from edge.learning import Learning, PhaseRecord, ReleaseRecord, ReplayRecord, SessionRecord, TensorRecord
from export.graphs import score_graph, vectors_graph
from export.parts import SCORE as WHOLE
from export.program import LocalProgram, Phase, SessionProgram, read_by
from export.session_steps import SessionStep
from export.staging import Staging
from export.steps import Optimisers, Step, step_graph
from export.trace import constants_of
from export.weights import beside_all
from export.windows import window_graph
from privacy.errors import InputError

SCORE, VECTORS, WEIGHTS = "onnx/score.rounds.onnx", "onnx/vectors.onnx", "onnx/step.weights.data"
TEACH, PUBLISH = "onnx/teach.onnx", "onnx/publish.onnx"


@dataclass(frozen=True)
class LearningSpec:
    """This says how clients of a run learn. `round`: rounds behind the tensors; `optimisers`: the maths of their steps.

    Of clients that read sessions: `gap_s` is the pause after which a session is a new one, in seconds; `receiver_noise`
    the standard deviation of the noise that devices add to replies."""

    optimisers: Optimisers
    negatives: int
    batch_size: int
    seed: int
    round: int
    release: ReleaseRecord
    replay: ReplayRecord | None = None
    gap_s: int = 1800
    receiver_noise: float = 0.0


def stage_learning(stage: Staging, program: LocalProgram, spec: LearningSpec) -> Learning:
    """Trace, gate and stage the step graphs of all phases that have anything to do.

    Raises `InputError` naming phase, tensor and step when a graph does not train like torch: nothing is exported then.
    """
    why = unlearnable(program)
    if why is not None:
        raise InputError(f"{why}: export it without learning")
    phases = [phase for phase in program.phases if phase.epochs]
    sessions, kind = None, cast(Callable[..., Step], Step)
    if isinstance(program, SessionProgram):
        sessions, taught = _sessions(stage, program, spec)
        kind = partial(SessionStep, negatives=spec.negatives, taught=taught)
    steps = [step_graph(program, phase, spec.optimisers, kind)[0] for phase in phases]
    graphs = {f"onnx/step.{n}.onnx": graph for n, graph in enumerate(steps)}
    records = [_record(program, phase, path) for phase, path in zip(phases, graphs, strict=True)]
    reads = bool(constants_of(program))
    if reads:
        graphs[VECTORS] = vectors_graph(program)
    small, large = beside_all(list(graphs.values()), PurePosixPath(WEIGHTS).name)
    for path, content in zip(graphs, small, strict=True):
        stage.add(path, "step", content)
    data = WEIGHTS if large else None
    if data is not None:
        stage.add(data, "step", large)
        records = [record.model_copy(update={"data": data}) for record in records]
    used = read_by(phases, "round")
    if sessions is None:
        graph = score_graph(program, [name for name in program.specs if name in used])
        stage.add(SCORE, "score", graph.SerializeToString(deterministic=True))
    return Learning(
        tensors=[
            TensorRecord(name=name, shape=list(spec.shape), place=spec.place, kind=spec.kind)
            for name, spec in program.specs.items()
        ],
        phases=records,
        score=SCORE if sessions is None else WHOLE,  # rounds train all that scores are made of
        vectors=VECTORS if reads else None,
        vectors_data=data if reads else None,
        negatives=spec.negatives,
        batch_size=spec.batch_size,
        seed=spec.seed,
        round=spec.round,
        release=spec.release,
        replay=spec.replay,
        sessions=sessions,
    )


def unlearnable(program: LocalProgram) -> str | None:
    """Say why no device can do the program's local work yet; None where one can."""
    if any(spec.reset == "round" for spec in program.specs.values()):
        return f"{program.name} makes private tensors anew in every round, which no device does yet"
    if any(phase.which.part != "all" for phase in program.phases):
        return f"{program.name} parts a support set from a query set, which no device does yet"
    if any(phase.which.pairs for phase in program.phases):
        return f"{program.name} compares items in pairs, which no device does yet"
    if any(phase.alternates for phase in program.phases):
        return f"{program.name} has phases that take turns step by step, which no device does yet"
    if isinstance(program, SessionProgram) and program.whole_catalogue:
        return f"{program.name} reads the whole catalogue in every step, which no device does yet"
    if isinstance(program, SessionProgram) and len(program.phases) != 1:
        return f"{program.name} reads sessions in {len(program.phases)} phases; a device has one"
    return None


def _sessions(
    stage: Staging, program: SessionProgram, spec: LearningSpec
) -> tuple[SessionRecord, tuple[int, ...] | None]:
    """Record how devices learn from sessions, and the shape of what a teacher says of one."""
    sent = program.publishes != "none"
    found = {TEACH: window_graph(program, program.teach, "taught")}
    found |= {PUBLISH: window_graph(program, program.publish, "prototype")} if sent else {}
    for path, made in found.items():
        if made is not None:
            stage.add(path, "step", made[0].SerializeToString(deterministic=True))
    teach = found[TEACH]
    numbers = dict(enumerate(program.specs, 2))  # a tensor that holds nothing but its number is found again
    kept = program.remember({name: torch.tensor([float(number)]) for number, name in numbers.items()})
    remembered = {name: float(value) for name, value in kept.items()}
    keeps = {name: numbers[int(value)] for name, value in remembered.items() if value in numbers}
    marks = [name for name, value in remembered.items() if value == 1.0]
    if len(keeps) + len(marks) < len(remembered):
        raise InputError(f"{program.name} remembers what no device does: a tensor that it has, or 1")
    given = [n for n, s in program.specs.items() if s.place == "private" and n not in program.phases[0].trains]
    others = [name for name in given if name not in remembered and name != program.reply]
    if others or (sent and program.reply is None):
        raise InputError(f"{program.name} leaves private tensors {others} to the server: a device knows of one reply")
    record = SessionRecord(
        gap_s=spec.gap_s,
        teach=None if teach is None else TEACH,
        publish=PUBLISH if sent else None,
        order=program.publishes if sent else None,
        reply=program.reply,
        receiver_noise=spec.receiver_noise,
        keeps=keeps,
        marks=marks,
    )
    return record, None if teach is None else tuple(teach[1])


def trained_tables(program: LocalProgram) -> list[str]:
    """Return the per-item tables that local work changes."""
    changed = {name for phase in program.phases if phase.epochs for name in phase.trains}
    return [name for name, spec in program.specs.items() if spec.kind == "rows" and name in changed]


def paths(learning: Learning) -> list[str]:
    """Return the files that learning needs beside those of recommending."""
    phases = [path for phase in learning.phases for path in (phase.graph, phase.data)]
    how = learning.sessions
    windows = [] if how is None else [how.teach, how.publish]
    named = [learning.score, learning.vectors, learning.vectors_data, *windows, *phases]
    return list(dict.fromkeys(path for path in named if path is not None))


def _record(program: LocalProgram, phase: Phase, path: str) -> PhaseRecord:
    trained = [name for name in program.specs if name in phase.trains]
    return PhaseRecord(
        name=phase.name,
        graph=path,
        purpose=phase.purpose,
        when=phase.when,
        epochs=phase.epochs,
        optimiser=phase.optimiser,
        dense=[name for name in trained if program.specs[name].kind == "dense"],
        tables=[name for name in trained if program.specs[name].kind == "rows"],
        lr={name: float(phase.lr[name]) for name in trained},
        beta_2=phase.beta_2,
    )
