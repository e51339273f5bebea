"""`edgefr devices` shows the device classes of a fleet, and adds one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from edgefr.cli.commands import Group, with_plugins
from edgefr.cli.options import DEVICES
from edgefr.cli.output import say
from edgefr.cli.output import show as print_table
from privacy.errors import InputError

Given = Annotated[Path, Option(help="Fleet file; where there is no devices.yaml, the one that ships.")]

devices = typer.Typer(name="devices", cls=Group, rich_markup_mode="markdown")


@devices.callback(invoke_without_command=True)
@with_plugins
def show(context: typer.Context, devices: Given = DEVICES) -> None:
    """List the device classes of a fleet file: memory, speed, power, networks, and how well each figure is known.

    Add one of your own: `edgefr devices add my_phone --memory-mb 4096 --gflops 40 --battery-wh 15`

    Example: `edgefr devices`

    Example: `edgefr devices --devices devices.yaml`
    """
    if context.invoked_subcommand is not None:
        return
    from edgefr.fleet import load_fleet
    from edgefr.report.fleet import device_table

    print_table(device_table(load_fleet(devices)))


@devices.command()
def add(
    name: Annotated[str, Argument(help="Name of the class: small letters, digits and _.")],
    memory_mb: Annotated[float | None, Option(help="Memory of the device, MB.")] = None,
    gflops: Annotated[float | None, Option(help="Sustained fp32 rate of matrix products, GFLOP/s.")] = None,
    battery_wh: Annotated[float | None, Option(help="Battery, Wh; 0 for a device on mains power.")] = None,
    app_mb: Annotated[float | None, Option(help="Memory that one app may use, MB. Default: assumed.")] = None,
    active_w: Annotated[float | None, Option(help="Power while it computes, W. Default: assumed.")] = None,
    label: Annotated[str | None, Option(help="What people call it. Default: its name.")] = None,
    like: Annotated[
        str | None, Option(help="Class that all else is taken from. Default: the nearest by memory and rate.")
    ] = None,
    devices: Given = DEVICES,
) -> None:
    """Add a device class to a fleet file, and say what was assumed of it.

    Three figures are needed: memory, fp32 rate and battery. A terminal asks for those that are missing; elsewhere they
    are named at once. All others are taken from the class that is most like it, marked as estimates.

    Example: `edgefr devices add my_phone --memory-mb 4096 --gflops 40 --battery-wh 15`

    Example: `edgefr devices add plug --memory-mb 512 --gflops 2 --battery-wh 0 --like speaker_512`
    """
    from edgefr.fleet.add_class import DeviceFigures
    from edgefr.fleet.add_class import add as write

    needed = {
        "--memory-mb": (memory_mb, "memory of the device, MB"),
        "--gflops": (gflops, "sustained fp32 rate, GFLOP/s (edgefr devices lists others)"),
        "--battery-wh": (battery_wh, "battery, Wh; 0 on mains power"),
    }
    missing = [option for option, (value, _) in needed.items() if value is None]
    if missing and not sys.stdin.isatty():
        raise InputError(
            f"a device class needs {', '.join(missing)} (battery 0: mains power); see edgefr devices add --help"
        )
    memory, rate, battery = (
        float(typer.prompt(question, type=float)) if value is None else value for value, question in needed.values()
    )
    known = DeviceFigures(memory, rate, battery, app_mb=app_mb, active_w=active_w, label=label)
    found = write(devices, name, known, like)
    say(f"added {name} to {devices}, like {found.like}")
    say(f"assumed, as estimates: {'; '.join(found.assumed)}")
    say("no client has it yet: give it a share of the fleet, for example")
    say(f'edgefr simulate --devices {devices} --set "fleet.share={{{name}: 0.5, {found.like}: 0.5}}"')
