"""`edgefr privacy` says what noise is worth, for settings or for a run; `edgefr audit` attacks a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from edgefr.cli.options import Json, split, validated
from edgefr.cli.output import say, show, show_json, show_line
from edgefr.config.progress import shown
from privacy.errors import InputError


def privacy(
    run: Annotated[Path | None, Argument(metavar="[RUN]", help="A finished run: what its clients spent.")] = None,
    mechanism: Annotated[str | None, Option(help="gaussian, laplace, discrete-laplace, paper-laplace or none.")] = None,
    rounds: Annotated[int | None, Option(help="Rounds of the run, at most one release of a client in each.")] = None,
    clients: Annotated[int | None, Option(help="Clients there are.")] = None,
    clients_per_round: Annotated[int | None, Option(help="Cohort of a round. Default: everyone.")] = None,
    trust: Annotated[str | None, Option(help="central (default) or local.")] = None,
    clip: Annotated[float | None, Option(help="Bound on the norm of a client's whole update.")] = None,
    norm: Annotated[str | None, Option(help="Norm that is clipped: l2 (default) or l1.")] = None,
    sigma: Annotated[float | None, Option(help="Standard deviation of the noise / clip.")] = None,
    epsilon: Annotated[float | None, Option(help="Instead of sigma: answer the noise this epsilon needs.")] = None,
    scale: Annotated[float | None, Option(help="Instead of sigma: absolute noise, as papers print it.")] = None,
    delta: Annotated[float | None, Option(help="Delta; below 1 / clients. Default: 1e-5.")] = None,
    sampler: Annotated[
        str | None, Option(help="grid (default with a clip), as devices draw it, or float (simulations alone).")
    ] = None,
    grid_exponent: Annotated[int | None, Option(help="k of the grid 2 ** k.")] = None,
    p90_norm: Annotated[
        float | None, Option(min=0, help="90th percentile of update norms, for the hypothetical epsilon.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the guarantee of noise settings without a run, or what the clients of RUN have spent.

    Four epsilons, never mixed: the papers' nominal one, the guaranteed, a hypothetical (clipped at the 90th percentile
    of norms), an audited lower bound (none here).

    Example: `edgefr privacy --mechanism gaussian --sigma 4 --clip 1 --rounds 100 --clients 943`

    Example: `edgefr privacy runs/demo`
    """
    settings = dict(mechanism=mechanism, trust=trust, clip=clip, norm=norm, sigma=sigma, epsilon=epsilon, scale=scale)
    settings |= dict(delta=delta, sampler=sampler, grid_exponent=grid_exponent)
    chosen = {name: value for name, value in settings.items() if value is not None}
    counts = {"rounds": rounds, "clients": clients, "clients_per_round": clients_per_round, "p90_norm": p90_norm}
    asked = [*chosen, *(name for name, value in counts.items() if value is not None)]
    if run is not None:
        if asked:
            raise InputError(f"a run has its own settings: drop --{asked[0].replace('_', '-')}, or drop the run")
        _print_run(run, as_json)
        return
    if mechanism is None or rounds is None or clients is None:
        raise InputError("name a run, or settings: --mechanism, --rounds and --clients (see edgefr privacy --help)")
    cohort = clients if clients_per_round is None else clients_per_round
    report = _answer(chosen, rounds, cohort, clients, p90_norm)
    for warning in (line for line in report["not_covered"] if line.startswith("delta ")):
        say(f"warning: {warning}", err=True)
    _print({"privacy": report}, as_json, report)


def _answer(chosen: dict[str, Any], rounds: int, cohort: int, clients: int, p90: float | None) -> dict[str, Any]:
    """Return the report of a run with these settings in which one client takes part in every round."""
    from privacy.plan import plan
    from privacy.report import report
    from privacy.settings import PrivacySettings

    settings = validated(PrivacySettings, **chosen)
    return report(settings, plan(settings, rounds, cohort, clients), rounds, float(rounds), clients, p90)


def _print_run(folder: Path, as_json: bool) -> None:
    from edgefr.simulation.bundle_checks import check_federated
    from edgefr.simulation.runs.privacy_spent import Spent
    from edgefr.simulation.runs.run import Run

    run = Run.open(folder)
    check_federated(run.experiment, "release to account for, and no privacy")
    report = run.summary.get("privacy")
    if not isinstance(report, dict):
        raise InputError(f"{folder / 'summary.json'} has no privacy report; run the experiment again")
    spent = Spent.of(run, report)
    collected = {"collected": spent.collected} if spent.collected else {}
    _print({"privacy": spent.report, **spent.ledgers}, as_json, {**spent.report, **spent.ledgers, **collected})
    for said, rounds in spent.collected.items() if not as_json else ():
        show_line(f"{rounds} served rounds: {said}")


def _print(parts: dict[str, Any], as_json: bool, values: dict[str, Any]) -> None:
    """Print the report as JSON, or as tables: that of the settings, and that of the ledger where there is one."""
    from edgefr.report.tables import pairs, privacy_table
    from edgefr.simulation.runs.layout import LEDGER
    from privacy.report_rows import render_ledger

    if as_json:
        show_json(values)
        return
    report = parts["privacy"]
    show(privacy_table(report))
    if "ledger" not in parts:
        return
    if parts["ledger"] is None:
        why = "releases are counted where they have a clip and noise"
        if report["eps_guaranteed"] != "inf":
            why = "the guarantee above is that of the client with most releases"
        show_line(f"no {LEDGER}: {why}", style="dim")
        return
    titles = {"ledger": "ledger, simulated and served" if "served" in parts else "ledger"}
    for name, title in (titles | {"simulated": "of that simulated", "served": "of that served"}).items():
        if parts.get(name) is not None:
            show(pairs(title, render_ledger(parts[name])))


def audit(
    run: Annotated[Path, Argument(help="Folder of a finished run.")],
    attacks: Annotated[
        str,
        Option(
            help="Some of sign-split, membership, gradient-matching, game, canaries, game-rows, game-bytes, "
            "game-steps, by commas. Default: all."
        ),
    ] = "",
    users: Annotated[int, Option(help="Clients that are attacked.")] = 50,
    trials: Annotated[int, Option(help="Draws of a game.")] = 10_000,
    seed: Annotated[int, Option(help="Keys the draws of checks and games.")] = 0,
    as_json: Json = False,
) -> None:
    """Check the noise of a run's uploads, and attack the uploads to measure what they reveal.

    First a line with the verdict: a check that is violated, or a bound above the guarantee, is a finding, and the exit
    code is 0 as for a run without one. Rounds are played through the run's own training, clip and noise. Epsilon is a
    lower bound with 95 % confidence. audit.json in the run keeps the strongest finding of every attack.

    Example: `edgefr audit runs/demo`

    Example: `edgefr audit runs/demo --attacks game,canaries --trials 1000 --json`
    """
    from edgefr.studies.audits.audit import audit as attack

    with shown() as progress:
        found = attack(run, split(attacks), users=users, trials=trials, seed=seed, progress=progress)
    if as_json:
        show_json(found.report)
        return
    say(found.verdict, style="bold")
    show(found.checks_sheet, found.sheet)
