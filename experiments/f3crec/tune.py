"""Choose F3CRec's hyper-parameters on validation items, inside the paper's search ranges, and print what was found.

    python experiments/f3crec/tune.py --data-dir DIR --out DIR --backbone fedmf --strategy f3crec \
        --grid continual.kd_weight=[0.01,0.1,1] --grid aggregation.beta=[0.3,0.6,0.9]

Every point is a run of its own with `--seeds` seeds; points are ordered by the mean of the increments' best validation
NDCG@20. Test items are not looked at.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import yaml

from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.studies.reproductions.runs import IDEAL_FLEET, Job, JobSetting, run_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--backbone", default="fedmf")
    parser.add_argument("--strategy", default="f3crec")
    parser.add_argument("--fidelity", default="released")
    parser.add_argument("--set", dest="fixed", action="append", default=[])
    parser.add_argument("--grid", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=100, help="seeds apart from those of the tables")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    axes = {key: yaml.safe_load(values) for key, values in (item.split("=", 1) for item in options.grid)}
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    jobs = []
    for point in points:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            chosen = [f"{key}={value}" for key, value in point.items()]
            common = ["method=f3crec", f"fidelity={options.fidelity}", f"backbone={options.backbone}"]
            strategy = [f"strategy={options.strategy}"]
            experiment = load_experiment(
                overrides=[*common, *strategy, *options.fixed, *chosen], data=options.data, seed=seed
            )
            name = "_".join([options.backbone, options.strategy, *chosen, *options.fixed, str(seed)]).replace("/", "-")
            jobs.append(Job(experiment, options.out / options.data / options.fidelity / name))
    fleet = load_fleet(
        Path("devices.yaml"),
        {"fleet": {k: v for k, v in IDEAL_FLEET.items() if k != "rounds"}} | {"rounds": IDEAL_FLEET["rounds"]},
    )
    found: dict[str, list[float]] = {}
    for job, run in run_all(jobs, JobSetting(fleet, options.data_dir, options.out / "bases"), options.workers):
        if isinstance(run, str):
            print(f"{job.out.name}: {run}")
            continue
        blocks = run.summary["blocks"]
        value = float(np.mean([block["validation"] for block in blocks[1:]]))
        rounds = [f"{block['best_round']}/{block['rounds']}" for block in blocks]
        print(f"{value:.4f}  {job.out.name}  best rounds {rounds}", flush=True)
        found.setdefault(job.out.name.rsplit("_", 1)[0], []).append(value)
    print("\nmean validation NDCG@20 of the increments, best first")
    for name, values in sorted(found.items(), key=lambda pair: -float(np.mean(pair[1]))):
        print(f"{np.mean(values):.4f} ({len(values)} seeds)  {name}")


if __name__ == "__main__":
    main()
