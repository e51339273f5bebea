"""`edgefr cost` says what a bundle costs on a device class, `edgefr calibrate` measures it on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from edgefr.cli.options import DEVICES, Bundle, SignedBy
from edgefr.cli.output import say, show, show_notes
from edgefr.config.progress import shown


def cost(
    bundle: Bundle,
    device_class: Annotated[
        str | None, Option("--class", help="A device class of the fleet file. Default: the bundle's own.")
    ] = None,
    device: Annotated[
        Path | None, Option(help="Instead: a file with the figures of one class of your own (YAML).")
    ] = None,
    devices: Annotated[Path, Option(help="Fleet file with the classes and networks.")] = DEVICES,
    interactions: Annotated[int, Option(min=1, help="Interactions of the user who learns.")] = 20,
    key: SignedBy = None,
    as_json: Annotated[bool, Option("--json", help="Print plain values as JSON.")] = False,
) -> None:
    """Estimate the time, energy, memory and bytes of a bundle on a device class, each with its evidence.

    A recommendation, the reading of a new text and a round of learning are priced by the cost model of the simulator;
    nothing is run. p10, p50 and p90 are over devices of the class.

    Example: `edgefr cost runs/demo/bundles/phone_sd680 --class watch_w5`

    Example: `edgefr cost runs/demo/bundles/phone_sd680 --interactions 50 --json`
    """
    from edgefr.fleet.prices import cost_of

    found = cost_of(bundle, device_class, devices=devices, device=device, interactions=interactions, keys=key)
    if as_json:
        typer.echo(json.dumps(found.record(), indent=2))
        return
    show(found.sheet)
    show_notes(found.assumed)


def calibrate(
    where: Annotated[Path, Argument(metavar="RUN|BUNDLES", help="A run, or a folder of bundles.")],
    devices: Annotated[
        Path | None, Option(help="Fleet file. Default: the run's own, or devices.yaml for a folder of bundles.")
    ] = None,
    out: Annotated[Path | None, Option(help="File for the figures. Default: calibration.json in RUN|BUNDLES.")] = None,
    timeout_s: Annotated[float, Option(min=1, help="Seconds after which an activity is too slow.")] = 120.0,
) -> None:
    """Measure on this machine what bundles cost, each in a fresh process under its device class's memory limit.

    Loading, a training step of each phase, a recommendation, an encoded text, peak memory. What was measured here
    before is kept. `edgefr simulate --set fleet.cost.mode=host-ratio --set fleet.cost.calibration=FILE` uses it.

    Example: `edgefr calibrate runs/demo`

    Example: `edgefr calibrate shipped --devices devices.yaml --out calibration.json`
    """
    from edgefr.simulation.calibrate import calibrate as measure

    with shown() as progress:
        found = measure(where, devices, out=out, timeout_s=timeout_s, progress=progress)
    show(*found.sheets)
    say(f"calibration: {found.path}")
