"""`simulate`: an experiment in, a run folder out.

    checks → data → resolved → rounds of all stages → tests, saved model → bundles → summary, page

Owns: these steps and their order, for runs that start and runs that go on. Does not own: any of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
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
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.bundle_checks import check_federated, only_recommends, unshippable, wanted
from edgefr.simulation.runs.folder import free_folder
from edgefr.simulation.runs.layout import SEEDS
from edgefr.simulation.runs.run import Run
from edgefr.simulation.tracking.tracker import tracked, trackers_of
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.machine import give_back, peak_mb
from privacy.noise_key import NoiseKey
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.loop import Callback, Training

Warn = Callable[[str], None]


@watched()
@checked
def simulate(
    experiment: Experiment | None = None,
    devices: str | Path | FleetFile = "devices.yaml",
    *,
    method: str | None = None,
    data: Any = None,
    rounds: int | None = None,
    clients_per_round: float | None = None,
    epsilon: float | None = None,
    clip: float | None = None,
    seed: int | None = None,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    bundles: bool | None = None,
    page: bool = True,
    checkpoint_every: int | None = None,
    noise_key: NoiseKey | str | Path | None = None,
    track: Sequence[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Run an experiment on a simulated fleet; the result is its folder (default `runs/<name>`, numbered).

    `experiment`: what `load_experiment` returns (none: the demo). `method`, `data`, `rounds`, `clients_per_round`,
    `epsilon`, `clip` and `seed` change it, as the options of these names do. `data` is a name, a file or folder, a data
    frame, or a `Dataset`. `devices`: a devices.yaml or what `load_fleet` made of one. `data_dir`: where archives lie
    (default: EDGEFR_DATA). `bundles`: write a bundle per device class (None: where the model can be shipped; True:
    there, or refuse the run). `page`: also write report.html. `checkpoint_every`: rounds between checkpoints, from
    which `resume` goes on (none: no checkpoints). `noise_key`: of the simulated noise, or a
    file of it such as another run's private/noise.key, which is then repeated to the byte (none: a new one). `track`:
    names of trackers that are told of every round. Raises `InputError` for everything the caller can mend, before the
    first round; an unfinished run has no summary.json.

    Example: ``edgefr.simulate(method="fedmf", data=frame, rounds=20).summary["metrics"]``
    """
    fields = {"method": method, "rounds": rounds, "clients_per_round": clients_per_round}
    fields |= {"epsilon": epsilon, "clip": clip, "seed": seed}
    experiment, data = _asked(experiment, data, fields)
    fleet = devices if isinstance(devices, FleetFile) else load_fleet(Path(devices), fleet_overrides(experiment))
    check_installed()
    trackers_of(track)
    experiment = _given(experiment, data)
    if checkpoint_every is not None:
        check_federated(experiment, "round to keep a checkpoint of (checkpoint_every)")
    bundles = wanted(experiment, bundles)
    key = noise_key_of(noise_key)
    with Run.started(out if out is not None else free_folder(Path("runs") / experiment.name)) as run:
        asked = Options(data_dir, bundles, checkpoint_every, page, data, key, track)
        return go(run, experiment, fleet, asked, progress)


def _asked(experiment: Experiment | None, data: Any, fields: Mapping[str, Any]) -> tuple[Experiment, Dataset | None]:
    """Return the experiment with these fields changed, and the data set that its caller hands over."""
    named = str(data) if isinstance(data, str | Path) else None
    given = None if named is not None or data is None else data
    if not (given is None or isinstance(given, Dataset)):
        given = Dataset.from_frame(given)
    changed = {name: value for name, value in {**fields, "data": named}.items() if value is not None}
    if changed or experiment is None:
        experiment = load_experiment(experiment, **changed)
    return experiment, given


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
    page: bool = True,
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
        asked = Options(data_dir, wanted(experiment, bundles), checkpoint_every, page, data, track=track)
        return go(run, experiment, fleet, asked, progress, warn)


@dataclass(frozen=True)
class Options:
    """A run is asked for this beside its experiment."""

    data_dir: str | Path | None
    bundles: bool
    checkpoint_every: int | None
    page: bool = True
    data: Dataset | None = None
    noise_key: NoiseKey | None = None
    track: Sequence[str] = ()


