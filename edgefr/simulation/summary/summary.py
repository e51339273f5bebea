"""`summary.json` says what came out of a run, under which protocol, on what, and how far to trust it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgefr.engine.footprint import Travel
from edgefr.metrics.settings import CONTEXT, UNLEARNED_IN_CONTEXT
from edgefr.report.over_seeds import versions
from edgefr.report.verdict import Verdict
from edgefr.simulation.summary.fairness import with_fairness
from edgefr.simulation.summary.learning import learning
from privacy.example_plan import report_examples
from privacy.report import report as privacy_report
from privacy.setting_scope import unread_fields

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running

CENTRAL = "central reference: pools everybody's data; no federation, no privacy"


def summarise(
    sim: Running, results: dict[str, Any], seconds: float, peak_rss_mb: float, bundles: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the whole summary as JSON values.

    `results`: what its protocol says of the run, which may ask the model; `seconds`: wall time of the run; `bundles`:
    one row per device class.
    """
    e, federated = sim.experiment, sim.experiment.row.central is None
    engine, travel = _engine(sim, seconds, peak_rss_mb), _travel(sim) if federated else {}
    fleet = with_fairness(sim.fleet.summary(), sim) | {"travel": travel} if federated else {}
    return {
        "schema": "edgefr.summary/1",
        "experiment": e.name,
        "method": e.method,
        "backbone": e.row.name,
        "strategy": e.strategy,
        "fidelity": e.fidelity,
        "data": e.data,
        "dataset": {**sim.prepared.dataset.statistics(), "source": sim.prepared.dataset.source},
        "protocol": sim.prepared.protocol,
        "seed": e.seed,
        "rounds": e.rounds if federated else 0,
        **results,
        **({} if federated else {"central": _central(sim)}),
        "privacy": _privacy(sim) if federated else {},
        "fleet": fleet,
        "engine": engine,
        "encoder": None if sim.prepared.text is None else sim.prepared.text.report,
        "bundles": bundles,
        "versions": versions(),
    }


def _travel(sim: Running) -> dict[str, float]:
    """Return the bytes that a client moves: once, before its first round, and down and up in every round.

    `fetched_once`: the clients that did fetch what is fetched once. What some rounds send beside their update is left
    out here, and counted in the fleet's spreads and totals.
    """
    travel = Travel.of(sim.federation.program, sim.federation.plan.project)
    return {**asdict(travel), "fetched_once": sim.participation.fetched(sim.clients)}


def _central(sim: Running) -> dict[str, Any]:
    """Return what a central reference has in place of rounds: its turns, and the splits of which it knows no item."""
    from edgefr.simulation.stages.central import Central

    turns = [{"split": d["name"], "epochs": d["round"], "best_epoch": d["best_round"]} for d in sim.done]
    unseen = [split.name for stage in sim.schedule if isinstance(stage, Central) for split in stage.of.unseen]
    return {"note": CENTRAL, "turns": turns, "unseen": unseen}


def summarise_splits(sim: Running) -> dict[str, Any]:
    """Return the parts that speak of splits and stages of one model."""
    splits = list(sim.prepared.splits)
    stages, full = sim.measured.table(), sim.measured.table(ranking="full")
    compared = _compared(sim)
    last = sim.stages[-1]
    block = {"metrics": stages[splits[-1]][last], **_kept(sim), **_engine_speed(sim)}
    helped = {split: list(_learning(sim, split, stages[split])) for split in splits}
    return {
        "stage": last,
        "split": splits[-1],
        "metrics": block["metrics"],
        "metrics_full_ranking": full.get(splits[-1], {}).get(last, {}),
        "blocks": [block],
        "stages": {s: {n: m for n, m in t.items() if n not in compared} for s, t in stages.items()},
        "references": {s: {n: m for n, m in t.items() if n in compared} for s, t in stages.items()},
        "full_ranking": {"users": _full_users(sim), **full},
        "validation": sim.measured.table(which="valid"),
        "transfer": _transfer(stages, last),
        "learning": {split: {one.stage: one.record() for one in found} for split, found in helped.items()},
        "verdicts": {split: [str(one) for one in found] for split, found in helped.items()},
    }


def _kept(sim: Running) -> dict[str, Any]:
    """Return which round was kept, and its validation, where the best one is."""
    first = sim.done[0]
    if not sim.schedule[0].keeps_best:
        return {}
    return {"best_round": first["best_round"], "validation": first["best"] if np.isfinite(first["best"]) else None}


