"""Tables on the terminal: what a run gave, what it cost, what its privacy is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from edgefr.fleet import FleetFile
from edgefr.fleet import table as device_rows
from edgefr.report.summary import over_seeds
from edgefr.run import Run
from privacy.report import render


def print_run(run: Run, console: Console) -> None:
    """The final report of one run."""
    summary = run.summary
    for split in summary["stages"]:
        console.print(metric_table(summary, split))
    if summary["transfer"]:
        console.print(transfer_table(summary["transfer"]))
    for split, lines in summary["verdicts"].items():
        for line in lines:
            style = "yellow" if "NOT" in line else "green"
            console.print(f"  [{style}]{split}: {line}[/{style}]")
    console.print(f"[dim]protocol: {summary['protocol']}[/dim]")
    console.print(fleet_table(summary["fleet"]))
    console.print(privacy_table(summary["privacy"]))
    if summary["bundles"]:
        console.print(bundle_table(summary["bundles"]))
    console.print(engine_line(summary))
    console.print(f"run: {run.path}")


def metric_table(summary: dict[str, Any], split: str) -> Table:
    """Stages of the model and references, on sampled candidates and on the whole catalogue."""
    stages, references = summary["stages"][split], summary["references"][split]
    full = summary["full_ranking"].get(split, {})
    names = list(next(iter(stages.values())))
    title = f"{summary['method']} on {summary['data']}"
    table = Table(title=title if split == "main" else f"{title}: {split}", title_justify="left")
    table.add_column("test items")
    for name in names:
        table.add_column(f"{name}\n1+sampled", justify="right")
    for name in names:
        table.add_column(f"{name}\nfull", justify="right")
    for group in (stages, references):
        for stage, values in group.items():
            final = stage == summary["stage"]
            cells = [f"{values[n]:.4f}" for n in names]
            cells += [f"{full[stage][n]:.4f}" if stage in full else "-" for n in names]
            table.add_row(stage, *cells, style="bold" if final else None, end_section=stage == list(group)[-1])
    users = summary["full_ranking"]["users"]
    if users:
        table.caption = f"full ranking on {users} users; the lower part needs no learning"
    return table


def transfer_table(transfer: dict[str, dict[str, float]]) -> Table:
    """TransFR Tables 5 and 6: source, target, delta."""
    table = Table(title="transfer after local training (TransFR Tables 5 and 6)", title_justify="left")
    for column in ("metric", "source", "target", "delta"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for metric, values in transfer.items():
        table.add_row(metric, f"{values['source']:.4f}", f"{values['target']:.4f}", f"{values['delta']:.1%}")
    return table


def fleet_table(fleet: dict[str, Any]) -> Table:
    """Per device class: who took part, who did not and why, and what a round cost (median, p90)."""
    hours = fleet["virtual_hours"]
    table = Table(
        title=f"fleet: {fleet['rounds']} rounds in {hours:.2f} virtual hours ({fleet['policy']})", title_justify="left"
    )
    table.add_column("device class")
    for column in ("clients", "invited", "contributed"):
        table.add_column(column, justify="right")
    table.add_column("failures")
    for column in ("s/round", "J/round", "MB/round", "RAM MB"):
        table.add_column(f"{column}\np50 (p90)", justify="right")
    table.add_column("evidence\ntime, energy, RAM")
    for name, row in fleet["classes"].items():
        table.add_row(name, *_fleet_cells(row), _evidence(row["evidence"]))
    table.add_section()
    table.add_row("all", *_fleet_cells(fleet), "")
    table.caption = "simulated figures; a quantity is no better known than its weakest input"
    return table


def _fleet_cells(row: dict[str, Any]) -> list[str]:
    failures = ", ".join(f"{kind} {count}" for kind, count in row["failures"].items())
    cells = [str(row["clients"]), str(row["invited"]), str(row["contributed"]), failures or "-"]
    spreads = [row.get("seconds"), row.get("energy_j"), _megabytes(row), row.get("memory_mb")]
    return cells + [_spread(s) for s in spreads]


def _megabytes(row: dict[str, Any]) -> dict[str, float] | None:
    down, up = row.get("bytes_down"), row.get("bytes_up")
    if not down or not up:
        return None
    return {q: (down[q] + up[q]) / 1e6 for q in ("p50", "p90") if down.get(q) is not None and up.get(q) is not None}


def _spread(values: dict[str, float] | None) -> str:
    if not values or values.get("p50") is None:
        return "-"
    return f"{values['p50']:.3g} ({values['p90']:.3g})"


def _evidence(evidence: dict[str, dict[str, str]]) -> str:
    order = ("measured", "derived", "proxy", "estimate")
    weakest = [max(found.values(), key=order.index) if found else "-" for found in evidence.values()]
    return ", ".join(weakest[:3])


def privacy_table(report: dict[str, Any]) -> Table:
    """The privacy report: four epsilons, never mixed."""
    table = Table(title="privacy", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in render(report):
        table.add_row(name, value)
    return table


def bundle_table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row per device class: what its bundle holds and how it compares with the simulation."""
    table = Table(title="bundles", title_justify="left")
    for column in ("device class", "variant", "MB", "RAM MB", "fits", "max |score error|", "same top 10"):
        table.add_column(column, justify="left" if column in ("device class", "variant") else "right")
    for row in rows:
        error, same = row["max_score_error"], row["top10_equal"]
        table.add_row(
            row["class"],
            row["variant"],
            f"{row['files_mb']:.1f}",
            f"{row['memory_mb']:.0f}",
            "yes" if row["fits"] else "NO",
            "-" if error is None else f"{error:.1e}",
            "-" if same is None else f"{same:.1%}",
        )
    return table


def engine_line(summary: dict[str, Any]) -> str:
    """One line: speed, time, memory."""
    e = summary["engine"]
    return (
        f"engine: {e['client_updates']:,} client updates at {e['clients_per_second']:,.0f}/s ({e['executor']}, "
        f"{e['device']}, shards of {e['shard_size']}), train {e['train_seconds']:.1f} s, evaluation "
        f"{e['eval_seconds']:.1f} s, whole run {e['wall_seconds']:.1f} s, peak {e['peak_rss_mb']:.0f} MB"
    )


def print_seeds(runs: Sequence[Run], place: Path, console: Console) -> None:
    """Mean and standard deviation over seeds, references included."""
    summary = over_seeds([run.summary for run in runs])
    for split, stages in summary["stages"].items():
        names = list(next(iter(stages.values())))
        title = f"{summary['method']} on {summary['data']}, {split}: mean ± sd of {len(runs)} seeds"
        table = Table(title=title, title_justify="left")
        table.add_column("test items")
        for name in names:
            table.add_column(name, justify="right")
        for group in (stages, summary["references"][split]):
            for stage, values in group.items():
                cells = [f"{values[n]['mean']:.4f} ± {values[n]['sd']:.4f}" for n in names]
                table.add_row(stage, *cells, end_section=stage == list(group)[-1])
        console.print(table)
    console.print(f"[dim]protocol: {summary['protocol']}[/dim]")
    console.print(f"runs: {place}")


def device_table(spec: FleetFile) -> Table:
    """The device classes of a fleet file."""
    rows = device_rows(spec)
    table = Table(title=f"{len(rows)} device classes", title_justify="left")
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    table.caption = "evidence: M measured, P measured on a named proxy, D derived by arithmetic, E estimate"
    return table


def key_values(title: str, values: dict[str, Any]) -> Table:
    """A mapping as two columns."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    return table
