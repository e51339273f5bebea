"""Whole runs by part in CPU seconds, a process each, beside FedMF's whole run written by hand in numpy (`by_hand.py`).

    python benchmarks/whole_run.py [--data-dir DIR] [--only NAME ...] [--repeat 3] [--quick]

A run is `edgefr.simulate` as a script calls it, on one thread, with what a run before left on the disk: machine code
and the text encoder; where the disk has none, the first turn makes it, and is not counted. Runs take turns, and of each
the turn of the fewest CPU seconds is shown. `imports` is Python's start and every import, whenever it comes; `machine
code` is reading or making it; `kernel` what compiled clients take, or vectorised ones where nothing is compiled;
`rounds` the rest of them: who takes part, the clock and its log, draws, sums, the server's step. `by hand` has no
fleet, log, page, references or privacy: it draws, trains, averages and ranks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PARTS = ("imports", "data", "machine code", "kernel", "rounds", "evaluation", "page", "bundles", "the rest")
RUNS: dict[str, tuple[str | None, list[str], str | None]] = {
    "FedMF": (None, ["method=fedmf", "data=ml-100k", "rounds=100"], "ml-100k.zip"),
    "F3CRec": ("experiments/f3crec-ml-100k.yaml", [], "ml-100k.zip"),
    "FCUCR": ("experiments/fcucr/history-xing.yaml", [], "xing-sessions.parquet"),
    "FedCAR": ("experiments/fedcar/ml-100k.yaml", [], "ml-100k.zip"),
    "default": (None, [], None),
}
"""Each run's experiment, its changes, and the file of its data."""
SHIPPED = ("default",)
"""Runs that write bundles."""
WRAPPED = {
    "edgefr.simulation.prepare:prepare": "data",
    "numba.core.dispatcher:Dispatcher.compile": "machine code",
    "edgefr.engine.compiled.kernel_run:run": "kernel",
    "edgefr.engine.compiled.kernel_system:run": "kernel",
    "edgefr.engine.executors.inline:run": "kernel",
    "edgefr.simulation.loop:Training.train": "evaluation",
    "edgefr.simulation.loop:Training.learn": "rounds",
    "edgefr.simulation.loop:Training._before_any_round": "evaluation",
    "edgefr.simulation.loop:measure": "evaluation",
    "edgefr.engine.federation:Federation.personalise": "rounds",
    "edgefr.report.web.page:run_page": "page",
    "edgefr.simulation.simulate:_ship": "bundles",
}
"""What is charged to which part, but for what it calls that is charged to another."""


def cpu() -> float:
    """Return the CPU seconds of this process and its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class Bill:
    """This charges CPU seconds to the innermost part that is under way."""

    def __init__(self) -> None:
        self.spent, self.under_way, self.since = dict.fromkeys(PARTS, 0.0), ["the rest"], cpu()
        self.spent["imports"] = self.since
        self.first_round = 0.0

    def charged(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Return a function whose time is `part`'s."""

        def inner(*args: Any, **named: Any) -> Any:
            self._turn()
            if part == "rounds":
                self.first_round = self.first_round or self.since
            self.under_way.append(part)
            try:
                return call(*args, **named)
            finally:
                self._turn()
                self.under_way.pop()

        return inner

    def _turn(self) -> None:
        now = cpu()
        self.spent[self.under_way[-1]] += now - self.since
        self.since = now


def run(name: str, data_dir: Path | None, rounds: int | None, out: Path) -> dict[str, Any]:
    """Make a run in this process; return the seconds of its parts and what its summary says of speed and memory."""
    bill = Bill()
    bootstrap: Any = importlib._bootstrap  # type: ignore[attr-defined]
    bootstrap._find_and_load = bill.charged(bootstrap._find_and_load, "imports")
    for place, part in WRAPPED.items():
        module, _, path = place.partition(":")
        *outer, last = path.split(".")
        home = importlib.import_module(module)
        for attribute in outer:
            home = getattr(home, attribute)
        setattr(home, last, bill.charged(getattr(home, last), part))
    import edgefr

    experiment, overrides, _ = RUNS[name]
    changed = [*overrides, *([] if rounds is None else [f"rounds={rounds}"])]
    loaded = edgefr.load_experiment(None if experiment is None else ROOT / experiment, changed)
    made = edgefr.simulate(loaded, ROOT / "devices.yaml", data_dir=data_dir, out=out, bundles=name in SHIPPED)
    bill._turn()
    engine = made.summary["engine"]
    return bill.spent | {
        "all": sum(bill.spent.values()),
        "first round at": bill.first_round,
        "clients": engine["client_updates"],
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def turn(command: list[str]) -> dict[str, float]:
    """Return what a process prints last."""
    one = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, *command], env=one, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("EDGEFR_DATA", ".")))
    parser.add_argument("--only", nargs="+", choices=[*RUNS, "by hand"], help="these runs alone")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="two rounds, one turn")
    parser.add_argument("--out", type=Path, help="make one run there, and print it as JSON")
    options = parser.parse_args()
    rounds = 2 if options.quick else None
    if options.out is not None:
        print(json.dumps(run(options.only[0], options.data_dir, rounds, options.out)))
        return
    with tempfile.TemporaryDirectory() as place:
        commands = {
            name: [__file__, "--only", name, "--data-dir", str(options.data_dir), *(["--quick"] * options.quick)]
            for name, (_, _, file) in RUNS.items()
            if file is None or (options.data_dir / file).is_file()
        }
        if (options.data_dir / "ml-100k.zip").is_file():
            by_hand = [str(ROOT / "benchmarks" / "by_hand.py"), str(options.data_dir / "ml-100k.zip")]
            commands = {"by hand": [*by_hand, str(rounds or 100)], **commands}
        chosen = [name for name in commands if name in (options.only or commands)]
        turns: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
        for number in range(1 if options.quick else options.repeat + 1):
            for name in chosen:
                end = [] if name == "by hand" else ["--out", str(Path(place) / f"{name}-{number}")]
                turns[name].append(turn([*commands[name], *end]))
    best = {name: min(found[1:] or found, key=lambda one: one["all"]) for name, found in turns.items()}
    print(f"{'CPU seconds':<18}" + "".join(f"{name:>10}" for name in best))
    for part in (*PARTS, "all", "first round at"):
        print(f"{part:<18}" + "".join(f"{one.get(part, 0.0):>10.2f}" for one in best.values()))
    speed = {name: one["clients"] / (one["kernel"] + one["rounds"]) for name, one in best.items()}
    share = {name: one["kernel"] / (one["kernel"] + one["rounds"]) for name, one in best.items()}
    print(f"{'clients/s':<18}" + "".join(f"{value:>10,.0f}" for value in speed.values()))
    print(f"{'of the kernel':<18}" + "".join(f"{value:>10.0%}" for value in share.values()))
    print(f"{'peak MB':<18}" + "".join(f"{one['MB']:>10.0f}" for one in best.values()))


if __name__ == "__main__":
    main()
