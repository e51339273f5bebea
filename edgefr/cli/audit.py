"""`edgefr audit` attacks a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from edgefr.cli.progress import shown


def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    attacks: Annotated[
        str, typer.Option(help="Some of sign-split, membership, gradient-matching, game, canaries, by commas.")
    ] = "",
    users: Annotated[int, typer.Option(help="Clients that are attacked.")] = 50,
    trials: Annotated[int, typer.Option(help="Draws of the distinguishing game.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Attack what leaves the devices of a run: what do uploads give away, and is epsilon what it is said to be?

    One more round of the run is played through its own training, clip and noise. Every figure stands beside what
    knowing nothing reaches; epsilon is a lower bound with 95 % confidence. Writes audit.json into the run.
    """
    from edgefr.audits.attacks import Effort
    from edgefr.audits.audit import audit as attack
    from edgefr.report.layout import Sheet
    from edgefr.run import Run

    names = [name.strip() for name in attacks.split(",") if name.strip()]
    with shown() as progress:
        report = attack(Run.open(run), names, Effort(users, trials), progress)
    if as_json:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
        return
    console = Console()
    rows = [_row(finding) for finding in report["attacks"]]
    words = ("attack", "unit")
    console.print(Sheet(f"audit: {report['attacker']}", rows, words, caption=_caption(report)))


def _row(found: dict[str, Any]) -> dict[str, str]:
    """Return a finding for the table. In brackets: what knowing nothing reaches in 95 of 100 cases."""
    return {
        "attack": found["attack"],
        "unit": found["unit"],
        "AUC [null]": _pair(found["auc"], found["auc_null"]),
        "best sign": _pair(found["best_auc"], found["best_auc_null"]),
        "TPR@1%FPR": _pair(found["tpr"], found["tpr_null"]),
        "eps >= [guaranteed]": "-" if found["eps_lb95"] is None else _bound(found),
    }


def _pair(value: float | None, null: float | None) -> str:
    return "-" if value is None or null is None else f"{value:.3f} [{null:.3f}]"


def _bound(found: dict[str, Any]) -> str:
    """Return the lower bound, and what accounting guarantees for as many releases of a client."""
    claimed = found["claimed"] if isinstance(found["claimed"], str) else f"{found['claimed']:.3g}"
    rounds = "round" if found["releases"] == 1 else "rounds"
    return f"{found['eps_lb95']:.3g} [{claimed}, {found['releases']} {rounds}]"


def _caption(report: dict[str, Any]) -> str:
    """Say what the table cannot: attacks that were not made, and a bound above what is guaranteed."""
    lines = [f"{found['attack']}: not made: {found['note']}" for found in report["attacks"] if found["note"]]
    for found in report["attacks"]:
        if found["exceeds"]:
            lines.append(f"{found['attack']}: MORE LEAKS THAN IS GUARANTEED: mechanism or accounting is at fault")
    lines.append(
        f"{report['adjacency']}, delta={report['delta']:g}; the run's seed is known: this is about the algorithm"
    )
    return "\n".join(lines)
