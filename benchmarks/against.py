"""Two checkouts of edgefr on this machine, in alternation: whether the second is slower or bigger than the first.

    python benchmarks/against.py [--pairs N] OLD NEW simulate --data ml-100k --set method=fedmf --set rounds=20

Both run the same experiment and take turns: a round of one, the same round of the other. A turn ends where the
next round begins, so it holds what lies between rounds too: evaluation, who takes part, the clock. Of each pair of
turns the ratio new / old of CPU seconds (user and system) is taken; medians and quartiles are printed, first rounds
left out. Other work on the machine meets both alike. Clients per second are the cohort's by those CPU seconds. Memory
is each process's peak.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TextIO

GO = "go\n"
Said = dict[str, list[tuple[float, float]]]
"""What a run said, by kind: CPU seconds, and clients (of a round) or MB (at its end)."""


def used() -> float:
    """CPU seconds of this process so far."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    return now.ru_utime + now.ru_stime


def in_turns(real: Callable[..., None], out: TextIO) -> Callable[..., None]:
    """Return `Federation.round` that waits until it is told to go, and says what it took, and what the turn took."""
    turn = 0.0

    def round_(self: Any, number: int, cohort: Any, *rest: Any) -> None:
        nonlocal turn
        print("turn", used() - turn if turn else 0, 0, file=out, flush=True)
        sys.stdin.readline()
        turn = used()
        before = self.counters.clients
        real(self, number, cohort, *rest)
        print("round", used() - turn, self.counters.clients - before, file=out, flush=True)

    return round_


def work(command: list[str]) -> None:
    """Run edgefr's command line in this process, its rounds in turns."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from edgefr.cli.app import main as edgefr
    from edgefr.engine.federation import Federation

    Federation.round = in_turns(Federation.round, out)  # type: ignore[method-assign]
    sys.argv = ["edgefr", *command]
    try:
        edgefr()
    finally:
        print("end", used(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=out, flush=True)


class Checkout:
    """This is one of the two: its process, and what that said so far."""

    def __init__(self, tree: Path, command: list[str], out: str):
        self.tree = tree
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--work", *command, "--out", out],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=tree,
            env=environment,
        )
        self.said: Said = defaultdict(list)
        self.going = True
        self.listen()

    def listen(self) -> None:
        """Read until it waits for its next round, or has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, *numbers = line.split()
            seconds, other = map(float, numbers)
            if kind != "turn" or seconds:
                self.said[kind].append((seconds, other))
            if kind == "turn":
                return
        self.going = False
        if self.process.wait():
            raise SystemExit(f"the run in {self.tree} ended with {self.process.returncode}")

    def go(self) -> None:
        """Let it do a round and what follows it, if it is not through."""
        if self.going:
            assert self.process.stdin is not None
            self.process.stdin.write(GO)
            self.process.stdin.flush()
            self.listen()


def together(trees: list[Path], command: list[str]) -> list[Said]:
    """Run both checkouts in turns and return what they said."""
    with tempfile.TemporaryDirectory() as folder:
        both = [Checkout(tree.resolve(), command, f"{folder}/{number}") for number, tree in enumerate(trees)]
        order = [*both]
        while any(each.going for each in both):
            for each in order:
                each.go()
            order.reverse()  # neither is always the first
    return [each.said for each in both]


def report(found: list[list[Said]]) -> None:
    """Print the ratios of all pairs of runs."""
    for kind in ("round", "turn"):
        pairs = [
            (old, new) for first, second in found for old, new in zip(first[kind][1:], second[kind][1:], strict=False)
        ]
        low, middle, high = quantiles([new / old for (old, _), (new, _) in pairs], n=4)
        seconds = [median(side) for side in zip(*((old, new) for (old, _), (new, _) in pairs), strict=True)]
        line = f"{kind}: new / old {middle:.3f} ({low:.3f} to {high:.3f}, {len(pairs)} pairs)"
        print(f"{line}, {1e3 * seconds[0]:.1f} and {1e3 * seconds[1]:.1f} ms of CPU")
        if kind == "round":
            speeds = [median(c / s for s, c in each) for each in zip(*pairs, strict=True)]
            print(f"clients per CPU second: {speeds[0]:,.0f} and {speeds[1]:,.0f}")
    for number, what in enumerate(("CPU seconds of the whole run", "peak MB")):
        values = [[said["end"][0][number] for said in pair] for pair in found]
        old, new = (median(side) for side in zip(*values, strict=True))
        print(f"{what}: {old:.1f} and {new:.1f}, new / old {median(b / a for a, b in values):.3f}")


def main() -> None:
    """Run the pairs and print what they came to."""
    if sys.argv[1:2] == ["--work"]:
        return work(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1, help="how often both are run")
    parser.add_argument("trees", type=Path, nargs=2, metavar="TREE", help="the older one, then the newer")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    report([together(asked.trees, asked.command) for _ in range(asked.pairs)])


if __name__ == "__main__":
    main()
