"""`edgefr reproduce`: the tables and figures of papers, run again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edgefr.cli.progress import shown
from privacy.errors import unknown

reproduce = typer.Typer(
    name="reproduce",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Run the tables and figures of a paper again and print them beside the published numbers.",
)


@reproduce.callback()
def papers() -> None:
    """Run the tables and figures of a paper again and print them beside the published numbers."""


class Fidelity(StrEnum):
    """Whom to follow where a paper and its released code differ."""

    released = "released"
    paper = "paper"


@reproduce.command()
def f3crec(
    table: Annotated[
        list[int] | None, typer.Option(min=2, max=8, help="Table 2 to 8; give it again for more. Default: 2.")
    ] = None,
    figure: Annotated[list[int] | None, typer.Option(min=3, max=4, help="Figure 3 or 4; give it again.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="ml-100k, ml-latest-small, lastfm-2k or hetrec2011; give it again for more. Default: the data sets of "
            "each of the paper's tables.",
            autocompletion=lambda: ["ml-100k", "ml-latest-small", "lastfm-2k", "hetrec2011"],
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(envvar="EDGEFR_DATA", help="Folder with the public archives.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Seeds 0, 1, ...: every cell is run with each.")] = 5,
    fidelity: Annotated[
        Fidelity, typer.Option(help="Where the paper and its released code differ: which one to follow.")
    ] = Fidelity.released,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Runs at a time, each a process with one thread.")] = 1,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="At most this many rounds per block, to make it smaller; pages say so."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Put a value over every recipe, e.g. aggregation.beta=0.9; pages say so."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of pages, runs and base blocks. The same again goes on.")] = Path(
        "runs/f3crec"
    ),
    devices: Annotated[Path, typer.Option(help="Fleet file: what the rounds would cost devices.")] = Path(
        "devices.yaml"
    ),
) -> None:
    """F3CRec: Federated Continual Recommendation (CIKM 2025), Tables 2 to 8 and Figures 3 and 4.

    Table 2 compares six methods; 3 and 6 take parts of F3CRec away; 4, 5 and 7 look at users and items whose taste
    moved much or little; 8 adds noise to what clients send. Figure 3 is drawn from Table 2's runs, Figure 4 turns one
    knob at a time. Each is printed beside the published numbers and written as Markdown and CSV, figures as PNG and
    SVG too. Runs that tables share are run once. Data sets whose archive is missing are left out.

    A run of a table is a whole training over four blocks, and a table has one per method, backbone, data set and seed:
    Table 2 on one small data set with five seeds is 90 of them. Try `--data ml-100k --seeds 1 --rounds 5` first to see
    what one takes on your machine; --workers runs several at once. Ctrl-C loses only the runs under way: the same
    command again goes on.
    """
    from edgefr.experiment import changed
    from edgefr.fleet import load_fleet
    from edgefr.reproduce.exhibits import reproduce as run
    from edgefr.reproduce.f3crec.exhibits import EXHIBITS, Ask
    from edgefr.reproduce.f3crec.published import DATA
    from edgefr.reproduce.runs import ideal_fleet

    for name in data or []:
        if name not in DATA:
            raise unknown("data set of F3CRec", name, DATA)
    asked = [f"table-{n}" for n in table or []] + [f"figure-{n}" for n in figure or []]
    by_hand = dict(changed(text) for text in set_ or []) | ({} if rounds is None else {"rounds": rounds})
    ask = Ask(fidelity.value, range(seeds), by_hand, data_dir)
    fleet = load_fleet(devices, ideal_fleet())
    chosen = list(dict.fromkeys(data)) if data else None
    console, problems = Console(), Console(stderr=True, soft_wrap=True)

    def warn(line: str) -> None:
        problems.print(f"warning: {line}", style="yellow", markup=False)

    with shown() as progress:
        exhibits = {key: EXHIBITS[key] for key in asked or ["table-2"]}
        result = run(ask, exhibits, chosen, fleet, out, workers, progress, warn)
    for page in result.pages:
        console.print(page.title, style="bold", markup=False)
        for sheet in page.sheets:
            console.print(sheet)
        for note in page.notes:
            console.print(f"- {note}", style="dim", markup=False)
    for key, value in by_hand.items():
        console.print(f"set by hand: {key} = {value}", markup=False)
    for path in result.files:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)
    for line in result.warnings:
        warn(line)
    for name, problem in result.failures.items():
        problems.print(f"failed: {name}: {problem}", style="red", markup=False)
    if result.failures:
        raise typer.Exit(1)
