"""Serves a run again and again in forks of one process, each killed for good at a moment of its life.

    python -m tests.remote.kills RUN CLASS PORT

reads a line of JSON per fork from its input and answers with its exit code. CLASS is one class, or several with commas
between. `point` is one of `POINTS`, `call` which call of it, `how` before, half or after it; without a point the fork
is killed `after` seconds; without that it serves `rounds` rounds to their end. `sealed`: uploads are summed under
masks.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edgefr.simulation.runs.saved_model
from edgefr.serving import ledger
from edgefr.serving.broker import RoundBroker
from edgefr.serving.ledger import ServingLedger
from edgefr.serving.releases import Answers
from edgefr.serving.secure_sums import SealedRound
from edgefr.serving.serve import serve
from edgefr.serving.server import Access
from edgefr.simulation.runs.lineage import Journal, sealed
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.upload_trust import Collecting

POINTS: dict[str, tuple[Any, str]] = {
    "a line": (Journal, "append"),
    "the length": (Journal, "_remember"),
    "the tensors": (ServingLedger, "keep"),
    "a file": (ledger, "write_atomic"),
    "a round offered": (RoundBroker, "open"),
    "an answer": (Answers, "keep"),
    "a round collected": (RoundBroker, "collect"),
    "a round closed": (RoundBroker, "close"),
}
MASKED: dict[str, tuple[Any, str]] = {"a message of a sum": (SealedRound, "take"), "a sum": (SealedRound, "collect")}
"""Those of sealed rounds."""
HOW = ("before", "half", "after")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def half(name: str, given: tuple[Any, ...]) -> None:
    """Half of what a call writes."""
    if name == "append":
        journal, record = given
        line, _ = sealed(record, journal.lineage.head)
        journal.path.parent.mkdir(exist_ok=True)
        with open(journal.path, "ab") as file:
            file.write(line[: len(line) // 2])
    elif name == "write_atomic":
        path, content = given
        (path.parent / f".{path.name}.half.part").write_bytes(content[: len(content) // 2])


def hooked(point: str, how: str, call: int) -> None:
    """Kill this process at that call of a point."""
    owner, name = (POINTS | MASKED)[point]
    real: Callable[..., Any] = getattr(owner, name)
    calls = itertools.count(1)

    def watched(*given: Any, **named: Any) -> Any:
        number = next(calls)  # its own, whatever other threads call meanwhile
        if number == call and how != "after":
            if how == "half":
                half(name, given)
            kill()
        result = real(*given, **named)
        if number == call:
            kill()
        return result

    setattr(owner, name, watched)


def forked(job: dict[str, Any], run: Path, bundle_class: str, port: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            if job.get("point"):
                hooked(job["point"], job["how"], job["call"])
            options = {"collecting": Collecting(sealed=job.get("sealed", False)), "timeout_s": 20.0}
            serve(
                Run(run), bundle_class.split(","), job["rounds"], Access(port=port), ready=lambda url: None, **options
            )
            os._exit(0)
        except BaseException as error:  # nothing of the parent's may run in the child
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    if job.get("after") is not None:
        time.sleep(job["after"])
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    run, bundle_class, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    edgefr.simulation.runs.saved_model.open_model(Run(run))  # imports what all forks need
    for line in sys.stdin:
        print(forked(json.loads(line), run, bundle_class, port), flush=True)


if __name__ == "__main__":
    main()
