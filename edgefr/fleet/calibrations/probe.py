"""This measures one activity of one bundle in its own process.

It is started fresh for each by `edgefr.fleet.calibrations.trial`.

    python -m edgefr.fleet.calibrations.probe '{"activity": "learn", "bundle": "bundles/phone_sd680", ...}'

Prints one JSON object: the figures, or {"error": "Type: text"} with exit status 1. Limits are set before anything
heavy is imported, so that they count for the libraries too. Costs of calls are CPU time of the only thread: on a busy
machine wall time would measure its other work. No torch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from privacy.machine import limit_memory, peak_mb

if TYPE_CHECKING:
    from edge.bundle import Bundle
    from edge.graph import Graph
    from edge.learning import PhaseRecord
    from edge.scorer import Rows
    from edge.training import LearningMaterial

LEAST, MOST = 5, 200  # calls that a figure is made of
RECOMMENDED = 10  # items in one recommendation, and past positives it is made from where the method reads them
SGEMM, COPY = 512, 1 << 26  # side of the host's matrix product; bytes of its copy


def confine(data_mb: float | None, core: int | None) -> None:
    """Bind this process to one core, and its private writable memory to `data_mb` (10^6 bytes)."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    if data_mb is not None:
        from privacy.errors import InputError

        if not limit_memory(data_mb):
            raise InputError("this system cannot limit the memory of a process, so nothing is measured under a limit")


def repeated(call: Callable[[int], float], seconds: float, least: int = LEAST) -> list[float]:
    """Return what `call(number)` returns, first call left out, for about `seconds` in all; at least `least` times."""
    call(0)
    out: list[float] = []
    ends = time.monotonic() + seconds
    while len(out) < least or (time.monotonic() < ends and len(out) < MOST):
        out.append(call(len(out) + 1))
    return out


def milliseconds(samples: list[float]) -> dict[str, float]:
    """Return median and minimum, in ms, of samples in seconds."""
    ordered = sorted(samples)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return {"median_ms": 1e3 * middle, "min_ms": 1e3 * ordered[0]}


def timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def host(seconds: float, **_: Any) -> dict[str, Any]:
    """Measure one thread's fp32 matrix products in GFLOP/s and copies in GB/s (each byte counted once)."""
    import numpy as np

    a, b = np.full((SGEMM, SGEMM), 0.5, np.float32), np.full((SGEMM, SGEMM), 0.25, np.float32)
    out, source = np.empty_like(a), np.ones(COPY, np.uint8)
    target = np.empty_like(source)
    product = milliseconds(repeated(lambda _: timed(lambda: np.matmul(a, b, out=out)), seconds))
    copy = milliseconds(repeated(lambda _: timed(lambda: np.copyto(target, source)), seconds))
    return {"gflops": 2e-6 * SGEMM**3 / product["median_ms"], "copy_gbs": 1e-6 * COPY / copy["median_ms"]}


def recommend(bundle: str, started: float, seconds: float, least: int = LEAST, **_: Any) -> dict[str, Any]:
    """Load a bundle and recommend to a new device with a user's history."""
    from edge.recommender import Recommender

    made = Recommender(bundle)
    load = time.monotonic() - started
    past = made.catalogue.offered_items[:RECOMMENDED].tolist()
    samples = repeated(lambda _: timed(lambda: made.recommend(RECOMMENDED, history=past)), seconds, least)
    return {"load_s": load, "peak_mb": peak_mb(), **milliseconds(samples)}


