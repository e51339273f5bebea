"""Clients that learn from sessions: time and memory of updates, and of a whole round with both evaluations.

    python benchmarks/sessions.py [--data-dir DIR] [--rounds N] [--encoder sasrec|gru4rec|tisasrec] [--fidelity ...]
    python benchmarks/sessions.py --method dmi-gnn|hearint|miasrec [--data-dir DIR] [--rounds N]

FCUCR, or a rival that encodes every prefix of a session, on XING: 877 clients with one session each, four steps of
Adam, windows of 15 items, width 50, one thread. A client's update is its draws, teacher, four steps and prototype; a
round is all updates, the server's knowledge base and step, validation and test among 1 + 100; `full` also ranks the
test targets among all items. Times are CPU seconds, the median of the rounds after the first.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors import inline
from edgefr.engine.work import Updates
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.simulation.evaluation.measure import MeasurementPlace
from edgefr.simulation.loop import Training, measure
from edgefr.simulation.prepare import prepare
from edgefr.simulation.stages.sessions import Met
from edgefr.studies.reproductions.runs import ideal_fleet
from privacy.machine import peak_mb


def main() -> None:
    """Run and print one line of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--method", choices=("fcucr", "dmi-gnn", "hearint", "miasrec"), default="fcucr")
    parser.add_argument("--encoder", choices=("sasrec", "gru4rec", "tisasrec"), default="sasrec")
    parser.add_argument("--fidelity", choices=("paper", "released"), default="released", help="of fcucr")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen, what = {"method": asked.method}, asked.method
    if asked.method == "fcucr":
        chosen |= {"backbone": asked.encoder, "fidelity": asked.fidelity}
        what = f"{asked.encoder}, {asked.fidelity}"
    experiment = load_experiment(overrides=["protocol.stream=cyclic"], **chosen, data="xing", rounds=asked.rounds)
    prepared = prepare(experiment, asked.data_dir, "cpu")
    fleet = load_fleet(Path("devices.yaml"), ideal_fleet())
    run = Training.start(experiment, prepared, fleet, torch.device("cpu"), lambda events: None)
    stage = run.stage
    assert isinstance(stage, Met)
    rounds: list[float] = []
    updates: list[float] = []
    full: list[float] = []

    def timed(*asked: Any) -> Updates:
        began = time.process_time()
        found = inline.run(*asked)
        updates[-1] += time.process_time() - began
        return found

    run.federation.backend = InProcess(timed)
    began = time.process_time()

    def measured(run: Training) -> None:
        """Full ranking after each round, beside what the round took."""
        nonlocal began
        done = time.process_time()
        score = stage.score(run, run.best, "test")
        run.measured.candidates(MeasurementPlace("federated", "main"), stage.task, score, "test")
        rounds.append(done - began)
        full.append(time.process_time() - done)
        updates.append(0.0)
        began = time.process_time()

    updates.append(0.0)
    run.learn([measure, measured])
    updates.pop()
    clients = run.federation.counters.clients / asked.rounds
    update = float(np.median(updates[1:])) / clients
    print(
        f"{what}: {1e3 * update:.2f} ms per client update of {clients:.0f}, "
        f"round with both evaluations {np.median(rounds[1:]):.2f} s, full ranking {np.median(full[1:]):.2f} s more, "
        f"peak {peak_mb():.0f} MB"
    )


if __name__ == "__main__":
    main()
