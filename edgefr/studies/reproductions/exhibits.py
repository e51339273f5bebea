"""`edgefr reproduce` makes the runs that tables and figures need, each once, then their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from edgefr.data import datasets
from edgefr.fleet import FleetFile
from edgefr.report.over_seeds import versions
from edgefr.report.pages import Page, Record, Report
from edgefr.simulation.runs.run import Run
from edgefr.studies.jobs import HERE, Where
from edgefr.studies.reproductions.cells import FIDELITIES, Ask, Cell, FinishedRuns, Values
from edgefr.studies.reproductions.page import Reproduction, write_reproduction
from edgefr.studies.reproductions.published import specification
from edgefr.studies.reproductions.runs import Job, JobSetting, run_all
from edgefr.studies.reproductions.tables import Made, draw
from privacy.errors import InputError, unknown
from privacy.progress import Progress


@dataclass(frozen=True)
class Exhibit:
    """An exhibit is a table or figure. `name`: "table-2", "figure-3", ...; `data`: the paper's own data sets for it.

    `make(ask, found, data sets, progress)` returns what its page is made of; `notes`: how to read it, then what
    `last(data sets)` says; `grid`: of a figure, panels beside each other, width, and height of a row.
    """

    name: str
    title: str
    data: Sequence[str]
    notes: Sequence[str]
    cells: Callable[[Ask, str], Iterable[Cell]]
    make: Callable[[Ask, FinishedRuns, Sequence[str], Progress | None], Made]
    last: Callable[[Sequence[str]], Sequence[str]] = lambda data: ()
    grid: tuple[int, float, float] | None = None

    @classmethod
    def of(cls, paper: str, name: str, cells: Any, make: Any, data: Sequence[str] = (), **more: Any) -> Exhibit:
        """Return an exhibit by what the paper's specification says of it, and what is made of its runs."""
        said = specification(paper)
        own = said["exhibits"][name]
        notes = [said["notes"][note] for note in own["notes"]]
        return cls(name, own["title"], own.get("data", data), notes, cells, make, **more)

    def page(self, ask: Ask, found: FinishedRuns, data: Sequence[str], progress: Progress | None = None) -> Page:
        """Return its page."""
        made = self.make(ask, found, data, progress)
        figure = None if self.grid is None else draw(made.panels, *self.grid)
        notes = [*made.said, *self.notes, *self.last(data)]
        return Page(self.name, self.title, made.sheets, made.records, notes, figure)


def by_data(
    make: Callable[[Ask, FinishedRuns, str], Made],
) -> Callable[[Ask, FinishedRuns, Sequence[str], Progress | None], Made]:
    """Return what makes a page data set by data set, of what makes the part of one."""
    return lambda ask, found, data, progress: sum((make(ask, found, name) for name in data), Made())


def rows_alone(rows: Iterable[str], within: str = "") -> Callable[[Ask, str], Iterable[Cell]]:
    """Return what says that the cells of an exhibit are these rows."""
    return lambda ask, data: ask.cells(data, rows, within).values()


@dataclass(frozen=True)
class Paper:
    """A paper has exhibits over data sets, and rows: `kind` is their cells.

    `streams`: how often a client may meet a session; none where the paper has no sessions. `more`: further data sets
    that its recipes fit, of which it prints nothing; `others`: all fit.
    """

    name: str
    kind: type[Cell]
    listed: Sequence[Exhibit]
    streams: Sequence[str] = ()
    more: Sequence[str] = ()
    others: bool = False

    @property
    def title(self) -> str:
        """Return what pages call it."""
        return str(specification(self.name)["title"])

    @property
    def exhibits(self) -> dict[str, Exhibit]:
        """Return its tables and figures by name."""
        return {exhibit.name: exhibit for exhibit in self.listed}

    @property
    def data_sets(self) -> Sequence[str]:
        """Return names of data sets that its exhibits can be made of: the paper's, and perhaps all."""
        own = [data for exhibit in self.listed for data in exhibit.data]
        return tuple(dict.fromkeys([*own, *self.more, *(datasets.names() if self.others else ())]))

    def ask(
        self,
        fidelity: str = FIDELITIES[0],
        seeds: Sequence[int] = (0,),
        extra: Values | None = None,
        data_dir: Path | None = None,
        stream: str | None = None,
    ) -> Ask:
        """Return what is asked for of this paper."""
        return Ask(self.kind, self.kind.FIDELITY or fidelity, seeds, extra or {}, data_dir, stream)