def encode(bundle: str, started: float, seconds: float, least: int = LEAST, **_: Any) -> dict[str, Any]:
    """Load a bundle and encode its title of middling length."""
    from edge.encoder import open_encoder
    from edge.recommender import Recommender

    made = Recommender(bundle)
    part = made.bundle.config.encoder
    assert part is not None
    titles = sorted((title for title in made.catalogue.titles if title.strip()), key=len) or ["a title"]
    text = titles[len(titles) // 2]
    made.encode(text)
    load = time.monotonic() - started
    samples = repeated(lambda _: timed(lambda: made.encode(text)), seconds, least)
    figures = {"load_s": load, "peak_mb": peak_mb(), **milliseconds(samples)}
    return {**figures, "tokens": open_encoder(part, made.bundle.file).tokens(text)}


def learn(bundle: str, started: float, seconds: float, least: int = LEAST, **_: Any) -> dict[str, Any]:
    """Load a bundle and take steps of every phase: of a full batch and, `least` allowing, of a quarter of one."""
    from edge.bundle import open_bundle

    opened = open_bundle(bundle)
    learning = opened.config.learning
    assert learning is not None
    phases = [phase for phase in learning.phases if phase.epochs]
    full = max(1, learning.batch_size // (1 + learning.negatives))
    sizes = sorted({full, max(1, full // 4)}) if least > 1 else [full]
    steps = {phase.name: stepper(opened, phase) for phase in phases}
    load, out = time.monotonic() - started, []
    for phase in phases:
        points = []
        for positives in sizes:
            examples, step = steps[phase.name](positives)
            found = milliseconds(repeated(step, seconds, least))
            points.append([examples, found["median_ms"], found["min_ms"]])
        out.append({"name": phase.name, "points": points})
    return {"load_s": load, "peak_mb": peak_mb(), "phases": out}


Step = Callable[[int], float]
"""Local work of the round of this number; CPU seconds of one step of it."""


def stepper(bundle: Bundle, phase: PhaseRecord) -> Callable[[int], tuple[float, Step]]:
    """Return steps of one phase of a new device with so many positives, as `edge.device.Device` takes them.

    Beside it are the examples of a step as the fleet counts them: positives, negatives, and past positives if read.
    """
    import numpy as np

    from edge.catalogue import Catalogue, open_table
    from edge.clients import Clients
    from edge.enrol import nothing_kept
    from edge.graph import Graph
    from edge.ragged import Ragged
    from edge.sampling import Sampler
    from edge.training import Material, Work, train

    learning, clients, pool = bundle.config.learning, Clients(bundle), Catalogue(bundle).offered_items
    assert learning is not None
    tables: dict[str, Rows] = {table.name: open_table(bundle, table) for table in bundle.config.tables}
    for tensor in learning.tensors:
        if tensor.kind == "rows" and tensor.place == "shared":
            tables[tensor.name] = np.array(tables[tensor.name](slice(None)), np.float32).__getitem__
    dense = clients.shared() | nothing_kept(learning) | clients.private(None)
    graphs = {phase.name: Graph(bundle.file(phase.graph))}
    alone = phase.model_copy(update={"alternates": False})  # a phase that takes turns is measured by itself

    def sized(positives: int) -> tuple[float, Step]:
        own = pool[:: max(1, len(pool) // positives)][: min(positives, max(1, len(pool) // 2))]
        items, past = bundle.manifest.item_count, len(own) if bundle.config.history else 0
        draws = (learning.negatives, learning.batch_size, learning.seed)
        sampler = Sampler(Ragged(own, np.array([0, len(own)])), pool, items, *draws)

        def step(number: int) -> float:
            material: Work = Material(sampler, own, None, tables, number)
            if bundle.config.window is not None:
                material = lesson(bundle, phase, graphs[phase.name], tables, own, number)
            began = time.process_time()
            done = train([alone], graphs, learning, dense, material)
            return (time.process_time() - began) / max(done.steps, 1)

        steps = max(int(sampler.steps(np.zeros(1, np.int64), phase.which)[0]), 1)
        return len(own) * (1 + learning.negatives) / steps + past, step

    return sized


def lesson(
    bundle: Bundle, phase: PhaseRecord, graph: Graph, tables: dict[str, Rows], own: Any, number: int
) -> LearningMaterial:
    """Return a round's work on a session of the items `own` and the first of them again, without a teacher."""
    import numpy as np

    from edge.catalogue import Catalogue
    from edge.session_state import sampler
    from edge.state import State
    from edge.training import LearningMaterial

    learning, window, none = bundle.config.learning, bundle.config.window, np.empty(0, np.int64)
    assert learning is not None
    assert learning.sessions is not None
    assert window is not None
    items = np.append(own, own[:1])
    had = {"items.own": own, "items.past": none, "items.seen": none}
    state = State({"number": 0}, had | {"session.items": items, "session.times": 60 * np.arange(len(items))})
    shape = [size for size in graph.inputs.get("window.taught", []) if isinstance(size, int)]
    drawn = sampler(state, learning, window, Catalogue(bundle).offered_items, bundle.manifest.item_count)
    taught, whole = np.zeros(shape, np.float32) if shape else None, learning.sessions.whole_catalogue
    return LearningMaterial(drawn, tables, number, taught, [phase], whole)


ACTIVITIES: dict[str, Callable[..., dict[str, Any]]] = {
    "host": host,
    "learn": learn,
    "recommend": recommend,
    "encode": encode,
}


def main() -> int:
    asked = json.loads(sys.argv[1])
    try:
        confine(asked.pop("data_mb", None), asked.pop("core", None))
        found = ACTIVITIES[asked.pop("activity")](**asked)
    except BaseException as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing is left to be tidied, and under a memory limit tidying can fail
