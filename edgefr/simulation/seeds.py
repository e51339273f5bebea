"""Several runs of one experiment, one per seed, in one folder; mean and spread over them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgefr.config.arguments import checked
from edgefr.config.executors import WHO_WORKS
from edgefr.config.progress import watched
from edgefr.engine.device import torch_device
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.runs.keeper import asked
from edgefr.simulation.runs.layout import SEEDS
from edgefr.simulation.runs.run import Run
from edgefr.simulation.simulate import fleet_overrides, noise_key_of, resume, simulate
from privacy.errors import InputError
from privacy.files import write_json
from privacy.noise_key import NoiseKey
from privacy.progress import Progress


@watched()
@checked
def simulate_seeds(
    experiment: Experiment, seeds: int, out: str | Path, *, progress: Progress | None = None, **options: Any
) -> list[Run]:
    """Run the experiment with seeds s, s+1, ....

    One run each in `out/seed-<s>`, and mean ± sd in `out/summary.json`. All draw their simulated noise with one key,
    in `out/private/noise.key`: the one given as `noise_key`, or a new one.
    """
    if seeds < 1:
        raise InputError(f"--seeds takes a whole number of at least 1, got {seeds}")
    if experiment.seed + seeds > 2**31:
        raise InputError(f"seeds end at {2**31 - 1}, {seeds} from {experiment.seed} go beyond; use a smaller --seed")
    torch_device(experiment.engine.device)
    fleet = options.pop("devices", "devices.yaml")
    fleet = fleet if isinstance(fleet, FleetFile) else load_fleet(Path(fleet), fleet_overrides(experiment))
    given = noise_key_of(options.pop("noise_key", None))
    with Run.started(out) as parent:
        options["noise_key"] = _key_of_seeds(parent, experiment, fleet, given)
        write_json(parent.path / SEEDS, {"first": experiment.seed, "number": seeds})
        parent.write_devices(fleet)
        parent.write_experiment(experiment)  # last: a folder with an experiment can be gone on with
        return _each_seed(parent, experiment, seeds, progress, simulate, {**options, "devices": fleet})


@watched()
def resume_seeds(path: str | Path, *, progress: Progress | None = None, **options: Any) -> list[Run]:
    """Go on with `simulate_seeds`: finished seeds are kept, a broken-off one goes on, the others are started."""
    with Run.going_on(path) as parent:
        parent.sweep()
        fleet = load_fleet(parent.path / "devices.yaml")
        warn = options.pop("warn", print)
        number = _number_of_seeds(parent)
        kept = {k: v for k, v in options.items() if k not in WHO_WORKS}
        kept["noise_key"] = _key_of_seeds(parent, parent.experiment, fleet)

        def go(experiment: Experiment, *, out: Path, progress: Progress | None) -> Run:
            if (out / "summary.json").is_file():
                return Run(out)
            if (out / "experiment.yaml").is_file():
                return resume(out, progress=progress, warn=warn, **options)
            Run(out).forget()  # killed before its first file was whole
            return simulate(experiment, fleet, out=out, progress=progress, **kept)

        return _each_seed(parent, parent.experiment, number, progress, go, {})


def _key_of_seeds(
    parent: Run, experiment: Experiment, fleet: FleetFile, given: NoiseKey | None = None
) -> NoiseKey | None:
    """Return the key of all seeds' simulated noise, which each of them makes its own; None where none is drawn."""
    to = asked(experiment, fleet)
    key = parent.noise_key(experiment.draws_noise, None if given is None else given.bound(to))
    if key is None:
        return None
    parent.bind(key, to)
    return NoiseKey(key.secret)


def _number_of_seeds(parent: Run) -> int:
    try:
        return int(json.loads((parent.path / SEEDS).read_text(encoding="utf-8"))["number"])
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise InputError(f"cannot read {parent.path / SEEDS}: {error}; run it again with another --out") from None


def _each_seed(
    parent: Run,
    experiment: Experiment,
    seeds: int,
    progress: Progress | None,
    go: Callable[..., Run],
    options: dict[str, Any],
) -> list[Run]:
    from edgefr.report.over_seeds import over_seeds
    from edgefr.simulation.summary.pages import FILE, MOST_RUNS, write_runs

    runs = []
    for seed in range(experiment.seed, experiment.seed + seeds):
        one = experiment.model_copy(update={"seed": seed})
        runs.append(go(one, out=parent.path / f"seed-{seed}", progress=_of_seed(seed, progress), **options))
    if options.get("page", True) and len(runs) <= MOST_RUNS:
        write_runs([run.path for run in runs], parent.path / FILE)
    parent.write_summary(over_seeds([run.summary for run in runs]))
    return runs


def _of_seed(seed: int, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda stage, done, total, note: progress(f"seed {seed}: {stage}", done, total, note)
