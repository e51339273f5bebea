"""Runs the command line many times in forks of one process, each killed for good at a moment of its life.

    python -m tests.durable.driver FOLDER < jobs.json

A job has a `name`, the `arguments` of `edgefr simulate`, a number of `moments` and of `timed` kills, and says whether
`each_kind` of call has to be among the moments. The program runs each job whole once and notes the calls of `HOOKS` in
their order; the moments are spread over that list. Every killed run is resumed (some are killed once more on the way)
to its end. What came of each is written to FOLDER/report.json.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

from privacy import keyed

HOOKS = {
    "os": ("fsync", "rename", "replace"),
    "shutil": ("rmtree",),
    "edgefr.simulation.runs.folder.EventLog": ("append", "flush", "cut"),
    "edgefr.simulation.runs.folder.RunFolder": (
        "write_devices",
        "write_experiment",
        "write_ledger",
        "write_metrics",
        "write_resolved",
        "write_summary",
        "write_tensors",
    ),
    "privacy.noise_key.NoiseKey": ("write",),
    "edgefr.simulation.prepare": ("prepare",),
    "edgefr.simulation.participation.Participation": ("meet",),
    "edgefr.engine.federation.Federation": ("round", "state", "restore"),
    "edgefr.simulation.loop.Training": ("engage", "personal"),
    "edgefr.simulation.stages.blocks.BlockStage": ("_carry", "end"),
    "edgefr.simulation.stages.leave_one_out.Local": ("end",),
    "edgefr.methods.f3crec.block_strategy.Keeping": ("end",),
    "edgefr.simulation.evaluation.measure.Measurements": ("lists",),
    "edgefr.report.web.page": ("run_page",),
}
"""Where a run can be killed: before a call, after it, or half-way through what it writes or removes."""
HOW = ("before", "half", "after")
Moment = tuple[int, str]


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def half(name: str, given: tuple[Any, ...]) -> None:
    """Half of what a call would have done, for calls that write or remove."""
    if name == "fsync":
        path = os.readlink(f"/proc/self/fd/{given[0]}")
        if ".part" in path and os.path.isfile(path):  # what was flushed before is on the disk already
            os.ftruncate(given[0], os.fstat(given[0]).st_size // 2)
    elif name == "append":
        data = "".join(json.dumps(event) + "\n" for event in given[1]).encode()
        with open(given[0].path, "ab") as file:
            file.write(data[: len(data) // 2 + 1])
    elif name == "rmtree" and Path(given[0]).is_dir():
        for path in sorted(Path(given[0]).iterdir())[:1]:
            path.unlink()


def hook(calls: list[str], moment: Moment | None) -> None:
    """Note every call of `HOOKS` in `calls`; kill this process at the moment (number of the call, how)."""

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            now = None if moment is None or len(calls) - 1 != moment[0] else moment[1]
            if now == "before":
                kill()
            if now == "half":
                half(name, given)
                kill()
            result = real(*given, **named)
            if now == "after":
                kill()
            return result

        return call

    for place, names in HOOKS.items():
        module, _, kind = place.rpartition(".")
        owner = getattr(importlib.import_module(module), kind) if kind[:1].isupper() else importlib.import_module(place)
        for name in names:
            setattr(owner, name, watched(name, getattr(owner, name)))


def forked(arguments: list[str], log: Path, moment: Moment | None = None, after: float | None = None) -> int:
    """`edgefr simulate arguments` in a fork; its exit code, -9 if killed (`after`: seconds until that)."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            _become(arguments, log, moment)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)  # a child that is done stays a zombie until it is waited for
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(arguments: list[str], log: Path, moment: Moment | None) -> None:
    from edgefr.cli.app import main

    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    calls: list[str] = []
    hook(calls, moment)
    sys.argv = ["edgefr", "simulate", *arguments]
    try:
        main()
    finally:
        Path(f"{log}.calls").write_text(json.dumps(calls))
        Path(f"{log}.modules").write_text(json.dumps(sorted(sys.modules)))


def spread(calls: list[str], moments: int, each_kind: bool) -> list[Moment]:
    """`moments` calls of the list, one in each of as many equal parts of it; and one of each kind of call."""
    edges = [len(calls) * part // moments for part in range(moments + 1)]
    key = keyed.key(0, "moments of a kill")
    chosen = {a + int(keyed.integers(key, i, b - a)) for i, (a, b) in enumerate(pairwise(edges))}
    for name in dict.fromkeys(calls) if each_kind else ():
        if name not in {calls[at] for at in chosen}:
            places = [at for at, found in enumerate(calls) if found == name]
            chosen.add(places[len(places) // 2])
    return [(at, HOW[number % len(HOW)]) for number, at in enumerate(sorted(chosen))]


def ended(job: dict[str, Any], out: Path, number: int) -> dict[str, Any]:
    """Resume a killed run to its end; every fourth is killed again on the way. A run that left nothing starts anew."""
    codes, options = [], ["--no-bundles", "--resume", str(out)]
    finished = out / "summary.json"
    if number % 4 == 3 and not finished.exists():
        codes.append(forked(options, out.with_suffix(".second"), (10 + 7 * number % 40, HOW[number % 3])))
    if not finished.exists() and codes != [2]:
        codes.append(forked(options, out.with_suffix(".last")))
    errors = [path.read_text() for path in sorted(out.parent.glob(f"{out.name}.*.err"))]
    if codes[-1:] == [2]:
        out = out if not out.exists() or not any(out.iterdir()) else out.with_name(f"{out.name}-anew")
        codes.append(forked([*job["arguments"], "--out", str(out)], out.with_suffix(".anew")))
    return {"codes": codes, "errors": errors, "out": str(out)}


def go(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One job: whole, then killed at each of its moments."""
    whole, arguments = folder / "whole", job["arguments"]
    assert forked([*arguments, "--out", str(whole)], folder / "whole") == 0, (folder / "whole.err").read_text()
    for name in json.loads((folder / "whole.modules").read_text()):
        with suppress(Exception):
            importlib.import_module(name)  # once for all forks
    again, began = folder / "again", time.monotonic()
    assert forked([*arguments, "--out", str(again)], folder / "again") == 0
    length = time.monotonic() - began
    calls = json.loads((folder / "again.calls").read_text())
    moments = spread(calls, job["moments"], job["each_kind"])
    plans: list[tuple[str, Moment | None, float | None]] = [
        (f"{how} call {at} ({calls[at]})", (at, how), None) for at, how in moments
    ]
    plans += [(f"after {p}/{job['timed']} of the time", None, length * p / job["timed"]) for p in range(job["timed"])]
    runs = []
    for number, (what, moment, after) in enumerate(plans):
        out = folder / f"killed-{number}"
        first = forked([*arguments, "--out", str(out)], out.with_suffix(".first"), moment, after)
        runs.append({"what": what, "first": first, **ended(job, out, number)})
    return {"whole": str(whole), "again": str(again), "seconds": length, "calls": calls, "runs": runs}


def main() -> None:
    folder = Path(sys.argv[1])
    report = {}
    for job in json.load(sys.stdin):
        place = folder / job["name"]
        place.mkdir(parents=True)
        began = time.monotonic()
        report[job["name"]] = go(job, place) | {"all_seconds": time.monotonic() - began}
    (folder / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
