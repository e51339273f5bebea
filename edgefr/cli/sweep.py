"""`edgefr sweep` runs an experiment many times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from edgefr.cli.simulate import DEVICES, RayAddress, check_data, data_names

if TYPE_CHECKING:
    from edgefr.report.pages import Report


def sweep(
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=[A,B,...]",
            help="Values of a field of the experiment, e.g. 'privacy.epsilon=[1,8,inf]'; again for another field.",
        ),
    ] = None,
    experiment: Annotated[Path | None, typer.Option(help="Experiment file (YAML). Default: the demo.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Every point is run with this many seeds.")] = 1,
    devices: Annotated[Path, typer.Option(help="Fleet file: device classes, their shares, round policy.")] = DEVICES,
    data: Annotated[
        str | None,
        typer.Option(help="Data set: demo, ml-100k, ... Default: the experiment's.", autocompletion=data_names),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(envvar="EDGEFR_DATA", help="Folder with the public archives.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed. Default: the experiment's.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one field for every run.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="auto, cpu or cuda. Default: auto.", autocompletion=lambda: ["auto", "cpu", "cuda"]),
    ] = None,
    search: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Trials of a search (Optuna) at every point of the grid.")
    ] = None,
    search_space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=RANGE",
            help="What the search chooses: 'privacy.clip=log(0.1,10)', 'rounds=int(10,200)', 'model.lr=uniform(0,1)'.",
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="Validation metric that the search maximises. Default: the first NDCG.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Test metric that is drawn as utility. Default: the first NDCG.")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, metavar="ROUNDS", help="A run that was stopped goes on from there by --resume.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Runs at a time, each a process with one thread.")] = 1,
    ray_address: RayAddress = None,
    noise_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Repeat a sweep's noise: its private/noise.key. Default: a new one."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Sweep folder; must be new. Default: runs/<name>-sweep.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with this sweep; give the same command beside it.")
    ] = None,
) -> None:
    """Run an experiment over a grid of its fields, with several seeds, and compare.

    Every point of the grid is checked before anything runs. Runs are folders below the sweep's; a run that fails is
    listed and does not stop the others. `sweep.md` has the means over seeds; where the grid is about privacy,
    `tradeoff.md` and `figures/tradeoff.png` show utility against each kind of epsilon, beside references that need no
    learning. `inf` for privacy.epsilon clips and adds no noise.

    With --search, Optuna tunes the fields of --search-space at every point on validation items; the best trial stands
    for its point.

    Ctrl-C loses only the runs under way, or what they did since their last checkpoint: the same command with --resume
    DIR goes on.

    Example: `edgefr sweep --grid 'privacy.epsilon=[1,8,inf]' --set privacy.mechanism=gaussian --set privacy.clip=1`

    Example: `edgefr sweep --grid 'rounds=[5,10]' --set method=fedmf --seeds 3 --workers 2`
    """
    check_data(data)
    from edgefr.cli.progress_table import progress_table
    from edgefr.studies.sweeps.run import Standing
    from edgefr.studies.sweeps.sweep import sweep as run

    console, problems, folder = Console(), Console(stderr=True, soft_wrap=True), resume or out
    values: dict[str, Any] = {"data": data, "seed": seed, "engine.device": device}
    try:
        with progress_table() as watch:

            def told(standing: Standing) -> None:
                nonlocal folder
                folder = standing.folder
                watch(standing)

            found = run(
                experiment,
                grid or [],
                seeds=seeds,
                devices=devices,
                overrides=set_ or [],
                search=search,
                space=search_space or [],
                objective=objective,
                metric=metric,
                data_dir=data_dir,
                checkpoint_every=checkpoint_every,
                workers=workers,
                ray_address=ray_address,
                noise_key=noise_key,
                out=out,
                resume=resume,
                watch=told,
                **values,
            )
    except KeyboardInterrupt:
        problems.print(f"go on with the same command and --resume {folder}", markup=False, highlight=False)
        raise
    _show(found, console, problems)
    if found.failures:
        raise typer.Exit(1)


def _show(found: Report, console: Console, problems: Console) -> None:
    """Print a sweep's tables and what was written; what failed goes to `problems`."""
    for page in found.pages:
        for sheet in page.sheets:
            console.print(sheet)
        for note in page.notes:
            console.print(f"- {note}", style="dim", markup=False, highlight=False)
    for path in found.files:
        console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    for name, problem in found.failures.items():
        problems.print(f"failed: {name}: {problem}", style="red", markup=False, highlight=False)
