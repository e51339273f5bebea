"""What a run over sessions adds to a summary: repeats and new items apart, probabilities, what first sessions keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefr.report.layout import Sheet

if TYPE_CHECKING:
    from edgefr.streaming import Streaming


def summarise_sessions(sim: Streaming) -> dict[str, Any]:
    """The section `sessions` of a summary.

    `groups`: test metrics by stage and reference on targets that are repeats ("seen") and on new ones. `first_session`:
    {metric: value per measured round} of every client's first session, empty unless it was asked for. `knowledge`: the
    server's prototypes at the end.
    """
    from edgefr.streaming import FIRST

    curve: dict[str, list[float]] = {}
    for row in sim.measured.rows:
        if row["split"] == FIRST:
            curve.setdefault(row["metric"], []).append(row["value"])
    transfer = sim.federation.transfer
    base = None if transfer is None else transfer.base
    return {
        "stream": sim.stream,
        "rounds": sim.round,
        "best_round": sim.best_round,
        "statistics": sim.sessions.statistics(),
        "groups": sim.groups,
        "probabilities": sim.probabilities(),
        "first_session": curve,
        "knowledge": None
        if base is None
        else {"prototypes": len(base), "refused": base.refused, "answers_of_one_client": base.lone},
    }


def group_table(summary: dict[str, Any]) -> Sheet:
    """Repeats and new items apart: a mean over both hides which of them was found."""
    found = summary["sessions"]["groups"]
    names = [name for name in next(iter(found.values()))["seen"] if name.startswith(("HR", "NDCG"))]
    rows = [
        {"targets": stage} | {f"{name}\n{group}": f"{groups[group][name]:.4f}" for group in groups for name in names}
        for stage, groups in found.items()
    ]
    counts = {group: values["users"] for group, values in next(iter(found.values())).items()}
    return Sheet(
        f"repeats and new items, best round {summary['sessions']['best_round']}",
        rows,
        words=["targets"],
        caption=f"{counts['seen']} targets the user had had, {counts['new']} it had not; 1+sampled",
        rules=[0],
        bold=[0],
    )
