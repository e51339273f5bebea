"""The gate's table: every step graph of every method that a device trains, and how near it stays to torch.

    python benchmarks/graphs.py

Default settings of every method, 1,152 items, text vectors of 312 values. Each graph takes 51 steps over batches of 5,
1, 40 and 17 examples in onnxruntime (default optimisation) and in torch, each going on from its own values: `error` is
the largest difference among all losses, parameters and moments. `us` is CPU time of a step of 40 examples on one
thread, the best of nine times 200.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from rich.console import Console

from edgefr.config.sheet import Sheet
from edgefr.engine.optimisers import adam, sgd
from edgefr.experiment.method import METHODS
from export.given import Given
from export.program import LocalProgram
from export.steps import step_graph
from export.trace import open_session

ITEMS, WIDTH, ROWS, PAST = 1152, 312, 40, 20
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "fedmf": ("fedmf", {}),
    "fedncf": ("fedncf", {}),
    "pfedrec": ("pfedrec", {}),
    "transfr, user vector": ("transfr", {}),
    "transfr, mean user": ("transfr", {"user_encoder": "mean"}),
    "transfr, SGD": ("transfr", {"optimiser": "sgd"}),
}


def programs() -> Iterator[tuple[str, LocalProgram]]:
    """Every variant's local program."""
    text = torch.randn((ITEMS, WIDTH), generator=torch.Generator().manual_seed(0))
    for title, (name, settings) in VARIANTS.items():
        row = METHODS[name]
        yield (
            title,
            row.program(row.settings.model_validate(settings), Given(ITEMS, 1, text if row.needs_text else None)),
        )


def step_us(graph: object) -> float:
    """CPU microseconds of a step of 40 examples."""
    session, feeds, rng = open_session(graph), {}, np.random.default_rng(0)
    for given in session.get_inputs():
        free = PAST if "history" in given.name else ROWS
        shape = [free if isinstance(size, str) else size for size in given.shape]
        feeds[given.name] = (0.05 * np.abs(rng.standard_normal(shape))).astype(np.float32)
    seconds = []
    for _ in range(9):
        started = time.process_time()
        for _ in range(200):
            session.run(None, feeds)
        seconds.append((time.process_time() - started) / 200)
    return min(seconds) * 1e6


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    torch.set_num_threads(1)
    rows = []
    for title, program in programs():
        for phase in program.phases:
            if not phase.epochs:
                continue
            started = time.perf_counter()
            graph, rehearsal = step_graph(program, phase, {"sgd": sgd, "adam": adam})
            row = {"method": title, "phase": phase.name, "optimiser": phase.optimiser}
            row |= {"nodes": str(len(graph.graph.node)), "bytes": f"{graph.ByteSize():,}"}
            row |= {"steps": str(rehearsal.steps), "error": f"{rehearsal.error:.1e}", "us": f"{step_us(graph):.0f}"}
            rows.append(row | {"export s": f"{time.perf_counter() - started:.1f}"})
    Console(width=140).print(Sheet("step graphs", rows, words=["method", "phase", "optimiser"]))


if __name__ == "__main__":
    main()
