"""`simulate`: an experiment in, a run folder out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config.arguments import checked
from edgefr.config.documents import Document
from edgefr.config.executors import EngineSection
from edgefr.config.plugins import check_installed
from edgefr.config.progress import watched
from edgefr.data.datasets import GIVEN
from edgefr.data.interactions import Dataset
from edgefr.engine.device import torch_device
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.bundle_checks import check_federated, wanted
from edgefr.simulation.runs.layout import SEEDS
from edgefr.simulation.runs.run import Run
from edgefr.simulation.tracking.tracker import tracked, trackers_of
from privacy.errors import InputError
from privacy.noise_key import NoiseKey
from privacy.progress import Progress

if TYPE_CHECKING:
    pass

Warn = Callable[[str], None]


@watched()
@checked
def simulate(
    experiment: Experiment,
    devices: str | Path | FleetFile = "devices.yaml",
    *,
    data: Dataset | None = None,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    bundles: bool | None = None,
    figures: bool = True,
    checkpoint_every: int | None = None,
    noise_key: NoiseKey | str | Path | None = None,
    track: Sequence[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Run an experiment on a simulated fleet; the result is its folder (default `runs/<name>`).

    `devices`: a devices.yaml or what `load_fleet` made of one. `data`: a data set of the caller's own, as
    `Dataset.from_frame` makes one. `data_dir`: where archives lie (default: EDGEFR_DATA). `bundles`: write a bundle per
    device class (None: where the model can be shipped; True: there, or refuse the run). `figures`: also draw them, and
    write the page report.html. `checkpoint_every`: rounds between checkpoints, from which `resume` goes on (none: no
    checkpoints). `noise_key`: of the simulated noise, or a file of it such as another run's private/noise.key, which is
    then repeated to the byte (none: a new one). `track`: names of trackers that are told of every round. Raises
    `InputError` for everything the caller can mend, before the first round; an unfinished run has no summary.json.

    Example: ``edgefr.simulate(edgefr.load_experiment(overrides=["rounds=2"])).summary["metrics"]``
    """
    fleet = devices if isinstance(devices, FleetFile) else load_fleet(Path(devices), fleet_overrides(experiment))
    check_installed()
    torch_device(experiment.engine.device)
    trackers_of(track)
    experiment = _given(experiment, data)
    bundles = wanted(experiment, bundles)
    if checkpoint_every is not None:
        check_federated(experiment, "round to keep a checkpoint of (checkpoint_every)")
    key = noise_key_of(noise_key)
    with Run.started(out if out is not None else Path("runs") / experiment.name) as run:
        asked = Options(data_dir, bundles, checkpoint_every, figures, data, key, track)
        return _go(run, experiment, fleet, asked, progress)


def noise_key_of(given: NoiseKey | str | Path | None) -> NoiseKey | None:
    """Return a noise key from itself or its file; None where there is none."""
    return given if given is None or isinstance(given, NoiseKey) else NoiseKey.read(given)


def _given(experiment: Experiment, data: Dataset | None) -> Experiment:
    """Return the experiment with `data` as its data set, if there is one."""
    if data is None:
        return experiment
    if experiment.data not in (GIVEN, Experiment.model_fields["data"].default) or experiment.data_options:
        raise InputError(
            f"data= is a data set, and the experiment names another: {experiment.data}; leave one of them out"
        )
    return experiment.model_copy(update={"data": GIVEN})


@watched()
@checked
def resume(
    path: str | Path,
    *,
    data: Dataset | None = None,
    data_dir: str | Path | None = None,
    bundles: bool | None = None,
    figures: bool = True,
    checkpoint_every: int | None = None,
    executor: str | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    track: Sequence[str] = (),
    progress: Progress | None = None,
    warn: Warn = print,
) -> Run:
    """Go on with a run that was stopped or killed, from its newest whole checkpoint (else from its beginning).

    The result is the same as if it had never stopped, with any `executor` and number of `workers`. Raises `InputError`
    for a folder that is no unfinished run, and where experiment, fleet or data are not those it was started with; a run
    whose data were handed over needs them again, as `data`.

    Example: ``edgefr.resume("runs/demo").summary["metrics"]``
    """
    with Run.going_on(path) as run:
        if (run.path / SEEDS).is_file():
            raise InputError(f"{path} holds a run per seed; go on with them by resume_seeds, or name one of them")
        run.sweep()
        experiment = _given(run.experiment, data)
        asked_for = (("executor", executor), ("workers", workers), ("ray_address", ray_address))
        changed = {k: v for k, v in asked_for if v is not None}
        if changed:
            engine = Document(experiment.engine.model_dump() | changed, "--resume").validate(EngineSection)
            experiment = experiment.model_copy(update={"engine": engine})
        fleet = load_fleet(run.path / "devices.yaml")
        asked = Options(data_dir, wanted(experiment, bundles), checkpoint_every, figures, data, track=track)
        return _go(run, experiment, fleet, asked, progress, warn)


@dataclass(frozen=True)
class Options:
    """A run is asked for this beside its experiment."""

    data_dir: str | Path | None
    bundles: bool
    checkpoint_every: int | None
    figures: bool = True
    data: Dataset | None = None
    noise_key: NoiseKey | None = None
    track: Sequence[str] = ()


def _go(
    run: Run,
    experiment: Experiment,
    fleet: FleetFile,
    options: Options,
    progress: Progress | None,
    warn: Warn | None = None,
) -> Run:
    """All steps of a run in its folder; `warn` says that it may already be under way there."""
    from edgefr.simulation.finish import finish_run
    from edgefr.simulation.loop import Training
    from edgefr.simulation.prepare import prepare
    from edgefr.simulation.resolve import resolve, with_shards
    from edgefr.simulation.runs.keeper import Keeper, owner

    began = time.perf_counter()
    device = torch_device(experiment.engine.device)
    data_dir = None if options.data_dir is None else Path(options.data_dir)
    with ExitStack() as ending:
        with nullcontext() if warn is not None else run.recorded(experiment, fleet, options.noise_key):
            prepared = prepare(experiment, data_dir, str(device), progress, options.data)
            resolved = resolve(experiment, prepared, fleet)
            if warn is None or experiment.engine.shard_size is None or run.resolved is None:  # else it is written down
                experiment = with_shards(experiment, resolved.shard_size)
                run.write_resolved(resolved.facts())
                run.write_experiment(experiment)
            key = run.noise_key(experiment.draws_noise)
            training = Training.start(experiment, prepared, fleet, device, run.log.append, key, resolved)
            ending.callback(training.federation.backend.close)
            keeper = Keeper(run, owner(experiment, fleet, prepared), options.checkpoint_every)
            if warn is not None:
                keeper.restore(training, warn)
            if key is not None:
                run.bind(key, keeper.belongs_to)
        told = ending.enter_context(tracked(options.track, run, experiment))
        finish_run(run, training, [keeper, *told], options.bundles, options.figures, began, progress)
    return run


def fleet_overrides(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment's `fleet.*` values as overrides of devices.yaml.

    `fleet.rounds.*` go to its `rounds` section, `fleet.cost.*` to `cost`.
    """
    own = {name: experiment.fleet[name] for name in ("rounds", "cost") if experiment.fleet.get(name)}
    fleet = {key: value for key, value in experiment.fleet.items() if key not in ("rounds", "cost")}
    return ({"fleet": fleet} if fleet else {}) | own