def reproduce(
    ask: Ask,
    exhibits: Mapping[str, Exhibit],
    data: Sequence[str] | None,
    fleet: FleetFile,
    out: Path,
    where: Where = HERE,
    progress: Progress | None = None,
    warn: Callable[[str], None] = print,
    head: tuple[str, str] = ("", ""),
) -> Report:
    """Run what `exhibits` ("table-2": ...) need and is not there yet; write their pages into `out`.

    `data`: the data sets; None: those of the paper's table or figure. Finished runs are kept in `out/runs`, base blocks
    in `out/bases`: the same call goes on. `warn` is told of data sets whose archive is not there, and where to get it;
    `InputError` when there is none at all, and for one that is damaged. `head`: the paper's title and the command.
    """
    named = list(dict.fromkeys(name for key in exhibits for name in (data or exhibits[key].data)))
    there, missing = list[str](), list[str]()
    for name in named:
        try:
            datasets.load(name, ask.data_dir)
            there.append(name)
        except InputError as error:
            if "is not there" not in str(error) and "none is named" not in str(error):  # there, but damaged
                raise
            missing.append(str(error))
    if not there:
        raise InputError(missing[0])
    for line in missing:
        warn(f"left out: {line}")
    wanted = {key: [name for name in (data or exhibits[key].data) if name in there] for key in exhibits}
    check_chosen(ask, exhibits, wanted)
    every = {key: [c for n in names for c in exhibits[key].cells(ask, n)] for key, names in wanted.items()}
    chosen = {key: [c for c in dict.fromkeys(cells) if ask.has(c)] for key, cells in every.items()}
    cells = list(dict.fromkeys(c for own in chosen.values() for c in own))
    found, failures = _run(ask, cells, JobSetting(fleet, ask.data_dir, out / "bases"), out, where, progress)
    pages, files, told = [], [], list[list[str]]()
    for key, names in wanted.items():
        if names:
            left = {(c.row, c.title) for c in every[key]} - {(c.row, c.title) for c in chosen[key]}
            page = exhibits[key].page(ask, found, names, progress).without(left)
            pages.append(page)
            told.append(about(ask, found, chosen[key]))
            files += page.write(out, told[-1])
    warnings = _unfinished(ask, found, cells)
    records: list[Record] = [
        {"cell": cell.label, "data": cell.data, "seed": seed, **run.summary["metrics"], "folder": str(run.path)}
        for cell, runs in found.runs.items()
        for seed, run in runs.items()
    ]
    asked = len(cells) * len(ask.seeds)
    files.append(write_reproduction(Reproduction(*head, pages, told, failures, len(records), asked), out))
    return Report(pages, files, failures, warnings, records)


def check_chosen(ask: Ask, exhibits: Mapping[str, Exhibit], wanted: Mapping[str, Sequence[str]]) -> None:
    """Raises `InputError` for rows and backbones that no table has, for a table without any, and for figures."""
    if not ask.part:
        return
    whole = replace(ask, rows=(), backbones=())
    cells = {key: [c for n in names for c in exhibits[key].cells(whole, n)] for key, names in wanted.items()}
    every = [cell for own in cells.values() for cell in own]
    for what, asked, there in (
        ("row", ask.rows, [cell.row for cell in every]),
        ("backbone", ask.backbones, [cell.backbone for cell in every if cell.backbone is not None]),
    ):
        for name in asked:
            if name not in there:
                raise unknown(f"{what} of {', '.join(exhibits)}", name, dict.fromkeys(there))
    for key, own in cells.items():
        if key.startswith("figure"):
            raise InputError(f"{key} is drawn of all of its rows; leave it out, or make it without --rows, --backbones")
        if own and not any(map(ask.has, own)):
            raise InputError(f"{key} has nothing of {', '.join(ask.part)}: leave it out")


def _run(
    ask: Ask, cells: Sequence[Cell], setting: JobSetting, out: Path, where: Where, progress: Progress | None
) -> tuple[FinishedRuns, dict[str, str]]:
    """Run every cell with every seed, a seed of all cells after another; return what is finished, what went wrong."""
    places = {out / "runs" / cell.folder(seed): (cell, seed) for seed in ask.seeds for cell in cells}
    jobs = [Job(cell.experiment(seed), place) for place, (cell, seed) in places.items()]
    done: dict[Path, Run] = {}
    failures: dict[str, str] = {}
    for job, run in run_all(jobs, setting, where, progress):
        if isinstance(run, Run):
            done[job.out] = run
        else:
            failures.setdefault(job.out.name, run)
    runs: dict[Cell, dict[int, Run]] = {cell: {} for cell in cells}
    for place, (cell, seed) in places.items():  # in the order of the request, not in that of finishing
        if place in done:
            runs[cell][seed] = done[place]
    summaries = {cell: {seed: run.summary for seed, run in by_seed.items()} for cell, by_seed in runs.items()}
    return FinishedRuns(summaries, runs), failures


def _unfinished(ask: Ask, found: FinishedRuns, cells: Sequence[Cell]) -> list[str]:
    counts = {cell: len(found.runs.get(cell, {})) for cell in cells}
    return [f"{c.label}: {n} of {len(ask.seeds)} seeds are done" for c, n in counts.items() if n < len(ask.seeds)]


def about(ask: Ask, found: FinishedRuns, cells: Sequence[Cell]) -> list[str]:
    """Say how a page's numbers were made: seeds, fidelity, protocol, recipe values, versions."""
    if not cells:  # nothing was run: the page's notes say it all
        return [f"versions: {', '.join(f'{name} {number}' for name, number in versions().items())}"]
    seeds = ", ".join(map(str, ask.seeds))
    lines = [f"seeds {seeds}; fidelity: {ask.fidelity}; everybody who is asked contributes (no drop-outs, no deadline)"]
    lines += [f"set by hand instead of by the recipe: {key} = {value}" for key, value in ask.extra.items()]
    if ask.part:
        said = {"rows": ask.rows, "backbones": ask.backbones}
        named = [f"{what} {', '.join(names)}" for what, names in said.items() if names]
        lines.append(f"a part of the table: {'; '.join(named)}")
    told: dict[str, dict[str, dict[str, None]]] = {}  # data set, text, rows; where rows differ, each line names its own
    for cell in cells:
        for summary in found.summaries.get(cell, {}).values():
            told.setdefault(cell.data, {}).setdefault(summary["protocol"], {})[cell.label] = None
    for name, texts in told.items():
        lines += [f"protocol, {name if len(texts) == 1 else ', '.join(of)}: {text}" for text, of in texts.items()]
    for c in cells:
        values = yaml.safe_dump(c.values, default_flow_style=True, width=10**6, sort_keys=False)
        lines.append(f"recipe, {c.label}: {values.strip().strip('{}')}")
    lines += [f"not finished: {line}" for line in _unfinished(ask, found, cells)]
    made_with = next((s["versions"] for c in cells for s in found.summaries.get(c, {}).values()), versions())
    return [*lines, f"versions: {', '.join(f'{name} {number}' for name, number in made_with.items())}"]