def go(
    run: Run,
    experiment: Experiment,
    fleet: FleetFile,
    options: Options,
    progress: Progress | None,
    warn: Warn | None = None,
) -> Run:
    """Do all steps of a run in its folder; `warn` says that it may already be under way there."""
    from edgefr.engine.device import torch_device
    from edgefr.simulation.loop import Training
    from edgefr.simulation.prepare import prepare
    from edgefr.simulation.resolve import resolve
    from edgefr.simulation.runs.keeper import Keeper, owner
    from edgefr.simulation.runs.successor import Successor

    began, new, stands = time.perf_counter(), warn is None, Successor.of(run)
    torch_device(experiment.engine.device)  # one that is missing is refused before any work
    data_dir = None if options.data_dir is None else Path(options.data_dir)
    with ExitStack() as ending:
        with run.recorded(experiment, fleet, options.noise_key) if new else nullcontext():
            users = None if stands is None else stands.users
            prepared = prepare(experiment, data_dir, experiment.engine.device, progress, options.data, users)
            resolved = resolve(experiment, prepared, fleet)
            if new or experiment.engine.shard_size is None or run.resolved is None:  # else it is written down
                run.write_resolved(resolved.facts())
                run.write_experiment(resolved.experiment)
            key = run.noise_key(experiment.draws_noise)
            earlier = None if stands is None else stands.ledger(prepared.dataset.users.tolist())
            training = Training.start(
                resolved.experiment, prepared, fleet, resolved.device, run.log.append, key, resolved, earlier
            )
            ending.callback(training.federation.backend.close)
            belongs_to = owner(resolved.experiment, fleet, prepared)
            keeper = Keeper(run, belongs_to, options.checkpoint_every)
            if warn is not None:
                keeper.restore(training, warn)
            if key is not None:
                run.bind(key, belongs_to)
        told = ending.enter_context(tracked(options.track, run))
        finish_run(run, training, [keeper, *told], options.bundles, options.page, began, progress)
    return run


def finish_run(
    run: Run,
    training: Training,
    callbacks: Iterable[Callback] = (),
    bundles: bool = False,
    page: bool = True,
    began: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Go through the rounds that are left, every stage after them, and all files of the run.

    `began` is when its time started.
    """
    from edgefr.data.splits.candidate_file import write_candidates
    from edgefr.metrics.settings import UNLEARNED
    from edgefr.report.web.facts import Facts
    from edgefr.report.web.page import run_page
    from edgefr.simulation.runs.keeper import keep_ledger
    from edgefr.simulation.runs.saved_model import save_model
    from edgefr.simulation.summary.pages import FILE
    from edgefr.simulation.summary.summary import norms_of, summarise

    began = time.perf_counter() if began is None else began
    prepared, measured = training.prepared, training.measured
    with closing(training.federation.backend):
        training.train(callbacks, progress)
        results = training.results()
        save_model(run, training)
        if training.saved:
            run.write_tensors("blocks", training.saved)
    keep_ledger(run, training)
    run.write_metrics(measured.rows)
    run.write_users(measured.per_user([*training.stages, UNLEARNED]), prepared.dataset.users)
    if training.federation.plan.guarantees:
        run.write_norms(norms_of(training))
    shipped, why = _ship(run, progress) if bundles else ([], None)
    summary = summarise(training, results, time.perf_counter() - began, peak_mb() or 0.0, shipped)
    if why is not None:
        summary["no_bundles"] = why
    if shipped and (why := only_recommends(run.experiment)) is not None:
        summary["only_recommends"] = why
    if page:
        write_atomic(run.path / FILE, run_page(Facts(run.path, summary)))
    if prepared.sessions is not None:
        write_candidates(run.path / "candidates.parquet", prepared.dataset, prepared.splits["main"])
    run.write_summary(summary)


def _ship(run: Run, progress: Progress | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return the bundles of a run, a row per device class; or none, and why none can be made."""
    from edgefr.simulation.bundles import export_run
    from export.variants import NoBundle

    if (why := unshippable(run.experiment)) is not None:
        return [], why
    try:
        give_back()  # what rounds and their evaluation took: encoders are tried beside it
        return export_run(run, progress=progress), None
    except NoBundle as error:  # what a disk refuses is mended, and the run resumed
        return [], str(error)


def fleet_overrides(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment's `fleet.*` values as overrides of devices.yaml.

    `fleet.rounds.*` go to its `rounds` section, `fleet.cost.*` to `cost`.
    """
    own = {name: experiment.fleet[name] for name in ("rounds", "cost") if experiment.fleet.get(name)}
    fleet = {key: value for key, value in experiment.fleet.items() if key not in ("rounds", "cost")}
    return ({"fleet": fleet} if fleet else {}) | own
