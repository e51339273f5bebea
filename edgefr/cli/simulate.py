"""`edgefr simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def data_names() -> list[str]:
    """Data sets for shell completion."""
    from edgefr.data import names

    return names()


def simulate(
    devices: Annotated[Path, typer.Option(help="Fleet file: device classes, their shares, round policy.")] = Path(
        "devices.yaml"
    ),
    experiment: Annotated[Path | None, typer.Option(help="Experiment file (YAML). Default: the demo.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data set: demo, ml-100k, ml-latest-small, amazon, ...", autocompletion=data_names),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(envvar="EDGEFR_DATA", help="Folder with the public archives.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Every random number of the run follows from it.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeat with this many seeds and print mean and sd.")] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one field, e.g. privacy.clip=1.0."),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            help="inline (vectorised) or debug (one client at a time).", autocompletion=lambda: ["inline", "debug"]
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu or cuda.", autocompletion=lambda: ["auto", "cpu", "cuda"])
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; must be new. Default: runs/<name>, numbered.")] = None,
    bundles: Annotated[bool, typer.Option(help="Also write a bundle for every device class.")] = True,
) -> None:
    """Run an experiment on a simulated fleet of devices.

    Distils the text encoder, learns in federated rounds on a virtual clock, measures against references that need no
    learning, says what it cost the devices and what the privacy is worth, and writes a bundle per device class.
    """
    from edgefr.experiment import load_experiment
    from edgefr.pipeline import simulate as run_one
    from edgefr.pipeline import simulate_seeds
    from edgefr.report.tables import print_run, print_seeds

    values = {"data": data, "seed": seed, "engine.executor": executor, "engine.device": device}
    chosen = load_experiment(experiment, set_ or [], **values)
    place = out if out is not None else free_folder(Path("runs") / chosen.name)
    with shown() as progress:
        if seeds == 1:
            run = run_one(chosen, devices, data_dir=data_dir, out=place, bundles=bundles, progress=progress)
        else:
            runs = simulate_seeds(
                chosen, seeds, place, devices=devices, data_dir=data_dir, bundles=bundles, progress=progress
            )
    console = Console()
    if seeds == 1:
        print_run(run, console)
    else:
        print_seeds(runs, place, console)


def free_folder(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... that does not exist yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
