"""What a round costs by users, items, cohort and dim, each alone: CPU seconds, memory, and their exponents.

    python benchmarks/scale.py [--axis users items cohort dim] [--picture FILE] [--largest 10000000]

FedMF on generated data of 100,000 users and 100,000 items, a cohort of 10,000, 32 values, but for the one that changes
(along dim: of 10,000 items), and a fleet of which everybody who is asked takes part. Every point runs in a process of
its own, so that its peak of resident memory is its own. Times are CPU seconds of one thread; a round is the median of
three, after a first one. An exponent of 1 is linear; it is that of the straight line between two points in logarithms.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgefr
from edgefr.data import datasets as data
from edgefr.data.prepared_data import Prepared
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.loop import Training
from privacy import keyed
from privacy.machine import peak_mb

DEVICES, SEED = Path(__file__).parent.parent / "devices.yaml", 0
AXES: dict[str, tuple[int, ...]] = {
    "users": (10_000, 100_000, 1_000_000, 10_000_000),
    "items": (1_000, 10_000, 100_000, 1_000_000),
    "cohort": (100, 1_000, 10_000, 100_000),
    "dim": (8, 32, 128, 512),
}
USUAL = {"users": 100_000, "items": 100_000, "cohort": 10_000, "dim": 32, "interactions": 20}
BESIDE = {"dim": {"items": 10_000}}
"""What else differs along an axis: 512 values of 100,000 items are 200 MB, as much as a phone's app may use."""
WILLING: dict[str, Any] = {
    "fleet": {"share": {"minipc_n100": 1.0}, "availability": None, "dropout": 0.0, "battery": None},
    "rounds": {"over_select": 1.0, "deadline_s": 604800.0},
}
"""A fleet of which everybody who is asked takes part."""
COSTS = {"training": "clients' work, s", "server": "server's step, s", "meet": "cohort and fleet, s"}
ROUNDS, RANKED, SAMPLED = 3, 1000, 5000


def clocked(call: Callable[[], Any]) -> tuple[Any, float]:
    """A call's answer and its CPU seconds."""
    started = time.process_time()
    answer = call()
    return answer, time.process_time() - started


def measure(at: dict[str, int]) -> dict[str, Any]:
    """All figures of one point."""
    given: dict[str, Any] = {"clients_per_round": float(at["cohort"]), "model.dim": at["dim"]}
    experiment = edgefr.load_experiment(
        name="scale",
        method="fedmf",
        data="demo",
        data_options={"users": at["users"], "items": at["items"], "interactions": at["interactions"]},
        rounds=ROUNDS + 1,
        seed=SEED,
        **given,
    )
    dataset, generate = clocked(lambda: data.load(experiment.data, None, SEED, experiment.data_options, None))
    splits, split = clocked(lambda: experiment.protocol.apply(dataset, SEED))
    prepared = Prepared(dataset, {part.name: part for part in splits}, experiment.protocol.describe(dataset), None)
    fleet, device = edgefr.load_fleet(DEVICES, WILLING), torch.device("cpu")
    simulation, begin = clocked(lambda: Training.start(experiment, prepared, fleet, device, lambda events: None))
    out: dict[str, Any] = {**at, "generate": generate, "split": split, "begin": begin, "data_mb": peak_mb()}
    stage, federation = simulation.schedule[0], simulation.federation
    task = stage.task
    found: dict[str, list[float]] = {name: [] for name in COSTS}
    for number in range(1, ROUNDS + 2):
        seconds: dict[str, float] = {}
        move = federation._move  # the server's own part of a round

        def moved(*given: Any, move: Any = move, seconds: dict[str, float] = seconds) -> None:
            _, seconds["server"] = clocked(lambda: move(*given))

        federation._move = moved  # type: ignore[method-assign]
        (population, sampler), drawn = clocked(lambda n=number: stage.turn(simulation, n))
        who, met = clocked(lambda n=number, all_=population, s=sampler: simulation.participation.meet(n, all_, s))
        _, whole = clocked(lambda n=number, who=who, s=sampler: federation.round(n, who, s, task.train))
        federation._move = move  # type: ignore[method-assign]
        seconds |= {"meet": drawn + met, "training": whole - seconds["server"]}
        for name, value in seconds.items():
            found[name].append(value)
    out |= {name: float(np.median(values[1:])) for name, values in found.items()} | {"clients": len(who)}
    out["round"] = sum(out[name] for name in COSTS)
    score, everyone = simulation.scorer(simulation.together(), task, task.train), task.users("test")
    for ranking, size in (("full", RANKED), ("sampled", SAMPLED)):
        users = keyed.choose(keyed.key(SEED, "users of the benchmark"), everyone, min(size, len(everyone)))
        _, out[ranking] = clocked(lambda r=ranking, u=users: evaluate(score, task, "test", r, u))
    return out | {"peak_mb": peak_mb()}


