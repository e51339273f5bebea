"""`edgefr data` says what a data set or a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option

from edgefr.cli.options import DataDir, check_data, data_names, refuse_given
from edgefr.cli.output import say, show_lines
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
    """Describe a data set or your own file: its contents, the protocols that fit, and settings to start from.

    Without a name it lists the known data sets, and which of them are in --data-dir.

    Example: `edgefr data`

    Example: `edgefr data demo`
    """
    check_data(name)
    if name is None:
        refuse_given("is for a data set, and none is named", set=bool(set_), out=out is not None)
        _list(data_dir)
        return
    from edgefr.report.survey import print_survey, settings_of
    from edgefr.simulation.survey import survey
    from privacy.files import write_atomic

    if out is not None and out.exists():
        raise InputError(f"{out} is there already; choose another --out (nothing was changed)")
    options = _options(set_ or [])
    with shown() as progress:
        found = survey(name, options, data_dir, progress)
    print_survey(found, Console())
    if out is not None:
        say(f"wrote {write_atomic(out, settings_of(found))}")


def _list(data_dir: Path | None) -> None:
    """Print the data sets that have a name, whether they are found, and which files of one's own are read."""
    from edgefr.data.datasets import READERS, names
    from edgefr.data.files.formats import ends

    rows = [("data set", "found", "holds", "from", "licence")]
    for name in names():
        known, public = READERS[name], READERS[name].public
        if public is None:
            rows.append((name, "made", known.holds, "this program", "none needed"))
        else:
            there = data_dir is not None and known.is_in(data_dir)
            rows.append((name, "yes" if there else "-", known.holds, public.url, public.licence))
    where = "no folder was given by --data-dir or EDGEFR_DATA" if data_dir is None else f"by name in {data_dir}"
    show_lines(
        rows,
        f"found: {where}. edgefr data NAME says where to get a set, and its licence.",
        "Any other category of Amazon: amazon-CATEGORY, as amazon-digital-music.",
        f"Your own: a file that ends with {', '.join(ends())} (and .gz, .zst, .bz2, .zip), or a folder of such files.",
    )


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
