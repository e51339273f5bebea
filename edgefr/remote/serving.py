"""`serve`: a finished run goes on for some rounds with real devices in place of simulated ones.

Owns: what of a run is needed, which runs can be gone on with, what is written at the end. Does not own: rounds
(`Federation`), devices (`backend`, `broker`, `server`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edge.bundle import open_bundle
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.data.protocols import LeaveOneOut
from edgefr.engine.federation import Federation
from edgefr.prepare import Progress
from edgefr.remote.broker import RoundBroker
from edgefr.remote.devices import Devices, Origin
from edgefr.remote.ledger import ServingLedger
from edgefr.remote.server import Access, listening
from edgefr.run import LEDGER, Run
from edgefr.trained import open_model
from privacy.errors import InputError, unknown
from privacy.files import write_atomic, write_json
from privacy.plan import Plan, plan

Ready = Callable[[str], None]
"""Told the server's address once it listens."""

GRACE_S = 30.0  # how long devices are given to fetch the last word


@dataclass(frozen=True)
class Served:
    """This is what serving leaves: the server's tensors, and the figures of `summary.json`."""

    shared: dict[str, torch.Tensor]
    summary: dict[str, Any]


def serve(
    run: Run,
    bundle_class: str,
    rounds: int,
    access: Access | None = None,
    *,
    timeout_s: float = 600.0,
    out: Path | None = None,
    ready: Ready = print,
    progress: Progress | None = None,
) -> Served:
    """Go on with `run` for `rounds` rounds with the devices that hold its bundle of one class; they come by HTTP.

    All users of the class are the clients; a round invites as many as the experiment says and waits `timeout_s` for
    them. Written to `out` (default RUN/served, which must not be there): `shared.safetensors`, `ledger.parquet`
    where releases are worth something (those of the run before among them), and `summary.json` when all is done.

    Raises `InputError` for a run that devices cannot go on with, an address that cannot be used, and a round in which
    nobody answers.

    >>> serve(Run("runs/demo"), "laptop_x86", 3).summary["uploads"]  # doctest: +SKIP
    1800
    """
    target, began = run.path / "served" if out is None else out, time.perf_counter()
    if target.exists():
        raise InputError(f"{target} is there already; give another --out (nothing was changed)")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    origin = origin_of(run, bundle_class)
    broker = RoundBroker(origin.bundle, origin.learning, set(origin.users.values()), origin.items)
    backend = Devices(broker, origin, timeout_s)
    federation = federation_of(run, origin, backend, rounds)
    privacy = plan_of(run, len(origin.users), rounds)
    ledger = ServingLedger.of(run, privacy, len(federation.counters.participation), target / LEDGER)
    try:
        with listening(broker, access or Access()) as server:
            ready(server.url)
            _rounds(federation, backend, ledger, run, rounds, progress)
            last = origin.learning.round + rounds
            broker.finish(last, origin.update(last, federation.shared), min(timeout_s, GRACE_S))
    finally:
        if ledger is not None:
            ledger.close()
    summary = {
        "bundle": origin.bundle,
        "class": bundle_class,
        "rounds": rounds,
        "first_round": origin.learning.round + 1,
        "devices": len(origin.users),
        "uploads": broker.counts.uploads,
        "missing": backend.missing,
        "dropped": federation.counters.dropped,
        "clipped": federation.counters.clipped,
        "refused_requests": broker.counts.refused,
        "bytes_up": broker.counts.bytes_up,
        "bytes_down": broker.counts.bytes_down,
        "seconds": round(time.perf_counter() - began, 3),
        "privacy": None if ledger is None else ledger.report(),
    }
    _write(target, federation.shared, summary)
    return Served(federation.shared, summary)


def origin_of(run: Run, bundle_class: str) -> Origin:
    """Return the bundle of a class and its users. Raises `InputError` for a class that has none, or nobody."""
    folder = run.path / "bundles"
    classes = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    if not classes:
        raise InputError(f"{run.path} has no bundles; make some with `edgefr export --run {run.path} --out {folder}`")
    if bundle_class not in classes:
        raise unknown("device class", bundle_class, classes)
    origin = Origin.of(open_bundle(folder / bundle_class))
    if not origin.users:
        raise InputError(f"no user of {run.path} has a device of class {bundle_class}; choose another --bundle-class")
    return origin


