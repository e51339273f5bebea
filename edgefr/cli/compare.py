"""`edgefr compare` says whether one run is better than another by more than chance."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


class Form(StrEnum):
    """This says how a comparison is printed."""

    table = "table"
    markdown = "markdown"
    latex = "latex"


class Ranked(StrEnum):
    """This says what a held-out item was ranked against."""

    full = "full"
    sampled = "sampled"


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, or of simulate --seeds; two or more.")],
    metric: Annotated[
        list[str] | None, typer.Option(help="A metric such as NDCG@10; again for another. Default: all they have.")
    ] = None,
    ranking: Annotated[
        Ranked | None, typer.Option(help="What a held-out item was ranked against. Default: full where all have it.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How it is printed.")] = Form.table,
    out: Annotated[
        Path | None, typer.Option(help="A folder for tables (Markdown, LaTeX, CSV) and a figure (PNG, SVG).")
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
    console = Console()
    for sheet in found.page.sheets:
        console.print(sheet)
    for note in found.page.notes:
        console.print(f"- {note}", style="dim", markup=False, highlight=False)
    if out is not None:
        console.print(f"wrote {out / found.page.name}.md, .csv, .tex, .png, .svg", markup=False, soft_wrap=True)
