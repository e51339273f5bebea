"""`summary.json` says what came out of a run, under which protocol, on what, and how far to trust it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgefr.config import random_streams as purposes
from edgefr.engine.footprint import Travel
from edgefr.fleet.histogram import QUANTITIES
from edgefr.metrics.bootstrap import LEVEL, intervals
from edgefr.metrics.groups import by_group, known, rank_correlation
from edgefr.metrics.settings import CEILINGS, CONTEXT, UNLEARNED_IN_CONTEXT
from edgefr.report.over_seeds import versions
from edgefr.report.small_groups import FEW, FEWEST, tellable
from edgefr.report.verdict import FULL, UNTRAINED, Verdict, VerdictRow
from edgefr.simulation.attackers import exposure
from privacy import keyed
from privacy.example_plan import report_examples
from privacy.report import ClipFacts
from privacy.report import report as privacy_report
from privacy.setting_scope import unread_fields

if TYPE_CHECKING:
    from edgefr.simulation.evaluation.measure import Measurements
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
    splits, several = list(sim.prepared.splits), sim.prepared.train_split.several is not None
    how = "full" if several else "sampled"  # of several held-out items there are no sampled candidates
    validated = sim.measured.settings.curve_ranking == "full"
    stages, full = sim.measured.table(ranking=how), {} if several else sim.measured.table(ranking="full")
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
        **({"ranked": FULL} if several else {}),
        "validation": sim.measured.table(which="valid", ranking="full" if validated else how),
        **({"validated": FULL} if validated else {}),
        "transfer": _transfer(stages, last),
        "learning": {split: {one.stage: one.record() for one in found} for split, found in helped.items()},
        "verdicts": {split: [str(one) for one in found] for split, found in helped.items()},
        **({} if sim.attackers is None else {"attack": exposure(sim)}),
    }


def _kept(sim: Running) -> dict[str, Any]:
    first = sim.done[0]
    if not sim.schedule[0].keeps_best:
        return {}
    return {
        "rounds": first["round"],
        "best_round": first["best_round"],
        "validation": first["best"] if np.isfinite(first["best"]) else None,
    }


def _compared(sim: Running) -> list[str]:
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
        out = {UNLEARNED_IN_CONTEXT} if cold else set()
        if stage == sim.stages[0] and split != sim.prepared.train_split.name:
            out.update(CEILINGS)  # they know a user's items of the split, and of a cold user there are none
        others = [name for name in names if name not in out]
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
    nothing is said of the updates' own norms but what rounds told with noise.
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
        _clipped(sim, norms),
        ledger=ledger,
        closed=counters.closed,
        smallest=counters.smallest,
    )
    examples = None
    if sim.examples is not None:
        examples = report_examples(sim.examples, *_most_and_median(released), sim.experiment.negatives)
    return {**report, "examples": examples}


def _clipped(sim: Running, norms: dict[str, float]) -> ClipFacts | None:
    """Return what the clip did: as rounds told it, or exactly without a guarantee."""
    server, found = sim.federation, None
    if server.plan.told is not None:
        found = server.counters.clip_told.facts(*server.plan.told)
    elif "clipped_share" in norms:
        found = ClipFacts(norms["clipped_share"], norms["kept_length"], 0.0)
    steps = server.optimiser is None and not server.follows
    return found._replace(rate=server.aggregation.rate) if found is not None and steps else found


def _most_and_median(counts: npt.NDArray[np.integer]) -> tuple[int, float]:
    return int(counts.max(initial=0)), float(np.median(counts)) if len(counts) else 0.0


def norms_of(sim: Running) -> dict[str, float]:
    """Return what the updates were before the clip: the 90th percentile of their norms, and how many it cut."""
    counters = sim.federation.counters
    norms = counters.norms
    if not norms.count:
        return {}
    found, clip = {"p90_norm": float(np.quantile(norms.values, 0.9))}, sim.experiment.privacy.clip
    if clip is not None:
        found["clipped_share"] = counters.clipped / norms.count
        found["kept_length"] = float((clip / np.maximum(norms.values, clip)).mean())
    return found


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


def learning(
    measured: Measurements,
    stage: str,
    names: Sequence[str],
    on: Sequence[str],
    rounds: int = 1,
    ranking: str = "full",
) -> Verdict | None:
    """Compare a learned stage, user by user, with everything named, on held-out items of `on` (blocks: their average).

    `rounds` (or epochs) are behind it. Full ranking decides where users were ranked against the whole catalogue, and
    what sampled candidates say stands beside it. Central ceilings decide nothing. Returns None where nobody was asked,
    or there is nothing to compare with.
    """
    ranking = ranking if (stage, on[-1], ranking) in measured.users else "sampled"
    found = [measured.users[stage, name, ranking] for name in on]
    if not all(len(users) for users, _ in found):
        return None
    metric = next(name for name in found[0][1] if name.startswith("NDCG"))
    others = [n for n in names if all((n, name, ranking) in measured.users for name in on)]
    if not others:
        return None
    values = [np.stack([measured.users[n, name, ranking][1][metric] for n in others], axis=1) for name in on]
    parts = [(u, of[metric][:, None] - other) for (u, of), other in zip(found, values, strict=True)]
    apart = intervals(parts, keyed.generator(measured.seed, purposes.BOOTSTRAP))
    means = np.mean([other.mean(axis=0) for other in values], axis=0)
    lines = np.stack([means, apart.mean, apart.low, apart.high], axis=1).tolist()
    against = [
        VerdictRow(name, value, gain, *(end if np.isfinite(end) else None for end in ends))
        for name, (value, gain, *ends) in zip(others, lines, strict=True)
    ]
    own = [row for row in against if row.name in UNTRAINED]
    both = ranking == "full" and (stage, on[-1], "sampled") in measured.users
    sampled = learning(measured, stage, others, on, rounds, "sampled") if both else None
    return Verdict(
        "main",
        stage,
        metric,
        ranking,
        users=len(np.unique(np.concatenate([users for users, _ in found]))),
        value=float(np.mean([of[metric].mean() for _, of in found])),
        against=tuple(row for row in against if row.name not in CEILINGS),
        ceilings=tuple(row for row in against if row.name in CEILINGS),
        sampled=() if sampled is None else sampled.against,
        learned=rounds > 0 or all(row.difference for row in own),  # local training may leave another model, too
        level=LEVEL,
    )


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


def with_fairness(fleet: dict[str, Any], sim: Running) -> dict[str, Any]:
    """Return the fleet's summary with test metrics and participation of every class, and how unequal they are.

    Metrics are those of the final model on the run's last split or block: means over the users who have such a device.
    `participation` of a class: how often one of its clients contributed, as a share of the rounds. `fairness`, by
    metric: worst and best class, their distance (`spread`), what the classes' means deviate by (`sd`, weighted by
    users), whether that is more than chance (`p_equal`), the rank correlation of a user's metric with the number of
    rounds the user contributed to, and the means of those who never did and of those who did. What would tell of a few
    users is left out (`few`).
    """
    names, device_of = sim.fleet.classes, sim.fleet.device_of
    able = np.bincount(device_of[sim.clients], minlength=len(names))
    classes = {name: dict(row) for name, row in fleet["classes"].items()}
    for name, clients, told in zip(names, able.tolist(), tellable(able.tolist()), strict=True):
        rounds = clients * fleet["rounds"]
        classes[name]["participation"] = classes[name]["contributed"] / rounds if rounds and told else None
        if clients and not told:
            kept = {key: value for key, value in classes[name].items() if not key.startswith("total_")}
            classes[name] = {**kept, **dict.fromkeys(QUANTITIES), "few_clients": True}
    users, found = sim.tested()
    device, took_part = device_of[users], sim.federation.counters.participation[users]
    tested = np.bincount(device, minlength=len(names))
    shown = np.array(tellable(tested.tolist()))
    for name, few in zip(names, (~shown & (tested > 0)).tolist(), strict=True):
        classes[name] |= {"metrics": {}, "few": few}
    overall, own = dict[str, Any](), shown[device_of[users]]
    for metric, values in found.items():
        mean = float(values.mean())
        groups = by_group(values[own], device[own], len(names))
        for number in np.flatnonzero(groups.users).tolist():
            gap = {"difference": float(groups.mean[number]) - mean}
            classes[names[number]]["metrics"][metric] = groups.cell(number) | gap
        by_part = by_group(values, (took_part > 0).astype(np.int64), 2)
        both = zip(("never_took_part", "took_part"), tellable(by_part.users.tolist()), strict=True)
        overall[metric] = {
            "mean": mean,
            "users": len(users),
            **groups.spread(names, mean),
            "fewest_users": FEWEST,
            "participation_correlation": known(rank_correlation(took_part, values)),
            **{name: by_part.cell(number) if one else None for number, (name, one) in enumerate(both)},
        }
    return {**fleet, "classes": classes, "fairness": overall}
