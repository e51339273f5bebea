"""`simulate`: an experiment in, a run folder out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefr.config.arguments import checked
from edgefr.config.documents import Document
from edgefr.config.executors import WHO_WORKS, EngineSection
from edgefr.config.plugins import check_installed
from edgefr.config.progress import watched
from edgefr.data.datasets import GIVEN
from edgefr.data.interactions import Dataset
from edgefr.data.prepared import Prepared
from edgefr.data.splits.candidate_file import write_candidates
from edgefr.data.splits.task import Task
from edgefr.engine.device import torch_device
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.paths import without_folders
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.bundle_checks import check_federated, only_recommends, unshippable, wanted
from edgefr.simulation.prepare import prepare
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.runs import checkpoint
from edgefr.simulation.runs.layout import CHECKPOINT
from edgefr.simulation.runs.run import Run
from edgefr.simulation.tracking.tracker import tracked, trackers_of
from privacy.errors import InputError
from privacy.files import write_json
from privacy.machine import give_back, peak_mb
from privacy.noise_key import NoiseKey
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.callbacks import Callback
    from edgefr.simulation.loop import Training
    from edgefr.simulation.stages.stage import Running

Warn = Callable[[str], None]
SEEDS = "seeds.json"


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
    key = _key_of(noise_key)
    with Run.started(out if out is not None else Path("runs") / experiment.name) as run:
        asked = Options(data_dir, bundles, checkpoint_every, figures, data, key, track)
        return _go(run, experiment, fleet, asked, progress)


def _key_of(given: NoiseKey | str | Path | None) -> NoiseKey | None:
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
    """All stages of a run in its folder; `warn` says that it may already be under way there."""
    from edgefr.simulation.loop import Training

    began = time.perf_counter()
    device = torch_device(experiment.engine.device)
    data_dir = None if options.data_dir is None else Path(options.data_dir)
    with ExitStack() as ending:
        with nullcontext() if warn is not None else run.recorded(experiment, fleet, options.noise_key):
            prepared = prepare(experiment, data_dir, str(device), progress, options.data)
            if experiment.engine.shard_size is None:
                experiment = sized(experiment, prepared)
                run.write_experiment(experiment)
            key = run.noise_key(experiment.draws_noise)
            training = Training.start(experiment, prepared, fleet, device, run.log.append, key)
            ending.callback(training.federation.backend.close)
            keeper = Keeper(run, owner(experiment, fleet, prepared), options.checkpoint_every)
            if warn is not None:
                keeper.restore(training, warn)
            if key is not None:
                run.bind(key, keeper.belongs_to)
        told = ending.enter_context(tracked(options.track, run, experiment))
        finish_run(run, training, [keeper, *told], options.bundles, options.figures, began, progress)
    return run


def finish_run(
    run: Run,
    training: Training,
    callbacks: Iterable[Callback] = (),
    bundles: bool = False,
    figures: bool = True,
    began: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Go through the rounds that are left, every stage after them, and all files of the run.

    `began` is when its time started.
    """
    from edgefr.metrics.names import UNLEARNED
    from edgefr.report.figures import draw
    from edgefr.report.web.facts import Facts
    from edgefr.simulation.runs.saved_model import save_model
    from edgefr.simulation.summary.pages import write_page
    from edgefr.simulation.summary.summary import norms_of, summarise

    began = time.perf_counter() if began is None else began
    try:
        training.train(callbacks, progress)
        # what clients keep may lie with the backend
        results = protocol_of(training.experiment).results(training)
        save_model(run, training)
        if training.saved:
            run.write_tensors("blocks", training.saved)
    finally:
        training.federation.backend.close()
    if training.prepared.sessions is not None:
        write_candidates(run.path / "candidates.parquet", training.prepared.dataset, training.prepared.splits["main"])
    run.write_metrics(training.measured.rows)
    final = training.measured.per_user([*training.stages, UNLEARNED])
    run.write_users(final, training.prepared.dataset.users)
    keep_ledger(run, training)
    if training.federation.plan.guarantees:
        run.write_norms(norms_of(training))
    shipped, why = _ship(run, progress) if bundles else ([], None)
    summary = summarise(training, results, time.perf_counter() - began, peak_mb() or 0.0, shipped)
    if why is not None:
        summary["no_bundles"] = why
    if shipped and (why := only_recommends(run.experiment)) is not None:
        summary["only_recommends"] = why
    if figures:
        give_back()  # what bundles took
        draw(run.path / "figures", training.measured.rows, summary)
        write_page(Facts(run.path, summary))
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


