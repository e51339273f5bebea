"""A run is finished: the rounds that are left, what they came to, bundles, figures and the page."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgefr.data.splits.candidate_file import write_candidates
from edgefr.simulation.bundle_checks import only_recommends, unshippable
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.runs.keeper import keep_ledger
from edgefr.simulation.runs.run import Run
from privacy.machine import give_back, peak_mb
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.callbacks import Callback
    from edgefr.simulation.loop import Training


def finish_run(
    run: Run,
    training: Training,
    callbacks: Iterable[Callback] = (),
    bundles: bool = False,
    figures: bool = True,
    began: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Go through the rounds that are left, every stage after them, and all files of the run.

    `began` is when its time started.
    """
    from edgefr.metrics.settings import UNLEARNED
    from edgefr.report.figures import draw
    from edgefr.report.web.facts import Facts
    from edgefr.simulation.runs.saved_model import save_model
    from edgefr.simulation.summary.pages import write_page
    from edgefr.simulation.summary.summary import norms_of, summarise

    began = time.perf_counter() if began is None else began
    try:
        training.train(callbacks, progress)
        results = protocol_of(training.experiment).results(training)
        save_model(run, training)
        if training.saved:
            run.write_tensors("blocks", training.saved)
    finally:
        training.federation.backend.close()
    if training.prepared.sessions is not None:
        write_candidates(run.path / "candidates.parquet", training.prepared.dataset, training.prepared.splits["main"])
    run.write_metrics(training.measured.rows)
    final = training.measured.per_user([*training.stages, UNLEARNED])
    run.write_users(final, training.prepared.dataset.users)
    keep_ledger(run, training)
    if training.federation.plan.guarantees:
        run.write_norms(norms_of(training))
    shipped, why = _ship(run, progress) if bundles else ([], None)
    summary = summarise(training, results, time.perf_counter() - began, peak_mb() or 0.0, shipped)
    if why is not None:
        summary["no_bundles"] = why
    if shipped and (why := only_recommends(run.experiment)) is not None:
        summary["only_recommends"] = why
    if figures:
        give_back()  # what bundles took
        draw(run.path / "figures", training.measured.rows, summary)
        write_page(Facts(run.path, summary))
    run.write_summary(summary)


def _ship(run: Run, progress: Progress | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return the bundles of a run, a row per device class; or none, and why none can be made."""
    from edgefr.simulation.bundles import export_run
    from export.variants import NoBundle

    if (why := unshippable(run.experiment)) is not None:
        return [], why
    try:
        give_back()  # what rounds and their evaluation took: encoders are tried beside it
        return export_run(run, progress=progress), None
    except NoBundle as error:  # what a disk refuses is mended, and the run resumed
        return [], str(error)
