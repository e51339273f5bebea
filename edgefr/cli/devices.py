"""`edgefr devices` shows the device classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def devices(
    devices: Annotated[Path, typer.Option(help="Fleet file to list.")] = Path("devices.yaml"),
) -> None:
    """List the device classes of a fleet file: memory, speed, power, networks, and how well each figure is known."""
    from edgefr.fleet import load_fleet
    from edgefr.report.tables import device_table

    Console().print(device_table(load_fleet(devices)))
