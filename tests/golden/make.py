"""Make the golden values anew, or only those of cases that have none:

    python -m tests.golden.make --missing       new methods, strategies, protocols
    python -m tests.golden.make                 all of them
    python -m tests.golden.make fedmf fcucr     those whose case begins so

Values are made anew only where a result has to move: the commit that does it says why.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.golden.cases import cases, ready
from tests.golden.kept import keep, kept
from tests.golden.values import Values, run, without_references

WHOLE = ("fedmf, ", "transfr mlp, ")
"""The cases that keep the values of references too: those with these beginnings, this end."""


def values(case: str, student: Path, folder: Path) -> Values:
    """What a case comes to now."""
    found = run(ready(cases()[case], student), folder)
    whole = case.startswith(WHOLE) and case.endswith(", none, paper")
    return found if whole else without_references(found)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("beginnings", nargs="*")
    parser.add_argument("--missing", action="store_true")
    asked = parser.parse_args()
    known = {case: found for case, found in kept().items() if case in cases()}
    from tests.export.worlds import student

    with tempfile.TemporaryDirectory() as place:
        os.environ["EDGEFR_CACHE"] = f"{place}/cache"
        for number, case in enumerate(cases()):
            new = case not in known if asked.missing else case.startswith(tuple(asked.beginnings or [""]))
            if new:
                known[case] = values(case, student(), Path(place) / str(number))
                print(case, flush=True)
    keep(known)


if __name__ == "__main__":
    main()
