"""What lets a bundle learn: a step graph per phase, a score graph of what rounds train, and the rules of local work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from edge.learning import Learning, PhaseRecord, ReleaseRecord, ReplayRecord, TensorRecord
from export.graphs import score_graph, vectors_graph
from export.stage import Stage
from export.steps import Optimisers, step_graph
from export.trace import constants_of
from export.weights import beside_all

SCORE, VECTORS, WEIGHTS = "onnx/score.rounds.onnx", "onnx/vectors.onnx", "onnx/step.weights.data"


@dataclass(frozen=True)
class Lessons:
    """How clients of a run learn. `round`: rounds behind the tensors; `optimisers`: the maths of their steps."""

    optimisers: Optimisers
    negatives: int
    batch_size: int
    seed: int
    round: int
    release: ReleaseRecord
    replay: ReplayRecord | None = None


def stage_learning(stage: Stage, program: Any, lessons: Lessons) -> Learning:
    """Trace, gate and stage the step graphs of all phases that have anything to do.

    Raises `InputError` naming phase, tensor and step when a graph does not train like torch: nothing is exported then.
    """
    phases = [phase for phase in program.phases if phase.epochs]
    graphs = {
        f"onnx/step.{n}.onnx": step_graph(program, phase, lessons.optimisers)[0] for n, phase in enumerate(phases)
    }
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
    graph = score_graph(program, [name for name in program.specs if name in used])
    stage.add(SCORE, "score", graph.SerializeToString(deterministic=True))
    return Learning(
        tensors=[
            TensorRecord(name=name, shape=list(spec.shape), place=spec.place, kind=spec.kind)
            for name, spec in program.specs.items()
        ],
        phases=records,
        score=SCORE,
        vectors=VECTORS if reads else None,
        vectors_data=data if reads else None,
        negatives=lessons.negatives,
        batch_size=lessons.batch_size,
        seed=lessons.seed,
        round=lessons.round,
        release=lessons.release,
        replay=lessons.replay,
    )


def trained_tables(program: Any) -> list[str]:
    """The per-item tables that local work changes."""
    changed = {name for phase in program.phases if phase.epochs for name in phase.trains}
    return [name for name, spec in program.specs.items() if spec.kind == "rows" and name in changed]


def paths(learning: Learning) -> list[str]:
    """The files that learning needs beside those of recommending."""
    phases = [path for phase in learning.phases for path in (phase.graph, phase.data)]
    named = [learning.score, learning.vectors, learning.vectors_data, *phases]
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
    )