def federation_of(run: Run, origin: Origin, backend: Devices, rounds: int) -> Federation:
    """Return the run's server as its last round left it, with devices for clients.

    Raises `InputError` for runs of several splits, and where the bundle's terms are not those of so many rounds.
    """
    experiment, model = run.experiment, open_model(run).model
    if not isinstance(experiment.protocol, LeaveOneOut):
        raise InputError("devices can go on with runs of one domain and no blocks: use protocol.name=leave-one-out")
    if not experiment.aggregation.is_sum and origin.learning.release.noise is not None:
        what = f"{experiment.aggregation.rule} would take the devices' noise for their updates"
        raise InputError(f"{what}; use aggregation.rule=mean")
    shared, clients = dict(model.shared), len(origin.users)
    origin.check(shared)
    privacy = plan_of(run, clients, rounds)
    assert experiment.engine.shard_size is not None
    federation = Federation(
        model.program,
        clients=len(model.names.users),
        seed=experiment.seed,
        shard_size=experiment.engine.shard_size,
        aggregation=experiment.aggregation,
        plan=on_the_server(privacy, origin),
        device=torch.device("cpu"),
        backend=backend,
    )
    federation.shared = shared
    return federation


def plan_of(run: Run, clients: int, rounds: int) -> Plan:
    """Plan the run's privacy with so many rounds more, over so many devices."""
    e = run.experiment
    return plan(e.privacy, e.rounds + rounds, e.cohort_size(clients), clients, e.aggregation.weights)


def on_the_server(privacy: Plan, origin: Origin) -> Plan:
    """Return what of a run's privacy is left for the server:

    noise that each upload brings along is not added here again.

    Raises `InputError` where devices do not clip or add noise as the plan has it.
    """
    terms = origin.learning.release
    local = privacy.noise if privacy.where == "each upload" else None
    if (terms.clip, terms.norm) != (privacy.clip, privacy.norm) or terms.scale != (local.scale if local else 0.0):
        raise InputError(
            f"the bundle's devices clip at {terms.clip} and add noise of {terms.scale:g}, which is not what "
            f"{privacy.rounds} rounds need ({privacy.clip} and {local.scale if local else 0.0:g}); set privacy.sigma "
            "or privacy.scale in place of privacy.epsilon"
        )
    if terms.project != privacy.project:
        raise InputError("the bundle's devices release other projections than the run; export the run again")
    return privacy if local is None else replace(privacy, noise=None, where="nowhere", clip=None)


def _rounds(
    federation: Federation,
    backend: Devices,
    ledger: ServingLedger | None,
    run: Run,
    rounds: int,
    progress: Progress | None,
) -> None:
    experiment, origin = run.experiment, backend.origin
    population, numbers = np.array(sorted(origin.users), np.int64), {user: n for n, user in origin.users.items()}
    nobodys = Ragged.empty(len(federation.counters.participation))  # the server has no one's interactions
    sampler = Sampler(nobodys, np.arange(1), origin.items, 0, experiment.batch_size, experiment.seed)
    for number in range(origin.learning.round + 1, origin.learning.round + rounds + 1):
        cohort = federation.cohort(number, population, experiment.cohort_size(len(population)))
        if ledger is not None:
            drawn, cohort = cohort, ledger.admit(cohort)
            backend.resting = np.setdiff1d(drawn, cohort).tolist()
        try:
            federation.round(number, cohort, sampler, nobodys)
        finally:
            if ledger is not None:
                ledger.charge(numbers[user] for user in backend.broker.started(number))
        if progress is not None:
            progress("rounds", number - origin.learning.round, rounds, "")


def _write(target: Path, shared: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
    from safetensors.torch import save

    write_atomic(target / "shared.safetensors", save({n: t.contiguous() for n, t in shared.items()}))
    write_json(target / "summary.json", summary)
