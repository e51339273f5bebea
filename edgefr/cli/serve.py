"""`edgefr serve` lets real devices go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from edgefr.cli.device import pair
from edgefr.cli.progress import shown
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.simulation.runs.run import Run


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, often one of rounds=0.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to go on for; none: with --status alone.")] = None,
    bundle_class: Annotated[
        list[str] | None,
        typer.Option(
            help="Device class whose bundle the devices hold; may be given again, so that several classes answer the "
            "same rounds. Default: all that have a bundle that learns, and users."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 0,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            help="The server's certificate (PEM). Off loopback by default one made for the run. With --status: the one "
            "that is shown to a server which asks for one."
        ),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(help="Authority (PEM) whose certificate every device has to show; none: no device shows one."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds a round waits for its devices; the others are left out of it. Default: 600, rehearsing 20.",
        ),
    ] = None,
    min_answers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Answers without which nothing of a round is published. Default: half, and 3 at least.",
        ),
    ] = None,
    secure_sum: Annotated[
        bool,
        typer.Option(
            "--secure-sum", help="Sum uploads under masks, of which the server learns the total (secure aggregation)."
        ),
    ] = False,
    trusted_server: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who is trusted with single uploads. Under central trust an epsilon is stated for sealed sums, or "
            "where somebody is named here.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the result; must be new. Default: RUN/served (or rehearsed), served-2, ..."),
    ] = None,
    rehearse: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rehearse in a copy of the run: N of its users as device processes of this host, with the fleet's "
            "failures, beside what the simulator says.",
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Say what the run's server is doing, or what it left, and serve nothing.")
    ] = False,
) -> None:
    """Go on with a run for some rounds with real devices, each a process of `edgefr device join`.

    They enrol with codes of `edgefr enrol`, also while it serves. Prints its address once it listens. Goes on from the
    run's last served round, whose number and what it has cost its clients are kept in RUN/lineage. A server that was
    killed goes on by the same command: with the round that was open, and the answers it had (a round of --secure-sum
    is given up, and stays charged). Writes the tensors that were learned, and what it took.

    Example: `edgefr serve runs/demo --rounds 3`

    Example: `edgefr serve runs/demo --bundle-class phone_sd680 --bundle-class laptop_x86 --rounds 3`

    Example: `edgefr serve runs/demo --bundle-class phone_sd680 --rounds 2 --rehearse 6`

    Example: `edgefr serve runs/demo --bundle-class phone_sd680 --rounds 1 --port 8765 --secure-sum`

    Example: `edgefr serve runs/demo --status`
    """
    from edgefr.config.sheet import Sheet, plainly
    from edgefr.report.tables import print_path
    from edgefr.serving.serve import serve as serve_run
    from edgefr.serving.server import Access
    from edgefr.simulation.runs.run import Run
    from edgefr.simulation.runs.upload_trust import Collecting
    from privacy.report_rows import render_ledger

    opened = Run.open(run)
    if status:
        _only_look(
            rounds=rounds,
            bundle_class=bundle_class,
            host=host != Access().host,
            port=port,
            client_ca=client_ca,
            timeout=timeout,
            min_answers=min_answers,
            secure_sum=secure_sum,
            trusted_server=trusted_server,
            out=out,
            rehearse=rehearse,
        )
        _status(opened, pair(tls_cert, tls_key))
        return
    access = Access(host, port, tls_cert, tls_key, client_ca=client_ca)
    collecting = Collecting(secure_sum, trusted_server)
    if rounds is None:
        raise InputError("say how many rounds devices are to do: give --rounds")
    if rehearse is not None:
        if access != Access():
            raise InputError("a rehearsal stays on this host: drop --host, --port, --client-ca and those of TLS")
        if collecting != Collecting():
            raise InputError("a rehearsal collects uploads as they are: drop --secure-sum and --trusted-server")
        if bundle_class is None or len(bundle_class) != 1:
            raise InputError("devices of one class rehearse together: give --bundle-class, once")
        _rehearse(opened, bundle_class[0], rounds, rehearse, timeout or 20.0, min_answers, out)
        return
    with shown() as progress:
        served = serve_run(
            opened,
            bundle_class,
            rounds,
            access,
            timeout_s=timeout or 600.0,
            min_answers=min_answers,
            collecting=collecting,
            out=out,
            ready=lambda url: print(f"{collecting.said}; listening on {url}", flush=True),
            progress=progress,
        )
    shown_as = [(name.replace("_", " "), plainly(v)) for name, v in served.summary.items() if name != "privacy"]
    spent = served.summary["privacy"]
    rows = [{"what": n, "value": v} for n, v in [*shown_as, *(render_ledger(spent) if spent is not None else [])]]
    console = Console()
    console.print(Sheet("served", rows, words=["what"]))
    print_path("result", served.path, console)


def _only_look(**given: object) -> None:
    """Raise `InputError` where one of these options was given: whoever looks would take it for heeded."""
    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} says how to serve, and --status only looks; drop one of them")


def _status(run: Run, shown_to: tuple[Path, Path] | None) -> None:
    """Print what the server of a run is doing, or what it left."""
    from edgefr.config.sheet import Sheet, plainly
    from edgefr.serving.status import status

    rows = [{"what": name, "value": plainly(value)} for name, value in status(run, shown_to).items()]
    Console().print(Sheet("server", rows, words=["what", "value"]))


def _rehearse(
    run: Run, bundle_class: str, rounds: int, devices: int, timeout: float, min_answers: int | None, out: Path | None
) -> None:
    """Print what the simulator said of a rehearsal beside what happened in it."""
    from edgefr.config.sheet import Sheet
    from edgefr.report.tables import print_path
    from edgefr.serving.rehearsal import rehearse, table

    with shown() as progress:
        found = rehearse(
            run,
            bundle_class,
            rounds,
            devices,
            timeout_s=timeout,
            min_answers=min_answers,
            out=out,
            progress=progress,
        )
    console = Console()
    rows = [{"what": what, "simulated": said, "happened": did} for what, said, did in table(found.summary)]
    console.print(Sheet("rehearsed", rows, words=["what", "simulated", "happened"]))
    print_path("result", found.path, console)
