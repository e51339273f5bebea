"""`reproduce`: run a paper's tables and figures again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from edgefr.config.arguments import at_least_one, checked
from edgefr.config.progress import watched
from edgefr.experiment.experiment import Change
from edgefr.fleet import load_fleet
from edgefr.report.pages import Report
from edgefr.studies.jobs import Where
from privacy.errors import unknown
from privacy.progress import Progress


@watched()
@checked
def reproduce(
    paper: str,
    exhibits: Sequence[str] = ("table-2",),
    *,
    data: Sequence[str] | None = None,
    data_dir: str | Path | None = None,
    seeds: int = 5,
    fidelity: str = "released",
    stream: str | None = None,
    rows: Sequence[str] = (),
    backbones: Sequence[str] = (),
    overrides: Sequence[str] = (),
    workers: int = 1,
    ray_address: str | None = None,
    out: str | Path | None = None,
    devices: str | Path = "devices.yaml",
    progress: Progress | None = None,
    warn: Callable[[str], None] = print,
) -> Report:
    """Run tables and figures of a paper again, beside the published numbers.

    `paper`: f3crec, fcucr, fedcar, transfr or leaderboard. `exhibits`: "table-2", "figure-3", .... `data`: data sets
    (None: those of each table). Every cell is run with seeds 0, 1, ... (`seeds` of them). `fidelity`: released or
    paper; `stream` (fcucr): one-pass or cyclic. `rows` and `backbones`: a part of each table (none: all). `overrides`
    go over every recipe. `out` (default: runs/<paper>) keeps finished runs: the same call goes on. `ray_address`: of a
    Ray cluster that does the runs. `warn` is told of data sets that are missing. Raises `InputError` for unknown names
    and where no data are.

    Example: ``edgefr.reproduce("f3crec", ["table-2"], data=["ml-100k"], seeds=1).tables["table-2"]``
    """
    from edgefr.studies.reproductions.cells import FIDELITIES
    from edgefr.studies.reproductions.exhibits import reproduce as run
    from edgefr.studies.reproductions.page import command
    from edgefr.studies.reproductions.papers import PAPERS
    from edgefr.studies.reproductions.runs import ideal_fleet

    at_least_one(seeds=seeds, workers=workers)
    entry = PAPERS[paper]
    for what, names, known in (
        (f"exhibit of {entry.title}", exhibits, entry.exhibits),
        (f"data set of {entry.title}", data or (), entry.data_sets),
        ("fidelity", [fidelity], FIDELITIES),
        (f"stream of {entry.title}", [] if stream is None else [stream], entry.streams),
    ):
        for name in names:
            if name not in known:
                raise unknown(what, name, known)
    extra = {change.field: change.value for change in map(Change.parse, overrides)}
    ask = entry.ask(fidelity, range(seeds), extra, None if data_dir is None else Path(data_dir), stream)
    ask = replace(ask, rows=tuple(rows), backbones=tuple(backbones))
    chosen = {name: entry.exhibits[name] for name in exhibits}
    fleet = load_fleet(devices, ideal_fleet())
    place = Path(out or Path("runs") / paper)
    named = list(dict.fromkeys(data)) if data else None
    options = {"data": named, "seeds": seeds, "fidelity": fidelity, "stream": stream}
    told = command(paper, exhibits, options | {"rows": rows, "backbones": backbones, "set": overrides})
    return run(ask, chosen, named, fleet, place, Where(workers, ray_address), progress, warn, (entry.title, told))
