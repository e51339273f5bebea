"""One page of a run, of its seeds, of a sweep, or of several runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefr.report.web.page import run_page
from edgefr.simulation.runs.layout import SEEDS
from edgefr.simulation.summary.pages import FILE, MOST_RUNS, facts_of, write_runs
from edgefr.studies.sweeps.page import write_sweep
from edgefr.studies.sweeps.plan import RECORD
from edgefr.studies.tradeoffs.page import write_tradeoff
from privacy.errors import InputError
from privacy.files import write_atomic


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
    if not several and (first / RECORD.name).is_file():
        return (write_tradeoff if "privacy" in RECORD.read(first) else write_sweep)(first, out)
    runs = [run for path in paths for run in _runs(path)]
    if len(runs) > MOST_RUNS:
        raise InputError(f"one page shows {MOST_RUNS} runs at most, and these are {len(runs)}; name fewer")
    if not several:
        place = out or first / FILE
        return write_atomic(place, run_page(facts_of(first))) if runs == [first] else write_runs(runs, place)
    if out is None and Path(FILE).exists():
        raise InputError(f"{FILE} is there already; name another file with --out (nothing was changed)")
    return write_runs(runs, out or Path(FILE))


def _runs(path: Path) -> list[Path]:
    """Return the run in a folder, or those of its seeds. Raises `InputError` for a sweep."""
    if (path / RECORD.name).is_file():
        raise InputError(f"{path} is a sweep, which has a page of its own: give it alone, or name runs in {path}/runs")
    seeds = sorted(summary.parent for summary in path.glob("seed-*/summary.json"))
    return seeds if (path / SEEDS).is_file() and seeds else [path]
