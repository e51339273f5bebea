"""`edgefr serve` and `enrol`: continue a run on real devices, and enrol devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from edgefr.cli.device import pair
from edgefr.cli.options import refuse_given
from edgefr.cli.output import say, show, show_facts
from edgefr.config.progress import shown
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.serving.server import Access
    from edgefr.simulation.runs.run import Run
    from edgefr.simulation.runs.upload_trust import Collecting


def serve(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a finished run, often one of rounds=0.")],
    rounds: Annotated[int | None, Option(min=1, help="Rounds to run; not needed with --status.")] = None,
    bundle_class: Annotated[
        list[str] | None,
        Option(
            help="Device class whose bundle the devices hold; may be given again, so that several classes answer the "
            "same rounds. Default: all that have a bundle that learns, and users."
        ),
    ] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 0,
    tls_cert: Annotated[
        Path | None,
        Option(
            help="The server's certificate (PEM). Off loopback by default one made for the run. With --status: the one "
            "that is shown to a server which asks for one."
        ),
    ] = None,
    tls_key: Annotated[Path | None, Option(help="Its private key (PEM).")] = None,
    client_ca: Annotated[
        Path | None,
        Option(help="Authority (PEM) whose certificate every device has to show; none: no device shows one."),
    ] = None,
    timeout: Annotated[
        float | None,
        Option(
            min=0.1,
            help="Seconds a round waits for its devices; later devices are left out. Default: 600, rehearsing 20.",
        ),
    ] = None,
    min_answers: Annotated[
        int | None,
        Option(min=1, help="Fewest answers that publish a round. Default: half, and 3 at least."),
    ] = None,
    secure_sum: Annotated[
        bool,
        Option(
            "--secure-sum", help="Sum uploads under masks, of which the server learns the total (secure aggregation)."
        ),
    ] = False,
    trusted_server: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Who is trusted with single uploads. Under central trust an epsilon is stated for sealed sums, or "
            "where somebody is named here.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="Folder for the result; must be new. Default: RUN/served (or rehearsed), served-2, ..."),
    ] = None,
    rehearse: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Rehearse in a copy of the run: N of its users as device processes of this host, with the fleet's "
            "failures, beside what the simulator says.",
        ),
    ] = None,
    status: Annotated[
        bool, Option("--status", help="Say what the run's server is doing, or what it left, and serve nothing.")
    ] = False,
) -> None:
    """Continue a run on real devices, each a process of `edgefr device join`.

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
    from edgefr.serving.server import Access
    from edgefr.simulation.runs.run import Run
    from edgefr.simulation.runs.upload_trust import Collecting

    opened = Run.open(run)
    if status:
        refuse_given(
            "says how to serve, and --status only looks; drop one of them",
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
    to = {"min_answers": min_answers, "out": out}
    if rehearse is None:
        _serve(opened, rounds, access, collecting, bundle_class, timeout or 600.0, **to)
        return
    if access != Access():
        raise InputError("a rehearsal stays on this host: drop --host, --port, --client-ca and those of TLS")
    if collecting != Collecting():
        raise InputError("a rehearsal collects uploads as they are: drop --secure-sum and --trusted-server")
    if bundle_class is None or len(bundle_class) != 1:
        raise InputError("devices of one class rehearse together: give --bundle-class, once")
    _rehearse(opened, bundle_class[0], rounds, rehearse, timeout or 20.0, **to)


def _serve(
    run: Run,
    rounds: int,
    access: Access,
    collecting: Collecting,
    classes: list[str] | None,
    timeout_s: float,
    **options: Any,
) -> None:
    """Serve rounds, and print what they came to."""
    from edgefr.config.sheet import plainly
    from edgefr.serving.serve import serve
    from privacy.report_rows import render_ledger

    def ready(url: str) -> None:
        print(f"{collecting.said}; listening on {url}", flush=True)

    options |= {"timeout_s": timeout_s, "collecting": collecting, "ready": ready}
    with shown() as progress:
        served = serve(run, classes, rounds, access, **options, progress=progress)
    facts = {name.replace("_", " "): plainly(v) for name, v in served.summary.items() if name != "privacy"}
    spent = served.summary["privacy"]
    show_facts("served", [*facts.items(), *(render_ledger(spent) if spent is not None else ())], words=["what"])
    say(f"result: {served.path}")


def _status(run: Run, shown_to: tuple[Path, Path] | None) -> None:
    """Print what the server of a run is doing, or what it left."""
    from edgefr.config.sheet import plainly
    from edgefr.serving.status import status

    show_facts("server", ((name, plainly(value)) for name, value in status(run, shown_to).items()))


def _rehearse(run: Run, bundle_class: str, rounds: int, devices: int, timeout_s: float, **options: Any) -> None:
    """Print what the simulator said of a rehearsal beside what happened in it."""
    from edgefr.config.sheet import Sheet
    from edgefr.serving.rehearsal import rehearse, table

    with shown() as progress:
        found = rehearse(run, bundle_class, rounds, devices, timeout_s=timeout_s, **options, progress=progress)
    rows = [{"what": what, "simulated": said, "happened": did} for what, said, did in table(found.summary)]
    show(Sheet("rehearsed", rows, words=["what", "simulated", "happened"]))
    say(f"result: {found.path}")


def enrol(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a run that is served, or is going to be.")],
    user: Annotated[
        list[str] | None,
        Option(help="Whose device it is; may be repeated. Default: every user of the run without a key."),
    ] = None,
    days: Annotated[float, Option(min=0.001, help="Days for which a code is good.")] = 7.0,
    tls_cert: Annotated[
        Path | None, Option(help="The server's certificate (PEM), if it is not the one made for the run.")
    ] = None,
    revoke: Annotated[bool, Option("--revoke", help="Take their keys and open codes away instead.")] = False,
) -> None:
    """Print a one-time code per user; `edgefr device enrol` uses it to register a device's key.

    A line has a user and the code, which is shown once and kept nowhere. A later code of a user makes earlier ones
    worthless, and a later key the earlier key; what a user's devices have released is counted together. Beside them, on
    stderr, stands the class of device that users have in the run: a server hands out bundles of the classes it serves.

    Example: `edgefr enrol runs/demo --user ada`

    Example: `edgefr enrol runs/demo --user ada --revoke`
    """
    from edgefr.serving.enrolment import Roll

    roll = Roll(run)
    if revoke:
        if not user:
            raise InputError("say whose key is to be revoked: give --user")
        roll.revoke(user)
        return
    codes, classes = roll.issue(user, days, tls_cert)
    for line in codes:
        typer.echo(line)
    for line in classes:
        typer.echo(line, err=True)
