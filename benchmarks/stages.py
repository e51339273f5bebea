"""CPU seconds of the default run by what it says that it is doing, the first time on a machine and every time after it.

    python benchmarks/stages.py [--set KEY=VALUE ...]

Both runs are made in a process of their own and with an empty cache in a temporary folder, which the second one finds.
CPU seconds are the process's and its children's. What is done before the first word is `imports, data`; what a stage
says last is charged with all up to the next word.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import edgefr

FIRST = "imports, data"


def cpu() -> float:
    """Return the CPU seconds of this process and its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def stages(out: Path, overrides: list[str]) -> dict[str, float]:
    """Make a run; return CPU seconds by stage, in the order in which they were first heard of."""
    spent, now, since = {FIRST: 0.0}, FIRST, 0.0

    def heard(stage: str, done: int, total: int, note: str) -> None:
        nonlocal now, since
        at = cpu()
        spent[now] += at - since
        since, now = at, f"{stage}, {note}" if stage == "export" and note else stage
        spent.setdefault(now, 0.0)

    edgefr.simulate(edgefr.load_experiment(overrides=overrides), out=out, progress=heard)
    spent[now] += cpu() - since
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one field of the run")
    parser.add_argument("--out", type=Path, help="make one run there, and print it as JSON")
    options = parser.parse_args()
    if options.out is not None:
        print(json.dumps(stages(options.out, options.set)))
        return
    with tempfile.TemporaryDirectory() as place:
        changes = [word for text in options.set for word in ("--set", text)]
        found = []
        for name in ("first", "after"):
            command = [sys.executable, __file__, "--out", str(Path(place) / name), *changes]
            cache = {**os.environ, "EDGEFR_CACHE": str(Path(place) / "cache")}
            done = subprocess.run(command, env=cache, check=True, stdout=subprocess.PIPE, encoding="utf-8")
            found.append(json.loads(done.stdout.splitlines()[-1]))
    first, after = found
    print(f"{'CPU seconds':<44}{'first time':>12}{'after it':>10}")
    for stage in first | after:
        print(f"{stage:<44}{first.get(stage, 0.0):>12.1f}{after.get(stage, 0.0):>10.1f}")
    print(f"{'all':<44}{sum(first.values()):>12.1f}{sum(after.values()):>10.1f}")


if __name__ == "__main__":
    main()
