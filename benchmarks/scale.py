"""Seconds and memory by the number of users: FedMF on generated data, with cohorts of 1 % and of 1,000 clients.

    python benchmarks/scale.py [--users 10000 100000 1000000] [--items 100000] [--rounds 3]

Every size runs in a process of its own, so that its peak of resident memory is its own. Stages are those of
`edgefr simulate`, taken one by one. Times are CPU seconds of one thread; a round is the median of `--rounds`. A round
is the invitation, the fleet (default devices.yaml) and the training of those who contribute. The second table times
the parts of a round on their own, for a cohort of 1,000: what grows with the users there does not follow the cohort.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import edgefr
from cloud.aggregate import Accumulator
from edgefr import data
from edgefr.engine.footprint import round_work
from edgefr.experiment import Experiment
from edgefr.metrics import evaluate
from edgefr.pipeline import sized
from edgefr.prepare import Prepared
from edgefr.training import Training
from privacy import keyed
from privacy.machine import peak_mb

DEVICES = Path(__file__).parent.parent / "devices.yaml"
COHORTS = {"1 %": 0.01, "1,000": 1000.0}
FULL_USERS, SAMPLED_USERS = 1000, 5000
SEED = 0


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def clocked(call: Callable[[], Any]) -> tuple[Any, float]:
    """A call's answer and its CPU seconds."""
    started = time.process_time()
    answer = call()
    return answer, time.process_time() - started


def experiment_of(users: int, items: int, interactions: float, rounds: int) -> Experiment:
    """FedMF on demo data of that size, as a user would write it down."""
    options = {"users": users, "items": items, "interactions": interactions}
    return edgefr.load_experiment(
        name="scale", method="fedmf", data="demo", data_options=options, rounds=rounds, seed=SEED, **{"model.dim": 32}
    )


def measure(users: int, items: int, interactions: float, rounds: int) -> dict[str, Any]:
    """All figures of one size."""
    experiment = experiment_of(users, items, interactions, rounds)
    started = peak_mb()
    dataset, generate = clocked(lambda: data.load(experiment.data, None, SEED, experiment.data_options, None))
    say(f"  {len(dataset.item):,} interactions of {users:,} users in {generate:.1f} s, {peak_mb():,.0f} MB")
    splits, split = clocked(lambda: experiment.protocol.apply(dataset, SEED))
    say(f"  split in {split:.1f} s, {peak_mb():,.0f} MB")
    protocol = experiment.protocol.describe(dataset)
    prepared = Prepared(dataset, {part.name: part for part in splits}, protocol, None)
    experiment = sized(experiment, prepared)
    out = {"users": users, "interactions": len(dataset.item), "generate": generate, "split": split}
    out |= {"started_mb": started, "data_mb": peak_mb(), "cohorts": {}}
    for name, size in COHORTS.items():
        one = experiment.model_copy(update={"clients_per_round": size})
        fleet = edgefr.load_fleet(DEVICES)
        simulation, begin = clocked(lambda one=one, fleet=fleet: begun(one, prepared, fleet))
        out["begin"] = begin
        out["cohorts"][name] = rounds_of(simulation, rounds)
        say(f"  cohort of {name}: {out['cohorts'][name]}, {peak_mb():,.0f} MB")
    out |= {"parts": parts(simulation), "trained_mb": peak_mb()}
    out["evaluate"] = evaluation(simulation)
    say(f"  evaluation: {out['evaluate']}")
    return out | {"peak_mb": peak_mb()}


def begun(experiment: Experiment, prepared: Prepared, fleet: Any) -> Training:
    """The experiment before its first round."""
    return Training.start(experiment, prepared, fleet, torch.device("cpu"), lambda events: None)


def rounds_of(simulation: Training, rounds: int) -> dict[str, float]:
    """CPU seconds of a round (median), clients that contributed to it (mean), and clients per second."""
    split = simulation.prepared.train_split
    sampler = simulation.sampler(split.train, split.pool)
    seconds, clients = [], []
    for number in range(1, rounds + 1):
        contributors, met = clocked(lambda n=number: simulation.participation.meet(n, simulation.clients, sampler))
        _, trained = clocked(
            lambda n=number, who=contributors: simulation.federation.round(n, who, sampler, split.train)
        )
        seconds.append(met + trained)
        clients.append(len(contributors))
    return {
        "round": float(np.median(seconds)),
        "clients": float(np.mean(clients)),
        "speed": sum(clients) / sum(seconds),
    }


