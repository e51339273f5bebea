"""`edgefr reproduce` runs the tables and figures of papers again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from edgefr.cli.commands import Group
from edgefr.cli.options import DEVICES, DataDir, RayAddress, Workers, split
from edgefr.cli.output import end, show_line, show_page, warn
from edgefr.config.progress import shown

reproduce = typer.Typer(
    name="reproduce",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Run the tables and figures of a paper again and print them beside the published numbers.",
)


class Fidelity(StrEnum):
    """This says whom to follow where a paper and its released code differ."""

    released = "released"
    paper = "paper"


class Stream(StrEnum):
    """This says how often a client meets a session."""

    one_pass = "one-pass"
    cyclic = "cyclic"


def _table(first: int, last: int, default: str) -> Any:
    said = f"Table {first} to {last}; give it again for more. Default: {default}."
    return Option(min=first, max=last, help=said)


def _figure(first: int, last: int, between: str) -> Any:
    return Option(min=first, max=last, help=f"Figure {first} {between} {last}; give it again.")


def _rounds(said: str) -> Any:
    return Option(min=1, max=10_000, help=said)


Numbers = list[int] | None
Names = list[str] | None
Seeds = Annotated[int, Option(min=1, max=1000, help="Seeds 0, 1, ...: every cell is run with each.")]
FidelityOption = Annotated[Fidelity, Option(help="Where the paper and its released code differ: which one to follow.")]
Override = Annotated[
    Names,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Put a value over every recipe that reads it, e.g. aggregation.beta=0.9; pages say so.",
    ),
]
Rows = Annotated[
    Names, Option(metavar="NAME,...", help="Run and print these rows of the tables alone; give it again for more.")
]
Out = Annotated[Path, Option(help="Folder of pages and runs. The same command resumes it.")]
Devices = Annotated[Path, Option(help="Fleet file: what the rounds would cost devices.")]


@reproduce.command()
def f3crec(
    table: Annotated[Numbers, _table(1, 8, "2")] = None,
    figure: Annotated[Numbers, _figure(3, 4, "or")] = None,
    data: Annotated[
        Names,
        Option(
            help="ml-100k, ml-latest-small, lastfm-2k or hetrec2011; give it again for more. Default: the data sets of "
            "each of the paper's tables.",
            autocompletion=lambda: ["ml-100k", "ml-latest-small", "lastfm-2k", "hetrec2011"],
        ),
    ] = None,
    data_dir: DataDir = None,
    seeds: Seeds = 5,
    fidelity: FidelityOption = Fidelity.released,
    workers: Workers = 1,
    ray_address: RayAddress = None,
    rounds: Annotated[
        int | None, _rounds("At most this many rounds per block, to make it smaller; pages say so.")
    ] = None,
    rows: Rows = None,
    backbones: Annotated[
        Names, Option(metavar="NAME,...", help="fedmf, fedncf or pfedrec: the parts of Table 2 with these alone.")
    ] = None,
    set_: Override = None,
    out: Annotated[Path, Option(help="Folder of pages, runs and base blocks. The same command resumes it.")] = Path(
        "runs/f3crec"
    ),
    devices: Devices = DEVICES,
) -> None:
    """Run F3CRec again: Federated Continual Recommendation (CIKM 2025), Tables 2 to 8 and Figures 3 and 4.

    Table 1 counts the data sets anew and runs nothing.

    Table 2 compares six methods; 3 and 6 take parts of F3CRec away; 4, 5 and 7 look at users and items whose taste
    moved much or little; 8 adds noise to what clients send. Figure 3 is drawn from Table 2's runs, Figure 4 turns one
    knob at a time. Each is printed beside the published numbers and written as Markdown and CSV, figures as PNG and
    SVG too. Runs that tables share are run once. Data sets whose archive is missing are left out.

    A run of a table is a whole training over four blocks, and a table has one per method, backbone, data set and seed:
    Table 2 on one small data set with five seeds is 90 of them. Try `--data ml-100k --seeds 1 --rounds 5` first to see
    what one takes on your machine; --workers runs several at once. Ctrl-C loses only the runs under way: the same
    command again goes on.

    Example: `edgefr reproduce f3crec --data ml-100k --seeds 1 --rounds 5`

    Example: `edgefr reproduce f3crec --table 2 --table 3 --workers 2`
    """
    _run("f3crec", **locals())


@reproduce.command()
def fcucr(
    table: Annotated[Numbers, _table(1, 5, "2")] = None,
    figure: Annotated[Numbers, _figure(2, 10, "to")] = None,
    data: Annotated[
        Names,
        Option(
            help="xing, retailrocket, lastfm-1k, tmall, or any other with times, which the paper prints nothing of; "
            "give it again for more. Default: the data sets of each of the paper's tables.",
            autocompletion=lambda: ["xing", "retailrocket", "lastfm-1k", "tmall"],
        ),
    ] = None,
    data_dir: DataDir = None,
    seeds: Seeds = 5,
    fidelity: FidelityOption = Fidelity.released,
    stream: Annotated[
        Stream | None,
        Option(
            help="one-pass: a client meets each session once; cyclic: over and over. Default: cyclic as released, "
            "one-pass in the paper."
        ),
    ] = None,
    workers: Workers = 1,
    ray_address: RayAddress = None,
    rounds: Annotated[int | None, _rounds("So many rounds instead of 40; pages say so.")] = None,
    rows: Rows = None,
    set_: Override = None,
    out: Out = Path("runs/fcucr"),
    devices: Devices = DEVICES,
) -> None:
    """Run FCUCR again: Learning Evolving Preferences (WWW 2026), Tables 2 to 5, Figures 2 to 10.

    Table 1 counts the data sets anew and runs nothing.

    Table 2 compares three sequential backbones alone and with FCUCR, and federated baselines; 3 takes parts of FCUCR
    away; 4 keeps prototypes of fewer rounds; 5 transfers them less often. Figure 2 asks for first sessions again and
    looks at probabilities; 3 to 6 turn k and lambda, on one data set each; 7 to 10 add noise. References that learn
    nothing stand below every table, repeats and new items apart. Each is printed beside the published numbers and
    written as Markdown and CSV, figures as PNG and SVG too. Runs that tables share are run once. Data sets whose
    archive is missing are left out.

    Table 2 on one data set with five seeds is 50 runs of one to two minutes on one core. Try `--data xing --seeds 1
    --rounds 5` first; --workers runs several at once. Ctrl-C loses only the runs under way: the same command again
    goes on. `--stream one-pass` and `--fidelity paper` make the same tables of an honest
    stream and of the paper's text.

    Example: `edgefr reproduce fcucr --data xing --seeds 1 --rounds 5`

    Example: `edgefr reproduce fcucr --table 2 --stream one-pass`
    """
    _run("fcucr", **locals())


@reproduce.command()
def fedcar(
    table: Annotated[
        Numbers, Option(min=1, max=3, help="Table 1: the data sets; 2 or 3. Again for more. Default: 1.")
    ] = None,
    figure: Annotated[Numbers, Option(help="Figure 5.")] = None,
    data: Annotated[
        Names,
        Option(
            help="ml-100k, ml-1m, amazon-video, lastfm-2k or hetrec2011 for Table 1; ml-100k or ml-latest-small for "
            "others. Give it again for more."
        ),
    ] = None,
    data_dir: DataDir = None,
    seeds: Seeds = 5,
    rows: Rows = None,
    workers: Workers = 1,
    ray_address: RayAddress = None,
    rounds: Annotated[int | None, _rounds("So many rounds of federated rows instead of 100.")] = None,
    set_: Override = None,
    out: Out = Path("runs/fedcar"),
    devices: Devices = DEVICES,
) -> None:
    """Run FedCAR again with the whole leave-one-out family at one search budget: Tables 1 to 3, Figure 5.

    Table 1 counts the data sets beside the printed numbers, errors marked; nothing is trained for it. Table 2 compares
    federated methods, central references and what learns nothing, in full ranking first and among 1 + 99 candidates,
    each with FedCAR over users and over seeds; 3 takes FedCAR's parts away; Figure 5 adds Laplace noise
    to what clients send. A row of these is a recipe, `experiments/fedcar/recipes/DATA/ROW.yaml`, that `edgefr tune`
    made with other seeds than the reported ones. A row without a recipe is refused: name others by `--rows`. Data sets
    whose archive is missing are left out. Ctrl-C loses only the runs under way: the same command again goes on.

    Example: `edgefr reproduce fedcar`

    Example: `edgefr reproduce fedcar --table 2 --data ml-100k --seeds 1`
    """
    _run("fedcar", ("table-1",), **locals())


@reproduce.command()
def transfr(
    table: Annotated[Numbers, _table(2, 6, "2 and 3")] = None,
    figure: Annotated[Numbers, _figure(3, 6, "to")] = None,
    data: Annotated[
        Names,
        Option(
            help="amazon-books, amazon-cds-and-vinyl, ... for Tables 2 and 3; amazon-arts-office, amazon-movie-book or "
            "demo for others. Give it again for more."
        ),
    ] = None,
    data_dir: DataDir = None,
    seeds: Seeds = 5,
    rows: Rows = None,
    workers: Workers = 1,
    ray_address: RayAddress = None,
    rounds: Annotated[
        int | None, _rounds("So many rounds of federated rows, to make it smaller; pages say so.")
    ] = None,
    set_: Override = None,
    out: Out = Path("runs/transfr"),
    devices: Devices = DEVICES,
) -> None:
    """Run TransFR again: Transferable Federated Recommendation, Tables 2 to 6, Figures 3 to 6.

    Tables 2 and 3 count its data sets, three categories of Amazon, and tasks across two of them, anew: nothing is
    trained. The two sets of two domains that are smaller stand below, counted alike.

    Table 4 compares cold start in another domain with central and federated rivals; 5 and 6 show source, target and
    what is lost between. Figures 3 and 4 show the stages of TransFR, 5 the layers of its local head, 6 epochs of local
    training. They are made on two domains of one data set, in both directions, since the paper's data are not at hand:
    its numbers stand below, in a table of their own. Recipes of rows are in experiments/transfr. Data sets whose
    archive is missing are left out, with a line that says where to get them.

    Example: `edgefr reproduce transfr`

    Example: `edgefr reproduce transfr --table 4 --data demo --rows pmf,transfr-ours --seeds 1 --rounds 2`
    """
    _run("transfr", ("table-2", "table-3"), **locals())


@reproduce.command()
def leaderboard(
    data: Annotated[
        Names, Option(help="ml-100k, ml-latest-small, or any whose recipes were searched. Give it again for more.")
    ] = None,
    data_dir: DataDir = None,
    seeds: Seeds = 5,
    rows: Rows = None,
    workers: Workers = 1,
    ray_address: RayAddress = None,
    rounds: Annotated[int | None, _rounds("So many rounds of federated rows instead of 100.")] = None,
    set_: Override = None,
    out: Out = Path("runs/fedcar"),
    devices: Devices = DEVICES,
) -> None:
    """Rank every federated method of leave-one-out, and central references, at one search budget.

    One table: NDCG@10 and HR@10 by full ranking, each row compared with FedMF over users and over seeds, what a round
    costs a typical device in megabytes, joules and seconds, and NDCG@10 with noise for epsilon 8. Rows are the recipes
    of FedCAR's Table 2, and share its runs. A method joins it by a search of its own with `edgefr tune`. Ctrl-C loses
    only the runs under way: the same command again goes on.

    Example: `edgefr reproduce leaderboard --data ml-100k --seeds 1`

    Example: `edgefr reproduce leaderboard --data ml-100k --rows fedmf,fcf,pfedrec --workers 2`
    """
    _run("leaderboard", ("leaderboard",), table=None, figure=None, **locals())


def _listed(names: Names) -> list[str]:
    """Return names that were given one by one or with commas between them."""
    return list(dict.fromkeys(name for text in names or [] for name in split(text)))


def _run(
    paper: str,
    first: tuple[str, ...] = ("table-2",),
    *,
    table: Numbers,
    figure: Numbers,
    rounds: int | None,
    rows: Names,
    set_: Names,
    backbones: Names = None,
    **asked: Any,
) -> None:
    """Make the runs and the pages, `first` where none are asked for, and print them; ends with 1 where a run failed.

    `asked`: what `edgefr.reproduce` is asked for under the names of the options.
    """
    from edgefr.studies.reproductions.reproduce import reproduce as run

    named = [f"table-{n}" for n in table or ()] + [f"figure-{n}" for n in figure or ()]
    exhibits = named or list(first)
    by_hand = [*(set_ or []), *([] if rounds is None else [f"rounds={rounds}"])]
    asked = {name: value.value if isinstance(value, StrEnum) else value for name, value in asked.items()}
    asked |= {"rows": _listed(rows), "backbones": _listed(backbones), "overrides": by_hand}
    with shown() as progress:
        found = run(paper, exhibits, **asked, progress=progress, warn=warn)
    for page in found.pages:
        show_line(page.title, style="bold")
        show_page(page)
    for line in by_hand:
        key, _, value = line.partition("=")
        show_line(f"set by hand: {key} = {value}")
    end(found)
