"""`simulate`: an experiment in, a run folder out."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

from edgefr.experiment import Experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.prepare import Progress, prepare
from edgefr.run import Run
from privacy.errors import InputError, unknown


def simulate(
    experiment: Experiment,
    devices: str | Path | FleetFile = "devices.yaml",
    *,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    bundles: bool = True,
    progress: Progress | None = None,
) -> Run:
    """Run an experiment on a simulated fleet; the result is its folder (default `runs/<name>`).

    `devices`: a devices.yaml or what `load_fleet` made of one. `data_dir`: where archives lie (default: EDGEFR_DATA).
    `bundles`: also write a bundle per device class. Raises `InputError` for everything the caller can mend; a run
    that did not finish has no summary.json.

    Example: ``edgefr.simulate(edgefr.load_experiment(overrides=["rounds=2"])).summary["metrics"]``
    """
    from edgefr.engine.footprint import default_shard_size
    from edgefr.report.figures import draw
    from edgefr.report.summary import summarise
    from edgefr.shipping import export_run, save_model
    from edgefr.simulation import Simulation, build_program

    began = time.perf_counter()
    fleet = devices if isinstance(devices, FleetFile) else load_fleet(Path(devices), fleet_overrides(experiment))
    device = torch_device(experiment.engine.device)
    with Run.started(out if out is not None else Path("runs") / experiment.name) as run:
        prepared = prepare(experiment, None if data_dir is None else Path(data_dir), str(device), progress)
        if experiment.engine.shard_size is None:
            size = default_shard_size(
                build_program(experiment, prepared), experiment.batch_size, experiment.engine.memory_mb
            )
            engine = experiment.engine.model_copy(update={"shard_size": size})
            experiment = experiment.model_copy(update={"engine": engine})
        simulation = Simulation.start(experiment, prepared, fleet, device)
        run.write_experiment(experiment)
        run.write_devices(fleet)
        simulation.train(progress)
        simulation.finish(progress)
        save_model(run, simulation)
        run.write_events(simulation.events)
        run.write_metrics(simulation.measured.rows)
        shipped = export_run(run, progress=progress) if bundles else []
        summary = summarise(simulation, time.perf_counter() - began, peak_rss_mb(), shipped)
        draw(run.path / "figures", simulation.measured.rows, summary)
        run.write_summary(summary)
    return run


def simulate_seeds(
    experiment: Experiment, seeds: int, out: str | Path, *, progress: Progress | None = None, **options: Any
) -> list[Run]:
    """The experiment with seeds s, s+1, ...: one run each in `out/seed-<s>`, and mean ± sd in `out/summary.json`."""
    from edgefr.report.summary import over_seeds

    if seeds < 1:
        raise InputError(f"--seeds takes a whole number of at least 1, got {seeds}")
    if experiment.seed + seeds > 2**31:
        raise InputError(
            f"seeds end at {2**31 - 1}, and {seeds} from {experiment.seed} go beyond; use a smaller --seed"
        )
    runs = []
    with Run.started(out) as parent:
        for seed in range(experiment.seed, experiment.seed + seeds):
            one = experiment.model_copy(update={"seed": seed})
            runs.append(simulate(one, out=parent.path / f"seed-{seed}", progress=_of_seed(seed, progress), **options))
        parent.write_experiment(experiment)
        parent.write_summary(over_seeds([run.summary for run in runs]))
    return runs


def _of_seed(seed: int, progress: Progress | None) -> Progress | None:
    """Progress that says which seed a stage belongs to."""
    if progress is None:
        return None
    return lambda stage, done, total, note: progress(f"seed {seed}: {stage}", done, total, note)


def fleet_overrides(experiment: Experiment) -> dict[str, Any]:
    """The experiment's `fleet.*` values as overrides of devices.yaml: `fleet.rounds.*` go to its `rounds` section."""
    fleet = {key: value for key, value in experiment.fleet.items() if key != "rounds"}
    rounds = experiment.fleet.get("rounds", {})
    return ({"fleet": fleet} if fleet else {}) | ({"rounds": rounds} if rounds else {})


def torch_device(name: str) -> Any:
    """The torch device for auto, cpu or cuda. Raises `InputError` for other names, and for cuda where there is none."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise unknown("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device was found; use --device cpu or --device auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def peak_rss_mb() -> float:
    """Peak resident memory of this process, MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
