"""What accounting costs per round: a ledger that charges a cohort, and what is done with it around the rounds.

    python benchmarks/accounting.py [--rounds 100]

One thread. Every round charges the whole population, or a random half of it; the budget holds, so a bound is computed
for each multiset of releases that is new. Median over rounds, milliseconds, after a first call that imports scipy.
The last table is the loop of a run: FedMF on demo data and the default devices.yaml, cohorts of everybody and of a
random half in turn, a budget that binds in the end; what the ledger takes of inviting a cohort, without training.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgefr
from edgefr import data
from edgefr.pipeline import sized, start
from edgefr.prepare import Prepared
from privacy import keyed
from privacy.accounting import composed
from privacy.guarantee import Event
from privacy.ledger import Ledger

EVENTS = {
    "gaussian": Event("gaussian", multiplier=12.0),
    "laplace, L1 clip": Event("laplace", "l1", 60.0),
    "laplace, L2 clip": Event("laplace", "l2", 12.0),
    "discrete laplace": Event("discrete-laplace", "l1", 60.0, 2048),
}


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def ledger(clients: int) -> Ledger:
    """With a budget none of the rounds exceeds."""
    return Ledger(clients, delta=1e-6, adjacency="zero-out", budget=30.0)


def rounds_of(clients: int, event: Event, rounds: int, half: bool) -> tuple[Ledger, float, float]:
    """The ledger after the rounds, median and longest milliseconds of a round."""
    made, everyone, spent = ledger(clients), np.arange(clients), []
    for number in range(rounds):
        who = keyed.choose(keyed.key(0, "cohort", number), everyone, clients // 2) if half else everyone
        spent.append(timed(lambda who=who: made.try_spend(who, event)))  # type: ignore[misc]
    assert not made.refused().any()
    return made, statistics.median(spent), max(spent)


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
    splits: dict[str, Any] = {part.name: part for part in experiment.protocol.apply(dataset, 0)}
    prepared = Prepared(dataset, splits, experiment.protocol.describe(dataset), None)
    fleet = edgefr.load_fleet(Path(__file__).parent.parent / "devices.yaml")
    simulation: Any = start(sized(experiment, prepared), prepared, fleet, torch.device("cpu"), lambda events: None)
    ledger, sampler = simulation.cohorts.ledger, simulation.sampler(simulation.prepared.train_split)
    spent, asked, met = [], 0.0, []

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal asked
            started = time.perf_counter()
            out = work(*given)
            asked += (time.perf_counter() - started) * 1e3
            return out

        return call

    ledger.admit, ledger.spend = watched(ledger.admit), watched(ledger.spend)
    for number in range(1, rounds + 1):
        asked = 0.0
        simulation.experiment.clients_per_round = 1.0 if number % 2 else 0.5
        meet = partial(simulation.cohorts.meet, number, simulation.population, sampler)
        met.append(timed(meet))
        spent.append(asked)
    assert ledger.refused().any()
    return {"ledger": statistics.median(spent), "most": max(spent), "inviting": statistics.median(met)}


def main() -> None:
    """Print a table per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    composed([(EVENTS["gaussian"], 1), (EVENTS["laplace, L1 clip"], 1)], 1e-6)  # imports
    print("| clients | releases | round of all | longest | round of half | longest |")
    print("|---|---|---|---|---|---|")
    for clients in (943, 100_000):
        for name, event in EVENTS.items():
            _, whole, whole_most = rounds_of(clients, event, rounds, half=False)
            made, half, half_most = rounds_of(clients, event, rounds, half=True)
            print(f"| {clients:,} | {name} | {whole:.3f} | {whole_most:.2f} | {half:.3f} | {half_most:.2f} |")
        other = ledger(clients)
        parts = {
            "state_dict": timed(made.state_dict),
            "columns": timed(made.columns),
            "from_columns": timed(lambda made=made, other=other: Ledger.from_columns(made.facts(), made.columns())),
        }
        print(f"{clients:,} clients:", ", ".join(f"{name} {ms:.1f} ms" for name, ms in parts.items()))
    print("\n| clients | ledger | longest | inviting in all |\n|---|---|---|---|")
    for clients in (943, 100_000):
        found = in_the_loop(clients, min(rounds, 20))
        print(f"| {clients:,} | {found['ledger']:.3f} | {found['most']:.2f} | {found['inviting']:.1f} |")


if __name__ == "__main__":
    main()