def _compared(sim: Running) -> list[str]:
    """Return the names of the references of all stages, once each."""
    return list(dict.fromkeys(name for stage in sim.schedule for name in stage.compared))


def _full_users(sim: Running) -> int:
    tested = (row for row in sim.measured.rows if row["round"] is None)
    return next((row["users"] for row in tested if row["ranking"] == "full"), 0)


def _learning(sim: Running, split: str, stages: Collection[str]) -> Iterator[Verdict]:
    """Yield what each learned stage is worth on a split beside all that needs no learning."""
    learned = [name for name in stages if name in (*sim.stages, CONTEXT)]
    names = [name for name in stages if name not in learned]
    for stage in learned:
        cold = stage == sim.stages[0] and CONTEXT in learned  # is not asked to beat its like with the target's items
        others = [name for name in names if not (cold and name == UNLEARNED_IN_CONTEXT)]
        found = learning(sim.measured, stage, others, [split], sim.rounds) if stage in stages else None
        if found is not None:
            yield found


def _transfer(stages: dict[str, dict[str, dict[str, float]]], last: str) -> dict[str, Any] | None:
    """Return TransFR Tables 5 and 6: source, target and delta = (source - target) / source after local training.

    A reference that learns nothing more in the source has one model of it. Of several targets each has its own two.
    """
    targets = {name: stages[name][last] for name in stages if name.split()[0] == "target"}
    if "source" not in stages or not targets:
        return None
    source = stages["source"].get(last, next(iter(stages["source"].values())))
    out: dict[str, Any] = {metric: {"source": value} for metric, value in source.items() if value > 0}
    for metric, row in out.items():
        for name, target in targets.items():
            row |= {name: target[metric], name.replace("target", "delta"): 1 - target[metric] / source[metric]}
    return out


def _privacy(sim: Running) -> dict[str, Any]:
    """Return the privacy report, of clients' updates and, with DP-SGD on the device, of single interactions.

    With a ledger, taking part is having been asked for a release; else, having released. Where something is guaranteed
    nothing is said of the updates' own norms: that would be exact and without noise.
    """
    counters, ledger, plan = sim.federation.counters, sim.participation.ledger, sim.federation.plan
    released = counters.participation[sim.clients]
    asked = released if ledger is None else ledger.releases()[sim.clients]
    norms = {} if plan.guarantees else norms_of(sim)
    report = privacy_report(
        sim.experiment.privacy,
        plan,
        *_most_and_median(asked),
        len(sim.clients),
        norms.get("p90_norm"),
        norms.get("clipped_share"),
        ledger=ledger,
        closed=counters.closed,
        smallest=counters.smallest,
    )
    examples = None
    if sim.examples is not None:
        examples = report_examples(sim.examples, *_most_and_median(released), sim.experiment.negatives)
    return {**report, "examples": examples}


def _most_and_median(counts: npt.NDArray[np.integer]) -> tuple[int, float]:
    return int(counts.max(initial=0)), float(np.median(counts)) if len(counts) else 0.0


def norms_of(sim: Running) -> dict[str, float]:
    """Return what the updates were before the clip: the 90th percentile of their norms, and how many it cut."""
    counters = sim.federation.counters
    norms = counters.norms
    if not norms.count:
        return {}
    clipped = {} if sim.experiment.privacy.clip is None else {"clipped_share": counters.clipped / norms.count}
    return {"p90_norm": float(np.quantile(norms.values, 0.9)), **clipped}


def _engine_speed(sim: Running) -> dict[str, float]:
    counters = sim.federation.counters
    return {
        "clients_per_second": counters.clients / counters.seconds if counters.seconds else 0.0,
        "train_seconds": counters.seconds,
        "eval_seconds": sim.measured.seconds,
    }


def _engine(sim: Running, seconds: float, peak_rss_mb: float) -> dict[str, Any]:
    section = sim.experiment.engine
    return {
        **_engine_speed(sim),
        "client_updates": sim.federation.counters.clients,
        "dropped_updates": sim.federation.counters.dropped,
        "wall_seconds": seconds,
        "peak_rss_mb": peak_rss_mb,
        "executor": section.executor,
        **({"workers": section.workers} if "workers" not in unread_fields(section) else {}),
        "shard_size": section.shard_size,
        "device": str(sim.federation.device),
    }
