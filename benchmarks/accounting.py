"""What accounting costs per round: a ledger that charges a cohort, and what is done with it around the rounds.

    python benchmarks/accounting.py [--rounds 100]

One thread. Every round charges the whole population, or a random half of it; of several events, each round has the
next. The budget holds in the end ("near") or is far away. Median, mean and longest over rounds, milliseconds of
processor time, after a first call that imports scipy. The aim is 1 ms for 943 clients and 100 ms for 100,000.
The last table is the loop of a run: FedMF on demo data and the default devices.yaml, cohorts of everybody and of a
random half in turn, a budget that binds in the end; what the ledger takes of inviting a cohort, without training.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgefr
from edgefr.data import datasets as data
from edgefr.data.prepared_data import Prepared
from edgefr.simulation.loop import Training
from privacy import keyed
from privacy.accounting import composed
from privacy.guarantee import Event
from privacy.ledger import Ledger

GAUSSIAN, LAPLACE = Event("gaussian", multiplier=12.0), Event("laplace", "l1", 60.0)
LAPLACE_L2, DISCRETE = Event("laplace", "l2", 12.0), Event("discrete-laplace", "l1", 60.0, 2048)
FAR = 30.0  # epsilon that no case reaches
CASES: dict[str, tuple[tuple[Event, ...], float]] = {
    "Gaussian": ((GAUSSIAN,), FAR),
    "Gaussian, near": ((GAUSSIAN,), 2.0),
    "Laplace, L1 clip": ((LAPLACE,), FAR),
    "Laplace, L1 clip, near": ((LAPLACE,), 0.45),
    "Laplace, L2 clip": ((LAPLACE_L2,), FAR),
    "Laplace, L2 clip, near": ((LAPLACE_L2,), 2.0),
    "discrete Laplace": ((DISCRETE,), FAR),
    "all four": ((GAUSSIAN, LAPLACE, LAPLACE_L2, DISCRETE), FAR),
    "all four, near": ((GAUSSIAN, LAPLACE, LAPLACE_L2, DISCRETE), 1.8),
    "Laplace to two recipients, near": ((LAPLACE, replace(LAPLACE, recipient="another client")), 0.45),
    "Gaussian and Laplace, near": ((GAUSSIAN, LAPLACE), 2.0),
}
"""Which events take turns, and the budget."""


def timed(work: Callable[[], object]) -> float:
    """Milliseconds of this thread's processor time, which other work on the host does not lengthen much."""
    started = time.thread_time()
    work()
    return (time.thread_time() - started) * 1e3


def rounds_of(clients: int, case: str, rounds: int, half: bool) -> tuple[Ledger, list[float]]:
    """The ledger after the rounds, and the milliseconds of each round."""
    events, budget = CASES[case]
    made, everyone, spent = Ledger(clients, delta=1e-6, adjacency="zero-out", budget=budget), np.arange(clients), []
    for number in range(rounds):
        who = keyed.choose(keyed.key(0, "cohort", number), everyone, clients // 2) if half else everyone
        event = events[number % len(events)]
        spent.append(timed(lambda who=who, event=event: made.try_spend(who, event)))  # type: ignore[misc]
    assert budget < FAR or not made.refused().any()
    return made, spent


def shown(spent: list[float]) -> str:
    """Median, mean and longest."""
    return f"{statistics.median(spent):.2f}, {statistics.mean(spent):.2f} ({max(spent):.0f})"


def in_the_loop(clients: int, rounds: int) -> dict[str, float]:
    """Milliseconds per round of a run: the ledger's (median and longest), and what inviting a cohort takes in all."""
    settings = {"mechanism": "gaussian", "clip": 1.0, "sigma": 12.0, "budget": 1.1}
    experiment = edgefr.load_experiment(
        method="fedmf",
        data_options={"users": clients, "items": 500, "interactions": 8},
        privacy=settings,
        rounds=rounds,
    )
    dataset = data.load(experiment.data, None, 0, experiment.data_options, None)
    parts: Any = experiment.protocol.apply(dataset, 0)
    splits: dict[str, Any] = {part.name: part for part in parts}
    prepared = Prepared(dataset, splits, experiment.protocol.describe(dataset), None)
    fleet = edgefr.load_fleet(Path(__file__).parent.parent / "devices.yaml")
    simulation = Training.start(experiment, prepared, fleet, torch.device("cpu"), lambda events: None)
    ledger, stage = simulation.participation.ledger, simulation.schedule[0]
    spent, asked, met = [], 0.0, []

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal asked
            started = time.thread_time()
            out = work(*given)
            asked += (time.thread_time() - started) * 1e3
            return out

        return call

    ledger.admit, ledger.spend = watched(ledger.admit), watched(ledger.spend)
    for number in range(1, rounds + 1):
        asked = 0.0
        simulation.experiment.clients_per_round = 1.0 if number % 2 else 0.5
        meet = partial(simulation.participation.meet, number, *stage.turn(simulation, number))
        met.append(timed(meet))
        spent.append(asked)
    assert ledger.refused().any()
    return {"ledger": statistics.median(spent), "most": max(spent), "inviting": statistics.median(met)}


def main() -> None:
    """Print a table per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    composed([(GAUSSIAN, 1), (LAPLACE, 1)], 1e-6)  # imports
    print("| clients | releases | round of all: median, mean (longest) | round of half |\n|---|---|---|---|")
    for clients in (943, 100_000):
        for case in CASES:
            _, whole = rounds_of(clients, case, rounds, half=False)
            made, half = rounds_of(clients, case, rounds, half=True)
            print(f"| {clients:,} | {case} | {shown(whole)} | {shown(half)} |", flush=True)
        parts = {
            "state_dict": timed(made.state_dict),
            "columns": timed(made.columns),
            "from_columns": timed(partial(Ledger.from_columns, made.facts(), made.columns())),
            "worst": timed(made.worst),
        }
        print(f"{clients:,} clients:", ", ".join(f"{name} {ms:.1f} ms" for name, ms in parts.items()))
    print("\n| clients | ledger | longest | inviting in all |\n|---|---|---|---|")
    for clients in (943, 100_000):
        found = in_the_loop(clients, min(rounds, 20))
        print(f"| {clients:,} | {found['ledger']:.3f} | {found['most']:.2f} | {found['inviting']:.1f} |")


if __name__ == "__main__":
    main()
