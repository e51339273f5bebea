"""Pages are written: of a run, of several runs beside each other, of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefr.report.web.beside import runs_page
from edgefr.report.web.facts import Facts
from edgefr.report.web.page import run_page
from privacy.errors import InputError
from privacy.files import write_atomic

FILE = "report.html"
MOST_RUNS = 24
"""Runs that one page can show beside each other."""


def write_report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of a run, of a folder with a run per seed, of a sweep, or of several runs beside each other.

    `out`: the file (default: report.html in the folder; of several, in the current one, where none may be). Raises
    `InputError` for a folder that is none of these, and for what cannot be written.
    """
    try:
        return _write(paths, out)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        where = ", ".join(str(path) for path in paths)
        what = f"the summary.json of {where} is not of the form that a page is made of"
        raise InputError(f"{what} ({type(error).__name__}: {error}); run the experiment again") from error


def _write(paths: Sequence[Path], out: Path | None) -> Path:
    first, several = paths[0], len(paths) > 1
    if not several and _is_sweep(first):
        from edgefr.sweeps.page import write_sweep

        return write_sweep(first, out)
    runs = [run for path in paths for run in _runs(path)]
    if len(runs) > MOST_RUNS:
        raise InputError(f"one page shows {MOST_RUNS} runs at most, and these are {len(runs)}; name fewer")
    if several:
        return write_runs(runs, out or _free(Path(FILE)))
    return write_page(Facts.read(first), out) if runs == [first] else write_runs(runs, out or first / FILE)


def write_page(facts: Facts, out: Path | None = None) -> Path:
    """Write the page of one run (default: into its folder)."""
    return write_atomic(out or facts.path / FILE, run_page(facts))


def write_runs(paths: Sequence[Path], out: Path) -> Path:
    """Write one page of several finished runs. Raises `InputError` for a folder that is none."""
    return write_atomic(out, runs_page([Facts.read(path) for path in paths]))


def _is_sweep(path: Path) -> bool:
    from edgefr.sweeps.plan import RECORD

    return (path / RECORD).is_file()


def _runs(path: Path) -> list[Path]:
    """Return the run in a folder, or those of its seeds. Raises `InputError` for a sweep."""
    from edgefr.pipeline import SEEDS

    if _is_sweep(path):
        raise InputError(f"{path} is a sweep, which has a page of its own: give it alone, or name runs in {path}/runs")
    seeds = sorted(summary.parent for summary in path.glob("seed-*/summary.json"))
    return seeds if (path / SEEDS).is_file() and seeds else [path]


def _free(path: Path) -> Path:
    if path.exists():
        raise InputError(f"{path} is there already; name another file with --out (nothing was changed)")
    return path
