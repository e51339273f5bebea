"""Attacks against rules, clip and noise: every combination is run, and a table written (attacks.csv beside this file).

python experiments/attacks/table.py DATA [--rules RULE ...] [--seeds N ...] [--out FILE] [--workers N]
DATA: the folder with the public archives
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RULES = ("mean", "median", "trimmed-mean", "krum", "norm-bounded")
ATTACKS, SHARES = ("pieck-ipe", "pieck-uea", "fedrecattack"), (0.01, 0.05)
CLIP = ("privacy.clip=1",)
NOISE = (*CLIP, "privacy.mechanism=gaussian", "privacy.epsilon=8")
BEYOND = ("attackers.beyond=true",)
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain": ((), RULES),
    "clip 1": (CLIP, RULES),
    "clip 1, epsilon 8": (NOISE, ("mean",)),
    "beyond": (BEYOND, ("mean", "norm-bounded")),
    "beyond clip 1": ((*CLIP, *BEYOND), ("mean",)),
}
"""What is set in each part, and the rules that are tried in it."""
Job = tuple[Path, int, str, str, str, float]


def main() -> None:
    """Run all combinations of every seed, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=HERE / "attacks.csv")
    parser.add_argument("--rules", nargs="+", default=RULES, choices=RULES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with (
        ProcessPoolExecutor(asked.workers) as pool,
        asked.out.open("w", newline="", encoding="utf-8") as file,
    ):
        table: csv.DictWriter[str] | None = None
        for row in pool.map(
            run, [job for seed in asked.seeds for job in jobs(asked.data, seed) if job[3] in asked.rules]
        ):
            if table is None:
                table = csv.DictWriter(file, row)
                table.writeheader()
            table.writerow(row)
            file.flush()


def jobs(data: Path, seed: int) -> Iterator[Job]:
    """Yield every combination; without attackers a part beyond is the part that is like it but for that."""
    for part, (_, rules) in PARTS.items():
        alone = [] if part.startswith("beyond") else [(ATTACKS[0], 0.0)]
        for rule, (kind, share) in product(rules, [*alone, *product(ATTACKS, SHARES)]):
            yield data, seed, part, rule, kind, share


def run(job: Job) -> dict[str, Any]:
    """Return a row: what was run, exposure and rank of the target, honest users' metrics by full ranking."""
    from edgefr.experiment import load_experiment
    from edgefr.fleet import load_fleet
    from edgefr.simulation.attackers import exposure
    from edgefr.simulation.loop import Training
    from edgefr.simulation.resolve import resolve

    data, seed, part, rule, kind, share = job
    asked = [*PARTS[part][0], f"aggregation.rule={rule}", f"attackers.kind={kind}", f"attackers.share={share}"]
    experiment = load_experiment(HERE / "fedmf-ml-100k.yaml", overrides=[*asked, f"seed={seed}"])
    prepared, fleet = _prepared(data, seed), load_fleet(Path("devices.yaml"))
    resolved = resolve(experiment, prepared, fleet)
    training = Training.start(
        resolved.experiment, prepared, fleet, resolved.device, lambda events: None, None, resolved
    )
    training.train()
    found = exposure(training)
    own = {f"honest {name}": round(found["honest"][name], 5) for name in ("HR@10", "NDCG@10")}
    what = {"seed": seed, "part": part, "rule": rule, "attack": kind if share else "none", "share": share}
    return {**what, "attackers": found["attackers"], "ER@10": round(found["ER@10"], 5), "rank": found["rank"], **own}


@cache
def _prepared(data: Path, seed: int) -> Any:
    from edgefr.experiment import load_experiment
    from edgefr.simulation.prepare import prepare

    return prepare(load_experiment(HERE / "fedmf-ml-100k.yaml", overrides=[f"seed={seed}"]), data, "cpu")


if __name__ == "__main__":
    main()
