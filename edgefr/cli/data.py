"""`edgefr data` says what a data set or a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from edgefr.cli.options import DataDir, check_data, data_names
from edgefr.cli.output import say
from edgefr.config.progress import shown
from privacy.errors import InputError


def data(
    name: Annotated[
        str | None,
        Argument(metavar="[NAME|FILE]", help="Data set, file or folder. None: list.", autocompletion=data_names),
    ] = None,
    data_dir: DataDir = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="How it is read, e.g. data_options.columns.user=uid."),
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="New experiment file for the settings to start from.")
    ] = None,
) -> None:
    """Say what a data set or your own file holds, over which protocols it can be run, and settings to start from.

    Example: `edgefr data`

    Example: `edgefr data demo`
    """
    check_data(name)
    from edgefr.report.survey import print_names, print_survey, settings_of
    from edgefr.simulation.survey import survey
    from privacy.files import write_atomic

    console = Console()
    if name is None:
        if out is not None:
            raise InputError("--out is for the settings of a data set, and none is named")
        print_names(console)
        return
    if out is not None and out.exists():
        raise InputError(f"{out} is there already; choose another --out (nothing was changed)")
    options = _options(set_ or [])
    with shown() as progress:
        found = survey(name, options, data_dir, progress)
    print_survey(found, console)
    if out is not None:
        say(f"wrote {write_atomic(out, settings_of(found))}")


def _options(changes: list[str]) -> dict[str, Any]:
    """Return the `data_options` of `--set`. Raises `InputError` for other settings, which nothing here reads."""
    from edgefr.config.documents import Document
    from edgefr.experiment.experiment import Change

    document = Document({}, "--set")
    for text in changes:
        change = Change.parse(text)
        if change.field.split(".")[0] != "data_options":
            raise InputError(f"--set {text}: only data_options are read here, as data_options.positive=4")
        document.put(change.field, change.value, change.source)
    return dict(document.values.get("data_options") or {})
