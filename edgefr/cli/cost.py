"""`edgefr cost` says what a bundle costs on a device class, without a simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def cost(
    bundle: Annotated[Path, typer.Argument(help="A bundle that simulate or export wrote: a folder or a zip.")],
    device_class: Annotated[
        str | None, typer.Option("--class", help="A device class of the fleet file. Default: the bundle's own.")
    ] = None,
    device: Annotated[
        Path | None, typer.Option(help="Instead: a file with the figures of one class of your own (YAML).")
    ] = None,
    devices: Annotated[Path, typer.Option(help="Fleet file with the classes and networks.")] = Path("devices.yaml"),
    interactions: Annotated[int, typer.Option(min=1, help="Interactions of the user who learns.")] = 20,
    key: Annotated[
        list[Path] | None, typer.Option(help="Public key that must have signed the bundle; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain values as JSON.")] = False,
) -> None:
    """Say what a bundle costs on a device: time, energy, memory, bytes, and how well each is known.

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
    console = Console()
    console.print(found.sheet)
    for line in found.assumed:
        console.print(f"- {line}", style="dim", markup=False, highlight=False)
