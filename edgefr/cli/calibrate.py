"""`edgefr calibrate` measures bundles on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def calibrate(
    where: Annotated[Path, typer.Argument(metavar="RUN|BUNDLES", help="A run, or a folder of bundles.")],
    devices: Annotated[
        Path | None, typer.Option(help="Fleet file. Default: the run's own, or devices.yaml for a folder of bundles.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the figures. Default: calibration.json in RUN|BUNDLES.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds after which an activity is too slow.")] = 120.0,
) -> None:
    """Measure on this machine what bundles cost, each in a fresh process under its device class's memory limit.

    Loading, a training step of each phase, a recommendation, an encoded text, peak memory. What was measured here
    before is kept. `edgefr simulate --set fleet.cost.mode=host-ratio --set fleet.cost.calibration=FILE` uses it.

    Example: `edgefr calibrate runs/demo`

    Example: `edgefr calibrate shipped --devices devices.yaml --out calibration.json`
    """
    from edgefr.report.tables import print_path
    from edgefr.simulation.calibrate import calibrate as measure

    with shown() as progress:
        found = measure(where, devices, out=out, timeout_s=timeout_s, progress=progress)
    console = Console()
    for sheet in found.sheets:
        console.print(sheet)
    print_path("calibration", found.path, console)
