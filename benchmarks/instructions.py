"""Instructions of a client of FedMF, edgefr's and those of a loop in numpy, where a machine is too busy to time them.

    python benchmarks/instructions.py --data-dir DIR [--way edgefr|numpy] [--work base|small]

Counted by `valgrind --tool=callgrind`, which has to be installed: of a process that does three rounds, less one that
does one, so that imports and compiling are none of them. valgrind knows AVX2 and no AVX-512: the kernel is compiled
for haswell. A count takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import closed_form
import numpy as np
import torch
from engine import small_clients

from edge.sampling import Sampler
from edgefr.data import datasets as data
from edgefr.data.splits.blocks import Blocks
from edgefr.engine.aggregate import ReleaseTerms
from edgefr.engine.compiled import dispatch as formed
from edgefr.engine.work import LocalWork
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings

SHARD = 64
HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+sse4.2,+bmi,+bmi2,+popcnt"}


def rounds(way: str, kind: str, data_dir: Path | None, times: int) -> int:
    """Let everybody train so many times; return how many clients they are."""
    torch.set_num_threads(1)
    if kind == "base":
        blocks = Blocks()
        block = blocks.apply(blocks.restrict(data.load("ml-100k", data_dir)), 0)[0]
        train, items, batch = block.train, len(block.pool), 512
    else:
        train, items, batch = small_clients(2000, 3000), 3000, 8
    program = FedMF(FedMFSettings(), items, 1)
    sampler = Sampler(train, np.arange(items), items, 4, batch, seed=0)
    work = LocalWork(program, program.phases, sampler, train, 1, torch.device("cpu"))
    clients = np.flatnonzero(train.counts > 0)
    shared, private = program.init_shared(0), program.init_private(0, torch.from_numpy(clients))
    terms = ReleaseTerms(clip=None, norm="l2", by_size=False, count_everyone=False)
    for _ in range(times):
        if way == "numpy":
            closed_form.LOOPS["fedmf"](work, shared, private, clients)
            continue
        for at in np.split(np.arange(len(clients)), range(SHARD, len(clients), SHARD)):
            formed.released(work, terms, shared, {n: v[at] for n, v in private.items()}, clients[at])
    return len(clients)


def counted(arguments: list[str], times: int) -> tuple[int, int]:
    """Return instructions of a process that does so many rounds, and its clients."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, __file__, *arguments]
    done = subprocess.run(
        [*command, "--times", str(times)],
        env={**os.environ, **HASWELL},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None
    return int(found[1]), int(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--way", choices=["edgefr", "numpy"])
    parser.add_argument("--work", choices=["base", "small"])
    parser.add_argument("--times", type=int, help="do so many rounds, and count nothing")
    options = parser.parse_args()
    if options.times is not None:
        print(rounds(options.way, options.work, options.data_dir, options.times))
        return
    where = [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
    for kind in ("base", "small") if options.work is None else (options.work,):
        for way in ("edgefr", "numpy") if options.way is None else (options.way,):
            arguments = ["--way", way, "--work", kind, *where]
            subprocess.run(  # compiles for what valgrind knows
                [sys.executable, __file__, *arguments, "--times", "1"],
                env={**os.environ, **HASWELL},
                check=True,
                capture_output=True,
            )
            (one, clients), (three, _) = counted(arguments, 1), counted(arguments, 3)
            print(f"{kind}, {way}: {(three - one) / 2 / clients:,.0f} instructions a client")


if __name__ == "__main__":
    main()
