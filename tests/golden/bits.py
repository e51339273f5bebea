"""Whether another commit comes to the same bits on this machine: every tensor, metric, release and event of the cases.

    python -m tests.golden.bits 18879c3                  this tree against a commit, all cases
    python -m tests.golden.bits 18879c3 fedmf fcucr      those whose case begins so

The other commit is checked out into a temporary folder and runs the experiments of this tree's cases. Metrics are
compared as values wherever they stand: rows may come in another order, columns under other names, and new rows may be
there. What has another name now is told in `RENAMED`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.export.worlds import student
from tests.golden.cases import cases, ready

ROOT = Path(__file__).resolve().parents[2]
RENAMED: Mapping[str, str] = {}
"""What was called otherwise in the other commit, by its beginning: {"tensor model/shared.": "tensor model/server."}."""


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """A work tree of a commit, for the length of a block."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--detach", "--quiet", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def started(tree: Path, cache: Path) -> subprocess.Popen[str]:
    """The program that runs jobs, with a tree's code and fleet."""
    environment = os.environ | {"PYTHONPATH": str(tree), "EDGEFR_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("values.py"))]
    return subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def told(process: subprocess.Popen[str], jobs: Mapping[str, list[str]]) -> IO[str]:
    """Give a program its jobs; its answers, a line each."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(jobs))
    process.stdin.close()
    return process.stdout


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of what differs between the answers of two trees to one job."""
    if "error" in before or "error" in after:
        return [f"before: {before.get('error', 'ran')}; now: {after.get('error', 'ran')}"]
    old = {_now(name): digest for name, digest in before["bits"].items()}
    new = dict(after["bits"])
    gone = Counter(old.pop("metrics")) - Counter(new.pop("metrics"))
    found = [f"{gone.total()} values of metrics are gone"] if gone else []
    return found + [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]


def _now(name: str) -> str:
    for old, new in RENAMED.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def main() -> int:
    """Compare case by case; 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("beginnings", nargs="*", default=[""])
    asked = parser.parse_args()
    chosen = [case for case in cases() if case.startswith(tuple(asked.beginnings or [""]))]
    jobs = {case: ready(cases()[case], student()) for case in chosen}
    same = 0
    with tempfile.TemporaryDirectory() as place, checked_out(asked.commit, Path(place) / "tree") as other:
        programs = [started(tree, Path(place) / f"cache-{n}") for n, tree in enumerate((other, ROOT))]
        for lines in zip(*(told(program, jobs) for program in programs), strict=True):
            before, after = map(json.loads, lines)
            names = differing(before, after)
            same += not names
            print(f"{'DIFFERS' if names else 'same   '}  {after['case']}  {', '.join(names[:6])}", flush=True)
        ended = [program.wait() for program in programs]
    print(f"{same} of {len(jobs)} cases are the same bit for bit")
    return int(same < len(jobs) or any(ended))


if __name__ == "__main__":
    sys.exit(main())
