"""The tables of a finished run, or of several seeds, are printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from edgefr.report.blocks import block_table
from edgefr.report.sessions import group_table
from edgefr.report.tables import (
    _central_line,
    _print_federated,
    _verdict,
    bundle_table,
    engine_line,
    list_table,
    metric_table,
    print_path,
    seed_tables,
    transfer_table,
    warnings,
)
from edgefr.report.verdict import ranking_of
from edgefr.simulation.runs.run import Run


def print_run(run: Run, console: Console) -> None:
    """Print the final report of one run."""
    summary = run.summary
    if "continual" in summary:
        console.print(block_table(summary))
    else:
        for split in summary["stages"]:
            console.print(metric_table(summary, split))
            of_lists = list_table(summary, split)
            if of_lists is not None:
                console.print(of_lists)
        if "sessions" in summary:
            console.print(group_table(summary))
        if summary["transfer"]:
            console.print(transfer_table(summary["transfer"], ranking_of(summary)))
    for split, lines in summary["verdicts"].items():
        for line in lines:
            console.print(_verdict(split, line))
    console.print(Text(f"protocol: {summary['protocol']}", style="dim"))
    if "central" in summary:
        console.print(Text(_central_line(summary), style="bold"))
    else:
        _print_federated(summary, console)
    if summary["bundles"]:
        console.print(bundle_table(summary["bundles"]))
    console.print(Text(engine_line(summary)))
    for line in warnings(summary):
        console.print(Text(line, style="bold yellow"))
    print_path("run", run.path, console)


def print_seeds(runs: Sequence[Run], place: Path, console: Console) -> None:
    """Print mean and standard deviation over seeds, references included."""
    from edgefr.report.over_seeds import over_seeds

    summary = over_seeds([run.summary for run in runs])
    for sheet in seed_tables(summary):
        console.print(sheet)
    console.print(Text(f"protocol: {summary['protocol']}", style="dim"))
    print_path("runs", place, console)
