"""Run fine-tuning and F3CRec on the block files that were published with F3CRec, as `fidelity: released`.

    python experiments/f3crec/blocks_as_csv.py FOLDER blocks.csv
    python experiments/f3crec/official.py blocks.csv runs/f3crec-official [SEEDS]
    python experiments/f3crec/paired.py runs/f3crec-official

Values are those of the released code's README (`recipes.yaml`); seeds change first values and draws, not splits.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.studies.reproductions.cells import as_yaml
from edgefr.studies.reproductions.f3crec.recipes import recipe
from edgefr.studies.reproductions.runs import Job, JobSetting, ideal_fleet, run_all

NAMED = {"name": "f3crec", "method": "f3crec", "fidelity": "released", "backbone": "fedmf"}


def job(blocks: str, out: Path, strategy: str, seed: int) -> Job:
    """Return one run."""
    values = {**NAMED, "strategy": strategy, **recipe("ml-100k", "fedmf", strategy, "released")}
    asked = [f"{key}={as_yaml(value)}" for key, value in values.items()]
    return Job(load_experiment(overrides=asked, data=blocks, seed=seed), out / "runs" / f"{strategy}_seed-{seed}")


def main(blocks: str, out: Path, seeds: int = 5) -> None:
    """Run what is not there yet."""
    jobs = [job(blocks, out, strategy, seed) for seed in range(seeds) for strategy in ("ft", "f3crec")]
    for done, run in run_all(jobs, JobSetting(load_fleet("devices.yaml", ideal_fleet()), None, out / "bases")):
        print(done.out.name, run if isinstance(run, str) else run.summary["metrics"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:4]))