def exponents(values: list[int], costs: list[float]) -> list[float]:
    """The exponent of growth between each point and the next."""
    pairs = zip(values, values[1:], costs, costs[1:], strict=False)
    return [math.log(later / before) / math.log(more / few) for few, more, before, later in pairs]


def report(axis: str, found: list[dict[str, Any]]) -> None:
    """Print a table, a column per point."""
    values = [one[axis] for one in found]
    names = {"generate": "generate, s", "split": "split, s", "begin": "server, clients and fleet, s"}
    names |= {**COSTS, "round": "round, s", "full": f"full ranking of {RANKED:,} users, s"}
    names |= {"sampled": f"sampled ranking of {SAMPLED:,} users, s", "peak_mb": "peak, MB"}
    print(f"\n| {axis} | {' | '.join(f'{value:,}' for value in values)} | exponents |")
    print(f"| --- | {' | '.join('---:' for _ in values)} | --- |")
    clients = (f"{one['clients']:,}" for one in found)
    print(f"| clients that contribute | {' | '.join(clients)} | |")
    for name, label in names.items():
        costs = [max(one[name], 1e-6) for one in found]
        shown = (f"{cost:,.0f}" if name == "peak_mb" else f"{cost:.3f}" for cost in costs)
        grows = ", ".join(f"{each:.2f}" for each in exponents(values, costs))
        print(f"| {label} | {' | '.join(shown)} | {grows} |", flush=True)


def picture(tables: dict[str, list[dict[str, Any]]], file: Path) -> None:
    """Draw each axis's costs in logarithms, beside a straight line of exponent 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(tables), 3.2), layout="constrained")
    for axes, (axis, found) in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables.items(), strict=True):
        values = [one[axis] for one in found]
        for name, label in {"round": "round", **COSTS}.items():
            axes.loglog(values, [max(one[name], 1e-4) for one in found], marker="o", label=label.removesuffix(", s"))
        top = found[-1]["round"]
        axes.loglog(values, [top * value / values[-1] for value in values], "k:", label="exponent 1")
        axes.set_xlabel(axis)
    figure.axes[0].set_ylabel("CPU seconds a round")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--largest", type=int, default=10_000_000, help="leave out points beyond it")
    parser.add_argument("--picture", type=Path, help="PNG or SVG to draw")
    parser.add_argument("--alone", metavar="JSON", help='one point in this process, such as {"users": 1000000}')
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.alone:
        print(json.dumps(measure({**USUAL, **json.loads(options.alone)})))
        return
    tables: dict[str, list[dict[str, Any]]] = {}
    for axis in options.axis:
        found = []
        for value in (value for value in AXES[axis] if value <= options.largest):
            print(f"{axis} {value:,}", file=sys.stderr, flush=True)
            at = json.dumps({**USUAL, **BESIDE.get(axis, {}), axis: value})
            found.append(json.loads(subprocess.check_output([sys.executable, __file__, "--alone", at])))
        tables[axis] = found
        report(axis, found)
    if options.picture:
        picture(tables, options.picture)


if __name__ == "__main__":
    main()
