"""A bundle learns by a step graph per phase, a score graph of what rounds train, and the rules of local work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, cast

import numpy as np
import torch

from edge.learning import (
    AnewRecord,
    ExchangeRecord,
    Learning,
    PhaseRecord,
    ReleaseRecord,
    ReplayRecord,
    SessionRecord,
    TensorRecord,
)
from export.artifact_cache import checked
from export.graphs import message_graph, prepared_graph, score_graph, vectors_graph, window_graph
from export.program import LocalProgram, Phase, SessionProgram, TensorSpec, read_by
from export.session_steps import SessionStep
from export.shared_files import SCORE as WHOLE
from export.staged_files import Staging
from export.step import Optimisers, Step
from export.steps import kept_by, step_graph
from export.weights import beside_all
from privacy.errors import InputError

SCORE, VECTORS, WEIGHTS = "onnx/score.rounds.onnx", "onnx/vectors.onnx", "onnx/step.weights.data"
PREPARED = "onnx/prepared.{}.onnx"
TEACH, PUBLISH = "onnx/teach.onnx", "onnx/publish.onnx"
DRAWN_BY, DRAWN_FOR = (0, 2**63 + 5), (0, 7, 2**62 - 1)  # seeds and clients for which a rule of first values is tried


@dataclass(frozen=True)
class LearningSpec:
    """This says how clients of a run learn.

    `round`: rounds behind the tensors; `optimisers`: the maths of their steps; `block`: of time, that is learned in.

    Of clients that read sessions: `gap_s` is the pause after which a session is a new one, in seconds. Of messages:
    `receiver_noise` is the standard deviation of the noise that devices add to replies, `sender_noise` the scale of the
    Laplace noise that they add to what they send."""

    optimisers: Optimisers
    negatives: int
    batch_size: int
    seed: int
    round: int
    release: ReleaseRecord
    replay: ReplayRecord | None = None
    gap_s: int = 1800
    receiver_noise: float = 0.0
    sender_noise: float = 0.0
    block: int = 0


def stage_learning(stage: Staging, program: LocalProgram, spec: LearningSpec) -> Learning:
    """Trace, gate and stage the step graphs of all phases. Raises `InputError` for one that trains unlike torch."""
    why = unlearnable(program)
    if why is not None:
        raise InputError(f"{why}: export it without learning")
    phases = [phase for phase in program.phases if phase.epochs]
    sessions, messages, kind = None, None, cast(Callable[..., Step], partial(Step, negatives=spec.negatives))
    if isinstance(program, SessionProgram):
        sessions, taught = _sessions(stage, program, spec)
        kind = partial(SessionStep, negatives=spec.negatives, taught=taught)
    else:
        messages = _messages(stage, program, spec)
    steps = [_step(program, phase, spec.optimisers, kind) for phase in phases]
    graphs = {f"onnx/step.{n}.onnx": graph for n, graph in enumerate(steps)}
    records = [_record(program, phase, path) for phase, path in zip(phases, graphs, strict=True)]
    reads = bool(program.constants)
    if reads:
        graphs[VECTORS] = vectors_graph(program)
    prepared = {name: PREPARED.format(name) for name in program.prepared}
    graphs |= {path: prepared_graph(program, name) for name, path in prepared.items()}
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
            TensorRecord(name=name, shape=list(spec.shape), place=spec.place, kind=spec.kind, anew=_anew(spec))
            for name, spec in program.specs.items()
        ],
        phases=records,
        score=SCORE if sessions is None else WHOLE,  # rounds train all that scores are made of
        vectors=VECTORS if reads else None,
        vectors_data=data if reads else None,
        prepared=prepared,
        negatives=spec.negatives,
        batch_size=spec.batch_size,
        seed=spec.seed,
        round=spec.round,
        release=spec.release,
        replay=spec.replay,
        sessions=sessions,
        messages=messages,
        block=spec.block,
    )


@checked
def _step(program: LocalProgram, phase: Phase, optimisers: Optimisers, kind: Callable[..., Step]) -> Any:
    return step_graph(program, phase, optimisers, kind)[0]


ADAM_OF_DIFFERENCES = (
    "compares scores and moves by Adam, whose steps along what all scores have in common, a bias, are of rounding alone"
)
"""No two machines agree on such steps: a gradient of 0 but for rounding becomes a step of the learning rate's size."""


def unlearnable(program: LocalProgram) -> str | None:
    """Say why no device can do the program's local work yet; None where one can."""
    for name, spec in program.specs.items():
        if spec.reset == "round" and spec.first is None:
            return f"{program.name} makes '{name}' anew in every round and does not say how (TensorSpec.first)"
        if spec.reset == "round" and not _says_how(program, name):
            return f"{program.name} makes '{name}' anew in every round, but not as its TensorSpec.first says"
    if any(phase.which.pairs and phase.optimiser == "adam" for phase in program.phases):
        return f"{program.name} {ADAM_OF_DIFFERENCES}"
    if any(phase.pulls for phase in program.phases):
        return f"{program.name} moves rows that a step does not read, which no device does yet"
    if isinstance(program, SessionProgram):
        return _unlearnable_sessions(program)
    if program.publishes == "received":
        return f"{program.name} sends messages before it trains, which devices do over sessions alone"
    return None


