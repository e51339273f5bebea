"""Make the golden values anew, or only those of cases that have none:

    python -m tests.golden.make --missing       new methods, strategies, protocols
    python -m tests.golden.make                 all of them
    python -m tests.golden.make fedmf fcucr     those whose case begins so

Values are made anew only where a result has to move: the commit that does it says why. They are kept if this
processor comes to the same ones without its widest instructions: half of what is let, for others differ by more.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tests.golden.cases import cases, combinations, ready
from tests.golden.kept import keep, kept
from tests.golden.values import TOLERANCE, Values, differences, run, without_references

WHOLE = ("fedmf, ", "transfr mlp, ")
"""The cases that keep the values of references too: those with these beginnings, this end."""


def values(case: str, student: Path, folder: Path) -> Values:
    """What a case comes to now."""
    found = run(ready(combinations()[case], student), folder)
    whole = case.startswith(WHOLE) and case.endswith(", none, paper")
    return found if whole else without_references(found)


NARROW = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
"""How a process is told to compute as an older processor would."""


@contextmanager
def older() -> Iterator[ProcessPoolExecutor]:
    """Yield a process that computes as an older processor would."""
    known = {name: os.environ.get(name) for name in NARROW}
    os.environ |= NARROW
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        other.submit(os.getpid).result()  # it has its surroundings now
        for name, value in known.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        yield other


def agreed(case: str, student: Path, folder: Path, other: ProcessPoolExecutor) -> Values:
    """What a case comes to now; ends the program where an older processor comes to something else."""
    elsewhere = other.submit(values, case, student, folder / "older")
    found = values(case, student, folder / "own")
    lines = differences(elsewhere.result(), found, within=TOLERANCE / 2)
    if lines:
        raise SystemExit("\n".join([f"{case}: processors do not agree, so nothing is kept:", *lines]))
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("beginnings", nargs="*")
    parser.add_argument("--missing", action="store_true")
    asked = parser.parse_args()
    known = {case: found for case, found in kept().items() if case in cases()}
    from tests.export.worlds import student

    with tempfile.TemporaryDirectory() as place, older() as other:
        os.environ["EDGEFR_CACHE"] = f"{place}/cache"
        for number, case in enumerate(cases()):
            new = case not in known if asked.missing else case.startswith(tuple(asked.beginnings or [""]))
            if new:
                known[case] = agreed(case, student(), Path(place) / str(number), other)
                print(case, flush=True)
    keep(known)


if __name__ == "__main__":
    main()
