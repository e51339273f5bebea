"""`serve`: a finished run goes on for some rounds with real devices in place of simulated ones.

Owns: which bundle's devices they are, what is written at the end. Does not own: rounds (`training`), devices
(`devices`, `broker`, `server`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from edge.bundle import open_bundle
from edgefr.prepare import Progress
from edgefr.remote.broker import RoundBroker
from edgefr.remote.devices import Devices, Origin
from edgefr.remote.ledger import ServingLedger
from edgefr.remote.server import Access, listening
from edgefr.remote.training import plan_of, training_of
from edgefr.run import LEDGER, Run
from edgefr.shipping import users_of_class
from privacy.errors import InputError, unknown
from privacy.files import write_atomic, write_json

Ready = Callable[[str], None]
"""Told the server's address once it listens."""


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
    devices = Devices(broker, origin, timeout_s)
    training = training_of(run, devices, rounds)
    federation = training.federation
    plan = plan_of(run, len(origin.users), rounds)
    devices.ledger = ledger = ServingLedger.of(run, plan, len(federation.counters.participation), target / LEDGER)
    try:
        with listening(broker, access or Access()) as server:
            ready(server.url)
            training.train(progress=progress)
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
        "missing": devices.missing,
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
    origin = Origin.of(open_bundle(folder / bundle_class), users_of_class(run, bundle_class))
    if not origin.users:
        raise InputError(f"no user of {run.path} has a device of class {bundle_class}; choose another --bundle-class")
    return origin


def _write(target: Path, shared: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
    from safetensors.torch import save

    write_atomic(target / "shared.safetensors", save({n: t.contiguous() for n, t in shared.items()}))
    write_json(target / "summary.json", summary)