def keep_ledger(run: Run, training: Running) -> None:
    """Write what the clients have released so far, if that is counted."""
    if training.participation.ledger is not None:
        run.write_ledger(training.participation.ledger)


def sized(experiment: Experiment, prepared: Prepared) -> Experiment:
    """Return the experiment with its shard size resolved: it decides the order of sums, so it belongs to the record."""
    from edgefr.engine.executors.dp_sgd import largest_shard
    from edgefr.engine.footprint import default_shard_size
    from edgefr.simulation.setup import build_program

    if experiment.engine.shard_size is not None:
        return experiment
    program, memory = build_program(experiment, prepared), experiment.engine.memory_mb
    tasks: list[Task] = [*prepared.splits.values(), *prepared.blocks]
    most = max((int(task.train.counts.max(initial=0)) for task in tasks), default=0)
    batch = max(1, min(experiment.batch_size, most * (1 + experiment.negatives)))  # nobody's batch is longer
    size = default_shard_size(program, batch, memory)
    if experiment.privacy.examples is not None:
        size = min(size, largest_shard(program, memory))
    found = {"shard_size": size, "memory_mb": EngineSection().memory_mb}  # which nothing reads from here on
    return experiment.model_copy(update={"engine": experiment.engine.model_copy(update=found)})


def owner(experiment: Experiment, fleet: FleetFile, prepared: Prepared) -> str:
    """Return a digest of everything that decides a run's result: a checkpoint of another one is refused.

    Who does the work does not decide it.
    """
    values = experiment.model_dump()
    without_folders(values)
    values["engine"] = {k: v for k, v in values["engine"].items() if k not in WHO_WORKS}
    columns = prepared.dataset
    return checkpoint.digest(
        repr(values), fleet.model_dump_json(by_alias=True), columns.user, columns.item, columns.moment
    )


def asked(experiment: Experiment, fleet: FleetFile) -> str:
    """Return a digest of an experiment on a fleet, whoever does the work and whatever the data turn out to be."""
    values = experiment.model_dump(exclude={"engine"})
    without_folders(values)
    return checkpoint.digest(repr(values), fleet.model_dump_json(by_alias=True))


@dataclass
class Keeper:
    """Takes checkpoints of a run at round boundaries, and brings it back to the newest one."""

    run: Run
    belongs_to: str
    every: int | None

    def __call__(self, training: Running) -> None:
        """Take a checkpoint at the end of a round, if it is time for one."""
        if self.every and training.rounds % self.every == 0:
            keep_ledger(self.run, training)  # first, so that the file lacks no release that the checkpoint knows
            state = {"training": training.state(), "events": self.run.log.flush(), "every": self.every}
            checkpoint.write(self.run.closed(CHECKPOINT), training.rounds, state, self.belongs_to)

    def restore(self, training: Training, warn: Warn) -> None:
        """Go on from the newest whole checkpoint, and take further ones as often as before unless told otherwise.

        The log of events is cut back to it.
        """
        found = checkpoint.newest(self.run.path / CHECKPOINT, self.belongs_to, warn)
        self.run.log.cut(0 if found is None else found.state["events"])
        if found is not None:
            training.restore(found.state["training"])
            self.every = found.state["every"] if self.every is None else self.every


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
    given = _key_of(options.pop("noise_key", None))
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
    if options.get("figures", True) and len(runs) <= MOST_RUNS:
        write_runs([run.path for run in runs], parent.path / FILE)
    parent.write_summary(over_seeds([run.summary for run in runs]))
    return runs


def _of_seed(seed: int, progress: Progress | None) -> Progress | None:
    """Return progress that says which seed a stage belongs to."""
    if progress is None:
        return None
    return lambda stage, done, total, note: progress(f"seed {seed}: {stage}", done, total, note)


def fleet_overrides(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment's `fleet.*` values as overrides of devices.yaml.

    `fleet.rounds.*` go to its `rounds` section, `fleet.cost.*` to `cost`.
    """
    own = {name: experiment.fleet[name] for name in ("rounds", "cost") if experiment.fleet.get(name)}
    fleet = {key: value for key, value in experiment.fleet.items() if key not in ("rounds", "cost")}
    return ({"fleet": fleet} if fleet else {}) | own
