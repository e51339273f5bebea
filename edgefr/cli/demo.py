"""`edgefr demo` serves a run with a page on this host, whose tabs are its devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from edgefr.cli.output import say
from edgefr.config.progress import shown


def demo(
    run: Annotated[
        Path, Argument(metavar="RUN", help="Folder of a run that devices can go on with; made if it is not there.")
    ] = Path("runs/people"),
    rounds: Annotated[int, Option(min=1, help="Rounds to run.")] = 100,
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8790,
    timeout: Annotated[float, Option(min=0.1, help="Seconds a round waits for others after its first answer.")] = 8.0,
    browser: Annotated[bool, Option(help="Open the page in this host's browser.")] = True,
) -> None:
    """Open a page on this host. Each tab is one user's device: it recommends, learns and joins rounds.

    A tab keeps what its person likes; a round takes one clipped update with noise of each tab that takes part. The run
    is made in about half a minute where RUN is not there. Stop with Ctrl+C; the same line goes on.

    Example: `edgefr demo`

    Example: `edgefr demo runs/begun --rounds 20 --port 8790`
    """
    from edgefr.serving.demo import begun, page
    from edgefr.serving.demo import demo as served

    page()

    def ready(url: str) -> None:
        print(f"open {url} in a browser; every tab is another person. Ctrl+C ends it", flush=True)
        if browser:
            import webbrowser

            webbrowser.open(url)

    with shown() as progress:
        done = served(begun(run, progress), rounds, port=port, timeout_s=timeout, ready=ready, progress=progress)
    say(f"{done.summary['uploads']} updates were taken; result: {done.path}")