def parts(simulation: Training) -> dict[str, float]:
    """Milliseconds of the parts of a round beside training, each on its own, best of three."""
    federation, fleet = simulation.federation, simulation.fleet
    split = simulation.prepared.train_split
    sampler, phases = simulation.sampler(split.train, split.pool), federation.phases("round")
    invited = federation.cohort(100, simulation.clients, fleet.over_selected(1000))
    work = round_work(federation.program, phases, sampler, invited, np.ones(len(invited), bool))

    def move() -> None:
        total = Accumulator(federation.shared)
        total.add_weight(1.0, 1)
        total.apply(federation.shared, federation.aggregation)

    size = federation.shard_size
    calls: dict[str, Callable[[], Any]] = {
        "draw the cohort": lambda: federation.cohort(100, simulation.clients, len(invited)),
        "footprints": lambda: round_work(federation.program, phases, sampler, invited, np.ones(len(invited), bool)),
        "fleet": lambda: fleet.round(100, invited, work),
        "cut shards": lambda: federation.shards(invited, split.train.counts),
        "counts of a shard": lambda: sampler.train.counts[invited[:size]],
        "positives of a shard": lambda: sampler.train.take(invited[:size]),
        "server's sum and step": move,
    }
    return {name: min(clocked(call)[1] for _ in range(3)) * 1e3 for name, call in calls.items()}


def evaluation(simulation: Training) -> dict[str, float]:
    """CPU seconds of ranking test items: all items and sampled candidates on keyed samples of users, then everyone."""
    split = simulation.prepared.train_split
    score = simulation.scorer(simulation.together(), split, split.train)
    everyone = split.users("test")

    def seconds(ranking: Literal["full", "sampled"], size: int) -> float:
        users = keyed.choose(keyed.key(SEED, "users of the benchmark"), everyone, size)
        return clocked(lambda: evaluate(score, split, "test", ranking, users))[1]

    return {
        "full": seconds("full", FULL_USERS),
        "sampled": seconds("sampled", SAMPLED_USERS),
        "everyone": seconds("sampled", len(everyone)),
    }


def report(found: list[dict[str, Any]]) -> None:
    """Print the tables; a column per size."""
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "users": lambda f: f"{f['users']:,}",
        "interactions": lambda f: f"{f['interactions']:,}",
        "generate, s": lambda f: f"{f['generate']:.1f}",
        "split, s": lambda f: f"{f['split']:.1f}",
        "server, clients and fleet, s": lambda f: f"{f['begin']:.1f}",
    }
    for name in COHORTS:
        rows |= {
            f"cohort {name}: clients that contribute": lambda f, n=name: f"{f['cohorts'][n]['clients']:,.0f}",
            f"cohort {name}: round, s": lambda f, n=name: f"{f['cohorts'][n]['round']:.2f}",
            f"cohort {name}: clients/s": lambda f, n=name: f"{f['cohorts'][n]['speed']:,.0f}",
        }
    rows |= {
        f"full ranking of {FULL_USERS:,} users, s": lambda f: f"{f['evaluate']['full']:.2f}",
        f"sampled ranking of {SAMPLED_USERS:,} users, s": lambda f: f"{f['evaluate']['sampled']:.2f}",
        "sampled ranking of everyone, s": lambda f: f"{f['evaluate']['everyone']:.1f}",
        "memory before data, MB": lambda f: f"{f['started_mb']:,.0f}",
        "peak after data and split, MB": lambda f: f"{f['data_mb']:,.0f}",
        "peak after rounds, MB": lambda f: f"{f['trained_mb']:,.0f}",
        "peak after evaluation, MB": lambda f: f"{f['peak_mb']:,.0f}",
    }
    print_table(rows, found)
    print("\nmilliseconds, cohort of 1,000 (1,300 invited):\n")
    pieces = {name: lambda f, n=name: f"{f['parts'][n]:.2f}" for name in found[0]["parts"]}
    print_table({"users": rows["users"], **pieces}, found)


def print_table(rows: dict[str, Callable[[dict[str, Any]], str]], found: list[dict[str, Any]]) -> None:
    """Markdown: a line per row, a column per size."""
    lines = [[name, *(cell(one) for one in found)] for name, cell in rows.items()]
    lines.insert(1, ["---", *("---:" for _ in found)])
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--interactions", type=float, default=20.0, help="mean per user")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="one size in this process, figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.alone:
        print(json.dumps(measure(options.users[0], options.items, options.interactions, options.rounds)))
        return
    found = []
    for users in options.users:
        say(f"{users:,} users")
        given = ["--items", str(options.items), "--interactions", str(options.interactions)]
        command = [sys.executable, __file__, "--alone", "--users", str(users), *given, "--rounds", str(options.rounds)]
        found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    report(found)


if __name__ == "__main__":
    main()