def _unlearnable_sessions(program: SessionProgram) -> str | None:
    """Say why no device can learn from sessions as the program does; None where one can."""
    if program.asks == "next":
        return f"{program.name} asks about the session that a client meets next, which no device knows"
    if program.dropout:
        return f"{program.name} drops values while it trains, which no device does yet"
    if program.notices:
        kept = program.notices[0]
        return f"{program.name} keeps what a step's forward pass leaves ({kept}), which no device does yet"
    return None


def _says_how(program: LocalProgram, name: str) -> bool:
    """Say whether a tensor's first values are, to the bit, those of the rule that its specification names."""
    spec, clients = program.specs[name], np.array(DRAWN_FOR)
    assert spec.first is not None
    made = (program.init_private(seed, torch.from_numpy(clients))[name].numpy() for seed in DRAWN_BY)
    rule = (spec.first.values(seed, clients, tuple(spec.shape)) for seed in DRAWN_BY)
    return all(np.array_equal(one, other) for one, other in zip(made, rule, strict=True))


def _anew(spec: TensorSpec) -> AnewRecord | None:
    first = spec.first
    return None if spec.reset == "never" or first is None else AnewRecord(purpose=first.purpose, scale=first.scale)


def _sessions(
    stage: Staging, program: SessionProgram, spec: LearningSpec
) -> tuple[SessionRecord, tuple[int, ...] | None]:
    if program.begins_alone and spec.round < 1:
        raise InputError(f"{program.name} starts its first round from nets of the clients' own: export after a round")
    teach, shape = _staged(stage, program, program.teach, "taught", TEACH)
    _staged(stage, program, program.publish, "prototype", PUBLISH)
    exchanged = _exchange(program, spec)
    record = SessionRecord(
        **exchanged.model_dump(),
        gap_s=spec.gap_s,
        teach=teach,
        whole_catalogue=program.whole_catalogue,
        once=program.one_draw,
    )
    return record, shape


def _staged(
    stage: Staging, program: SessionProgram, function: Callable[..., torch.Tensor | None], output: str, path: str
) -> tuple[str | None, tuple[int, ...] | None]:
    made = None if output == "prototype" and program.publishes == "none" else window_graph(program, function, output)
    if made is None:
        return None, None
    stage.add(path, "step", made[0].SerializeToString(deterministic=True))
    return path, tuple(made[1])


def _messages(stage: Staging, program: LocalProgram, spec: LearningSpec) -> ExchangeRecord | None:
    record = _exchange(program, spec)
    if record.publish is not None:
        stage.add(record.publish, "step", message_graph(program).SerializeToString(deterministic=True))
    return record if record.publish is not None or record.keeps or record.marks else None


def _exchange(program: LocalProgram, spec: LearningSpec) -> ExchangeRecord:
    sent, (keeps, marks) = program.publishes != "none", kept_by(program)
    trained = {name for phase in program.phases for name in phase.trains}
    given = [n for n, s in program.specs.items() if s.place == "private" and n not in trained]
    others = [name for name in given if name not in (*keeps, *marks, program.reply)]
    if others or (sent and program.reply is None):
        raise InputError(f"{program.name} leaves private tensors {others} to the server: a device knows of one reply")
    return ExchangeRecord(
        publish=PUBLISH if sent else None,
        order=None if program.publishes == "none" else program.publishes,
        reply=program.reply,
        receiver_noise=spec.receiver_noise,
        sender_noise=spec.sender_noise if sent else 0.0,
        keeps=keeps,
        marks=marks,
    )


def trained_tables(program: LocalProgram) -> list[str]:
    """Return the per-item tables that local work changes."""
    changed = {name for phase in program.phases if phase.epochs for name in phase.trains}
    return [name for name, spec in program.specs.items() if spec.kind == "rows" and name in changed]


def paths(learning: Learning) -> list[str]:
    """Return the files that learning needs beside those of recommending."""
    phases = [path for phase in learning.phases for path in (phase.graph, phase.data)]
    told = [] if learning.exchange is None else [learning.exchange.publish]
    told += [] if learning.sessions is None else [learning.sessions.teach]
    told += list(learning.prepared.values())
    named = [learning.score, learning.vectors, learning.vectors_data, *told, *phases]
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
        part=phase.which.part,
        support=phase.which.support,
        pairs=phase.which.pairs,
        context=phase.which.context,
        summed=phase.which.summed,
        alternates=phase.alternates,
        accumulates=phase.accumulates,
    )
