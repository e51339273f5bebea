"""The report of a finished sweep is written into its folder."""

from __future__ import annotations

from collections.abc import Sequence

from edgefr.report.pages import Report, comma_separated
from edgefr.studies.sweeps.report import _run_record, about, answers, is_private, table, tradeoff
from edgefr.studies.sweeps.results import Entry, results
from edgefr.studies.sweeps.run import Sweep
from edgefr.studies.sweeps.tradeoff import groups
from privacy.files import write_atomic, write_json


def report(sweep: Sweep, entries: Sequence[Entry], metric: str | None = None) -> Report:
    """Write everything there is to say about the entries into the sweep's folder.

    `metric`: the test metric that is utility (none: the first NDCG).
    """
    from edgefr.studies.sweeps.page import write_sweep

    folder, plan = sweep.folder, sweep.plan
    lines = about(plan.record(), entries)
    speaking = [entry for entry in entries if sweep.speaks(entry)]
    found = results(speaking)
    records = [_run_record(entry, sweep) for entry in entries]
    files = [write_atomic(folder / "runs.csv", comma_separated(records))]
    pages = [table(found, metric)] if found else []
    compared = groups(found, metric)
    if compared and is_private([axis.field for axis in plan.ask.axes]):
        pages.append(tradeoff(compared))
        files.append(write_json(folder / "tradeoff.json", answers(compared)))
    for page in pages:
        files += page.write(folder, lines)
    files.append(write_sweep(folder, metric=metric))
    failures = {str(entry.path): entry.problem for entry in entries if entry.problem is not None}
    opened = [record | {"folder": str(folder / record["folder"])} for record in records]  # from where we are
    return Report(pages, files, failures, records=opened)
