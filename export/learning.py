"""What lets a bundle learn: a step graph per phase, a score graph of what rounds train, and the rules of local work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, cast

import torch

from edge.learning import Learning, PhaseRecord, ReleaseRecord, ReplayRecord, SessionRecord, TensorRecord
from export.graphs import score_graph, vectors_graph, window_of
from export.parts import SCORE as WHOLE
from export.session_steps import SessionStep
from export.stage import Stage
from export.steps import Optimisers, Step, step_graph
from export.trace import constants_of
from export.weights import beside_all
from export.windows import window_graph
from privacy.errors import InputError

SCORE, VECTORS, WEIGHTS = "onnx/score.rounds.onnx", "onnx/vectors.onnx", "onnx/step.weights.data"
TEACH, PUBLISH = "onnx/teach.onnx", "onnx/publish.onnx"


@dataclass(frozen=True)
class Lessons:
    """How clients of a run learn. `round`: rounds behind the tensors; `optimisers`: the maths of their steps.

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


def stage_learning(stage: Stage, program: Any, lessons: Lessons) -> Learning:
    """Trace, gate and stage the step graphs of all phases that have anything to do.

    Raises `InputError` naming phase, tensor and step when a graph does not train like torch: nothing is exported then.
    """
    phases = [phase for phase in program.phases if phase.epochs]
    sessions, kind = None, cast(Callable[..., Step], Step)
    if window_of(program) is not None:
        sessions, taught = _sessions(stage, program, lessons)
        kind = partial(SessionStep, negatives=lessons.negatives, taught=taught)
    steps = [step_graph(program, phase, lessons.optimisers, kind)[0] for phase in phases]
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
    used = {name for phase in phases if phase.when == "round" for name in phase.uses}
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
        negatives=lessons.negatives,
        batch_size=lessons.batch_size,
        seed=lessons.seed,
        round=lessons.round,
        release=lessons.release,
        replay=lessons.replay,
        sessions=sessions,
    )


def _sessions(stage: Stage, program: Any, lessons: Lessons) -> tuple[SessionRecord, tuple[int, ...] | None]:
    """How devices learn from sessions, and the shape of what a teacher says of one."""
    if len(program.phases) != 1:
        raise InputError(f"{program.name} reads sessions in {len(program.phases)} phases; a device has one")
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
    replies = [name for name in given if name not in remembered]
    if len(replies) > 1 or (sent and not replies):
        raise InputError(f"{program.name} leaves private tensors {replies} to the server: a device knows of one reply")
    record = SessionRecord(
        gap_s=lessons.gap_s,
        teach=None if teach is None else TEACH,
        publish=PUBLISH if sent else None,
        order=program.publishes if sent else None,
        reply=replies[0] if replies else None,
        receiver_noise=lessons.receiver_noise,
        keeps=keeps,
        marks=marks,
    )
    return record, None if teach is None else tuple(teach[1])


def trained_tables(program: Any) -> list[str]:
    """The per-item tables that local work changes."""
    changed = {name for phase in program.phases if phase.epochs for name in phase.trains}
    return [name for name, spec in program.specs.items() if spec.kind == "rows" and name in changed]


def paths(learning: Learning) -> list[str]:
    """The files that learning needs beside those of recommending."""
    phases = [path for phase in learning.phases for path in (phase.graph, phase.data)]
    how = learning.sessions
    windows = [] if how is None else [how.teach, how.publish]
    named = [learning.score, learning.vectors, learning.vectors_data, *windows, *phases]
    return list(dict.fromkeys(path for path in named if path is not None))


def _record(program: Any, phase: Any, path: str) -> PhaseRecord:
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
