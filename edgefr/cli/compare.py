"""`edgefr compare` says whether one run is better than another, `edgefr report` writes the page of runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from edgefr.cli.options import Ranked
from edgefr.cli.output import say, show_page


class Form(StrEnum):
    """This says how a comparison is printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"


def compare(
    runs: Annotated[list[Path], Argument(help="Folders of finished runs, or of simulate --seeds; two or more.")],
    metric: Annotated[
        list[str] | None, Option(help="A metric such as NDCG@10; again for another. Default: all they have.")
    ] = None,
    ranking: Annotated[
        Ranked | None, Option(help="What a held-out item was ranked against. Default: full where all have it.")
    ] = None,
    form: Annotated[Form, Option("--format", help="How it is printed.")] = Form.table,
    out: Annotated[
        Path | None, Option(help="A folder for tables (Markdown, LaTeX, CSV) and a figure (PNG, SVG).")
    ] = None,
) -> None:
    """Compare runs of the same data, protocol and users: paired tests over users and over seeds, and effect sizes.

    Over users: the bootstrap's interval of the difference and Wilcoxon's signed-rank test. Over seeds, where runs have
    some in common: the paired t-test. p-values are Holm's, over all pairs and metrics. Runs that asked different users,
    or asked them something else, are refused.

    Example: `edgefr compare runs/fedmf runs/pfedrec --out comparison`

    Example: `edgefr compare runs/fedmf runs/pfedrec --format latex --metric NDCG@10`
    """
    from edgefr.studies.comparisons.compare import compare as ask

    found = ask(runs, metric or [], ranking=None if ranking is None else ranking.value, out=out)
    if form != Form.table:
        typer.echo(found.latex if form == Form.latex else found.markdown)
        return
    show_page(found.page)
    if out is not None:
        say(f"wrote {out / found.page.name}.md, .csv, .tex, .png, .svg")


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders, or the folder of one sweep.")],
    out: Annotated[
        Path | None, Option(help="The file. Default: report.html in the folder; of several runs, here.")
    ] = None,
) -> None:
    """Write the report of a run, of several runs or of a sweep as one HTML file that needs no network.

    Several runs, or the seeds of one folder, share a page; the page of a sweep shows utility at each epsilon. Runs and
    sweeps write report.html when they end; after `edgefr audit`, this command adds the results of the attacks.

    Example: `edgefr report runs/demo`

    Example: `edgefr report runs/demo runs/fedmf --out both.html`
    """
    from edgefr.studies.pages import write_report

    say(f"wrote {write_report(runs, out)}")
