"""`edgefr simulate` runs an experiment."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from edgefr.cli.options import (
    DEVICES,
    ChosenChip,
    ClientsPerRound,
    Clip,
    DataDir,
    Epsilon,
    ExperimentFile,
    FleetFile,
    MethodName,
    Rounds,
    check_data,
    data_names,
    refuse_given,
    refuse_twice,
)
from edgefr.cli.output import warn
from edgefr.cli.run_output import Ending

if TYPE_CHECKING:
    from edgefr.experiment.experiment import Experiment
    from privacy.progress import Progress


def simulate(
    devices: FleetFile = DEVICES,
    experiment: ExperimentFile = None,
    data: Annotated[
        str | None,
        Option(
            help="Data set (demo, ml-100k, ...), or a file or folder of your own. Default: the experiment's.",
            autocompletion=data_names,
        ),
    ] = None,
    data_dir: DataDir = None,
    method: MethodName = None,
    rounds: Rounds = None,
    clients_per_round: ClientsPerRound = None,
    epsilon: Epsilon = None,
    clip: Clip = None,
    seed: Annotated[
        int | None, Option(help="All random numbers of the run derive from it. Default: the experiment's.")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="Repeat with this many seeds and print mean and sd.")] = 1,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change any field, e.g. local_epochs=2.")
    ] = None,
    executor: Annotated[
        str | None,
        Option(
            help="inline (vectorised; default), processes (the same in workers), ray (on a Ray cluster) or debug (one "
            "client at a time).",
            autocompletion=lambda: ["inline", "processes", "ray", "debug"],
        ),
    ] = None,
    workers: Annotated[int | None, Option(min=1, help="Workers of --executor processes or ray.")] = None,
    ray_address: Annotated[
        str | None, Option(help="Cluster of --executor ray: HOST:PORT, auto or local. Default: local.")
    ] = None,
    device: ChosenChip = None,
    checkpoint_every: Annotated[
        int | None, Option(min=1, metavar="ROUNDS", help="Save the run's state every so many rounds.")
    ] = None,
    out: Annotated[Path | None, Option(help="Run folder; must be new. Default: runs/<name>, numbered.")] = None,
    resume: Annotated[
        Path | None,
        Option(metavar="RUN", help="Continue this unfinished run from its newest checkpoint; give --no-bundles again."),
    ] = None,
    bundles: Annotated[
        bool | None,
        Option(
            help="Write a bundle for every device class, or refuse the run; write none. Default: where it can be done."
        ),
    ] = None,
    noise_key: Annotated[
        Path | None,
        Option(metavar="FILE", help="Repeat a run's noise: its private/noise.key. Default: a new secret key."),
    ] = None,
    track: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Report every round to a tracker: tensorboard, mlflow; again for another."),
    ] = None,
    full: Annotated[bool, Option("--full", help="End with all tables.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print summary.json on stdout and nothing else.")] = False,
    quiet: Annotated[bool, Option("--quiet", help="Print the run's folder alone, and no progress.")] = False,
) -> None:
    """Run an experiment on a simulated fleet of devices.

    Distils the text encoder, trains in federated rounds on a virtual clock, compares the model with baselines, reports
    device costs and the privacy guarantee, and writes a bundle per device class.

    `edgefr simulate --resume RUN` continues a stopped or killed run, to the same result.

    Example: `edgefr simulate --devices devices.yaml`

    Example: `edgefr simulate --method fedmf --rounds 20 --epsilon 8`
    """
    ending = Ending.chosen(full=full, json=as_json, quiet=quiet)
    common = {"data_dir": data_dir, "bundles": bundles, "checkpoint_every": checkpoint_every, "track": track or []}
    fields: dict[str, Any] = {"data": data, "seed": seed, "method": method, "rounds": rounds}
    fields |= {"clients_per_round": clients_per_round, "epsilon": epsilon, "clip": clip}
    workers_of = {"executor": executor, "workers": workers, "ray_address": ray_address}
    if resume is not None:
        refuse_given(
            "cannot change a run that is resumed; start another one with --out",
            devices=devices != DEVICES,
            experiment=experiment is not None,
            **{name: value is not None for name, value in fields.items()},
            seeds=seeds != 1,
            set=bool(set_),
            device=device is not None,
            out=out is not None,
            noise_key=noise_key is not None,
        )
        _resume(resume, {**common, **workers_of}, ending)
        return
    check_data(data)
    refuse_twice(set_ or [], **fields)
    from edgefr.experiment.experiment import load_experiment
    from edgefr.simulation.runs.folder import free_folder

    engine = {f"engine.{name}": value for name, value in (workers_of | {"device": device}).items()}
    chosen = load_experiment(experiment, set_ or [], **fields, **engine)
    check_data(chosen.data)
    place = out if out is not None else free_folder(Path("runs") / chosen.name)
    lines = [] if epsilon is None else [noise_line(chosen)]
    _simulate(chosen, devices, place, seeds, ending, {**common, "noise_key": noise_key}, lines)


def _simulate(
    chosen: Experiment,
    devices: Path,
    place: Path,
    seeds: int,
    ending: Ending,
    options: dict[str, Any],
    lines: list[str],
) -> None:
    """Run the experiment with one seed or several, and print what came out; `lines` are said before."""
    from edgefr.simulation.seeds import simulate_seeds
    from edgefr.simulation.simulate import simulate

    bundles = options["bundles"]
    with _going_on(place, bundles), ending.progress() as progress:
        if bundles is not False and chosen.row.central is None:
            lines = [*lines, *_ships(chosen, seeds)]
        if progress is not None:
            progress = _after_saying(lines, progress)
        if seeds == 1:
            runs = [simulate(chosen, devices, out=place, progress=progress, **options)]
        else:
            runs = simulate_seeds(chosen, seeds, place, devices=devices, progress=progress, **options)
    ending.show(runs, place)


@contextmanager
def _going_on(place: Path, bundles: bool | None) -> Iterator[None]:
    """Say how a run goes on that is interrupted in the block: its folder may have been numbered by us."""
    try:
        yield
    except KeyboardInterrupt:
        if (place / "experiment.yaml").is_file():
            kept = any(place.glob("checkpoint/round-*")) or any(place.glob("seed-*/checkpoint/round-*"))
            where = "" if kept else " (from its beginning: without --checkpoint-every nothing of its rounds is kept)"
            again = f"edgefr simulate --resume {shlex.quote(str(place))}{' --no-bundles' if bundles is False else ''}"
            typer.echo(f"go on with {again}{where}", err=True)
        raise


def noise_line(chosen: Experiment) -> str:
    """Say by what noise an experiment keeps its epsilon."""
    asked = chosen.privacy.model_dump()
    noise = "no noise" if asked["epsilon"] == math.inf else f"{asked['mechanism']} noise"
    rate = f"aggregation.server_lr={chosen.aggregation.server_lr}"
    return (
        f"epsilon {asked['epsilon']:g} for each client: {noise}, {asked['trust']} trust, clip {asked['clip']:g}, {rate}"
    )


def _ships(chosen: Experiment, seeds: int) -> Iterator[str]:
    """Yield what is to be said of bundles before a run, if anything."""
    from edgefr.simulation.bundle_checks import told

    line = told(chosen)
    if line is None and seeds > 1:
        line = f"each of {seeds} seeds ends with a bundle per device class, written and measured"
    if line is not None:
        yield f"{line}; --no-bundles leaves them out"


def _after_saying(lines: list[str], progress: Progress) -> Progress:
    """Return a progress that says lines once work begins: what is refused before says its own line alone."""
    left = list(lines)

    def report(stage: str, done: int, total: int, note: str) -> None:
        while left:
            typer.echo(left.pop(0), err=True)
        progress(stage, done, total, note)

    return report


def _resume(path: Path, options: dict[str, Any], ending: Ending) -> None:
    """Go on with one run, or with the runs of several seeds, and print the result."""
    from edgefr.simulation.runs.layout import SEEDS
    from edgefr.simulation.seeds import resume_seeds
    from edgefr.simulation.simulate import resume

    with _going_on(path, options["bundles"]), ending.progress() as progress:
        if (path / SEEDS).is_file():
            runs = resume_seeds(path, progress=progress, warn=warn, **options)
        else:
            runs = [resume(path, progress=progress, warn=warn, **options)]
    ending.show(runs, path)
