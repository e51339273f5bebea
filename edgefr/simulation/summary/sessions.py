"""This sums up what a run over sessions came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgefr.report.small_groups import FEW, tellable

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running


def summarise_sessions(sim: Running) -> dict[str, Any]:
    """Return the section `sessions` of a summary.

    `groups`: test metrics by stage and reference on targets that are repeats ("seen") and on new ones; of targets that
    nobody has there is their number, 0, alone. `first_session`: {metric: value per measured round} of every client's
    first session, empty unless it was asked for. `knowledge`: the server's prototypes at the end.
    """
    from edgefr.engine.transfer import Transfer
    from edgefr.simulation.stages.sessions import FIRST, Met

    stage, results = sim.schedule[-1], sim.measured
    assert isinstance(stage, Met)
    assert sim.final is not None
    curve: dict[str, list[float]] = {}
    for row in results.rows:
        if row["on"] == FIRST:
            curve.setdefault(row["metric"], []).append(row["value"])
    transfer = sim.federation.transfer
    base = transfer.base if isinstance(transfer, Transfer) else None
    return {
        "stream": stage.protocol.stream,
        "rounds": sim.done[-1]["round"],
        "best_round": sim.done[-1]["best_round"],
        "statistics": stage.sessions.statistics(),
        "groups": {name: _apart(sim, name) for name in results.table()[stage.task.name]},
        "probabilities": stage.probabilities(sim, sim.final),
        "first_session": curve,
        "knowledge": None
        if base is None
        else {"prototypes": len(base), "refused": base.refused, "answers_of_one_client": base.lone},
    }


def _apart(sim: Running, stage: str) -> dict[str, dict[str, Any]]:
    """Test metrics of a stage on repeats ("seen") and on new targets, each with its number of users.

    Means over nobody are left out, a data set may have no repeats, and so is what would tell of a few users.
    """
    out: dict[str, dict[str, Any]] = {}
    for row in sim.measured.rows:
        if row["stage"] == stage and row["group"] in ("seen", "new"):
            group = out.setdefault(row["group"], {"users": row["users"]})
            group[row["metric"]] = row["value"]
    told = tellable([int(group["users"]) for group in out.values()])
    return {name: group if one else _few(group) for (name, group), one in zip(out.items(), told, strict=True)}


def _few(group: dict[str, float]) -> dict[str, Any]:
    return {"users": FEW if group["users"] else 0}
