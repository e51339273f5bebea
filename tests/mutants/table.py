"""Write the table of planted faults: `python -m tests.mutants.table`."""

from collections.abc import Sequence
from pathlib import Path

from tests.mutants.faults import FAULTS
from tests.mutants.planted import Fault

README = Path(__file__).with_name("README.md")
HEAD = """# Planted faults

Each of these faults was planted in a copy of the source, and the test named beside it failed there. A fault is a text
that occurs once in a file, and what stands in its place (`in_*.py`). `pytest -m slow tests/mutants` plants them all;
that each still fits the source is asked by every `pytest`. This page is written by `python -m tests.mutants.table`.

{count} faults:

| fault | file | caught by |
|---|---|---|
"""


def table(faults: Sequence[Fault]) -> str:
    """Return the page."""
    rows = (f"| {fault.name} | `{fault.file}` | `{fault.caught_by.removeprefix('tests/')}` |\n" for fault in faults)
    return HEAD.format(count=len(faults)) + "".join(rows)


if __name__ == "__main__":
    README.write_text(table(FAULTS), encoding="utf-8")
