"""A simulated run is trained anew without somebody, as exact unlearning: nothing of the person is in the result.

Users and items are numbered by their ids, and draws are keyed by these numbers, so the new run is bit for bit the run
of a data set that never had them. No state before their first round would do: who trains at all does so from the first
rounds on, and a run of seconds is cheaper than states of all rounds. The data of the others are released once more, so
their ledger goes on in the new run, and the old run is not served any more.

Owns: which run stands in for which. Does not own: training (`edgefr.simulation.simulate`), what is deleted of a person
(`edgefr.serving.forget`), whether it worked (`edgefr.studies.audits.reference_attack`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgefr.data import datasets
from edgefr.data.interactions import Dataset
from edgefr.fleet import load_fleet
from edgefr.simulation.bundle_checks import check_federated, wanted
from edgefr.simulation.runs.layout import PRIVATE, SIGNING_KEY
from edgefr.simulation.runs.lineage import Journal
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from edgefr.simulation.runs.successor import Successor, check_last, mark
from edgefr.simulation.simulate import Options, go, resume
from edgefr.simulation.summary.pages import FILE as PAGE
from privacy.errors import InputError
from privacy.progress import Progress


def retrain(
    run: Run,
    leaving: Sequence[str],
    out: Path | None = None,
    *,
    data: Dataset | None = None,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train a finished run anew in `out` (default: RUN-unlearned beside it) as if `leaving` had never been in it.

    Whoever has been forgotten before is left out too. Served rounds are not repeated, since their data are on devices:
    the new run is where simulation ends. What a kill left in `out` is gone on with, and a run that is there already is
    returned. `data`: the data set of a run whose data were handed over. Raises `InputError` before any work for a user
    who is not in the run, for others' releases over their budget, and where a server is at work.
    """
    check_federated(run.experiment, "training of clients to repeat")
    place = run.path.with_name(f"{run.path.resolve().name}-unlearned") if out is None else out
    with Journal.locked(run.path):
        check_last(run, place)
        new = Successor.without(run, leaving)
        if not run.experiment.total_rounds and not served_with(run, leaving):
            raise InputError("no round had data of who leaves, so the model has not learned from them: drop --unlearn")
        if (place / "experiment.yaml").exists():
            found = Successor.of(Run(place))
            if found is None or found.users != new.users:
                raise InputError(f"{place} already holds another run; choose another --out (nothing was changed)")
            if (place / "summary.json").exists():
                return Run.open(place)
            mark(run, place)
            return resume(place, data=data, data_dir=data_dir, bundles=_ships(run), progress=progress, warn=_silent)
        if Successor.of(Run(place)) is not None:
            Run(place).forget()  # what a kill left before its first file was whole
        fleet = load_fleet(run.path / "devices.yaml")
        asked = Options(data_dir, _ships(run), None, (run.path / PAGE).exists(), data)
        with Run.started(place) as begun:
            new.write(begun)
            key = run.path / PRIVATE / SIGNING_KEY
            if key.exists():  # so that a device counts on what it released, under a bundle of the same publisher
                shutil.copy2(key, begun.path / PRIVATE / SIGNING_KEY)
            mark(run, place)
            return go(begun, run.experiment, fleet, asked, progress)


def again(
    run: Run, out: Path, *, data: Dataset | None = None, data_dir: Path | None = None, progress: Progress | None = None
) -> Run:
    """Train a run that stands in for another once more in `out`, of the same data, from another seed."""
    e, stands = run.experiment, Successor.of(run)
    assert stands is not None
    if data is None:
        data = datasets.load(e.data, data_dir, e.seed, e.data_options, progress, stands.users)
    other = e.model_copy(update={"seed": (e.seed + 1) % 2**31})
    with Run.started(out) as begun:
        replace(stands, earlier=None).write(begun)
        asked = Options(data_dir, False, None, False, data)
        return go(begun, other, load_fleet(run.path / "devices.yaml"), asked, progress)


def served_with(run: Run, users: Sequence[str]) -> int:
    """Count the served rounds in which one of these users was asked."""
    who = {number for number, user in enumerate(open_model(run).model.names.users) if user in users}
    return sum(not who.isdisjoint((closed or opened).clients) for opened, closed in run.lineage.rounds)


def _ships(run: Run) -> bool:
    return (run.path / "bundles").is_dir() and wanted(run.experiment, None)


def _silent(line: str) -> None:
    """Say nothing: no checkpoints are kept, so there is none that could be damaged."""
