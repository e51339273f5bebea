"""`serve`: a finished run continues for some rounds with real devices in place of simulated ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edge.bundle import open_bundle
from edge.signature import key_id
from edgefr.fleet import load_fleet
from edgefr.serving.broker import RoundBroker
from edgefr.serving.delivery import Delivery
from edgefr.serving.devices import Devices
from edgefr.serving.fedbuff import BufferedBroker, Buffering
from edgefr.serving.keys import Keys
from edgefr.serving.ledger import ServingLedger
from edgefr.serving.log import FILE as LOG
from edgefr.serving.log import Log
from edgefr.serving.origin import Origin, Origins
from edgefr.serving.releases import Answers
from edgefr.serving.secure_sums import FEWEST, SumTerms
from edgefr.serving.server import Access, Between, guarded, listening, pin_of
from edgefr.serving.status import told
from edgefr.serving.training import plan_of, training_of
from edgefr.simulation.bundle_checks import cannot_learn, check_federated
from edgefr.simulation.bundles import signing_key
from edgefr.simulation.loop import Training
from edgefr.simulation.runs.device_users import users_of_class
from edgefr.simulation.runs.folder import free_folder
from edgefr.simulation.runs.layout import PRIVATE, SIGNING_KEY
from edgefr.simulation.runs.lineage import Journal
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from edgefr.simulation.runs.served_tensors import published
from edgefr.simulation.runs.successor import check_last
from edgefr.simulation.runs.upload_trust import SEEN, Collecting
from privacy.errors import InputError, unknown
from privacy.files import write_atomic, write_json
from privacy.progress import Progress
from privacy.trust import TRUSTS

Ready = Callable[[str], None]
"""Told the server's address once it listens."""

Transport = Callable[[RoundBroker, Keys], AbstractContextManager[str]]
"""Carries tasks and releases between a round broker and its devices while inside; says where they find it."""


@dataclass(frozen=True)
class Served:
    """This is what serving leaves in `path`: the server's tensors, and the figures of `summary.json`."""

    path: Path
    shared: dict[str, torch.Tensor]
    summary: dict[str, Any]


def serve(
    run: Run,
    classes: str | Sequence[str] | None,
    rounds: int,
    access: Access | None = None,
    *,
    timeout_s: float = 600.0,
    min_answers: int | None = None,
    collecting: Collecting = SEEN,
    out: Path | None = None,
    ready: Ready = print,
    progress: Progress | None = None,
    clients: Collection[int] | None = None,
    transport: Transport | None = None,
    waits: bool = False,
) -> Served:
    """Go on with `run` for `rounds` rounds with the devices that hold its bundles of one class or several.

    `classes`: their names (None: all that have users and a bundle that learns). Their users (or those in `clients`)
    are the clients; those with a key (`edgefr enrol`) are let in. They come by HTTP, or as `transport` carries. A round
    waits `timeout_s`; with fewer answers than `min_answers` (None: half of those invited, three at least) it publishes
    nothing. `collecting`: whether uploads are summed under masks, or who is trusted with single ones. With fleet policy
    async a round is a buffer of uploads, unless it `waits`. Other hosts come by TLS, with the run's own certificate
    where `access` names none. The first round follows the last of the run's lineage; rounds in RUN/lineage and releases
    in RUN/private let a server that was killed continue. At the end `shared.safetensors` and `summary.json` are written
    to `out` (default: RUN/served, or the first free of served-2, ...).

    Raises `InputError` for a run that devices cannot go on with or that is being served, for rounds that would cost
    more than is promised, an address that cannot be used, and where no round had enough answers.

    >>> serve(Run("runs/demo"), "laptop_x86", 3).summary["uploads"]  # doctest: +SKIP
    1800
    """
    check_federated(run.experiment, "round that devices could go on with")
    target, began = free_folder(run.path / "served") if out is None else out, time.perf_counter()
    if target.exists():
        raise InputError(f"{target} is there already; give another --out (nothing was changed)")
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    origins = origins_of(run, classes, clients)
    devices = _devices(run, origins, collecting, timeout_s, min_answers, waits)
    with Journal.locked(run.path) as journal:
        check_last(run)
        devices.ledger = ledger = ledger_of(run, journal, origins, rounds, collecting, devices.buffering is not None)
        devices.progress = progress
        devices.resume()
        first, training = ledger.round + 1, training_of(run, devices, rounds)
        try:
            journal.heard = Log(run.path / LOG).round
            carried = transport or by_http(access or Access(), run, origins, rounds)
            with carried(devices.broker, Keys(run.path)) as where:
                ready(where)
                training.train([devices.closed], progress)
        finally:
            devices.close()
        if len(devices.withheld) == rounds:
            raise InputError(
                f"in none of {rounds} rounds did {devices.min_answers} devices send a release within {timeout_s:g} s: "
                "nothing was published; join more with `edgefr device join`, or give a longer --timeout"
            )
        summary = _summary(devices, training)
    whole = {"classes": origins.facts(), "rounds": rounds, "first_round": first, **summary}
    whole["seconds"] = round(time.perf_counter() - began, 3)
    _write(target, training.federation.shared, whole)
    return Served(target, training.federation.shared, whole)


def _devices(
    run: Run, origins: Origins, collecting: Collecting, timeout_s: float, min_answers: int | None, waits: bool
) -> Devices:
    """Return the devices as the rounds' backend; answers are on the disk until a round is over."""
    privacy, known = run.experiment.privacy, len(origins.users)
    cohort = run.experiment.cohort_size(known)
    buffering = None if waits else Buffering.of(load_fleet(run.path / "devices.yaml").rounds, cohort, known)
    held, answers = (origins.bundles, origins.learning, origins.items), Answers(run.path)
    broker = RoundBroker(*held) if buffering is None else BufferedBroker(*held, buffering)
    broker.keep = answers.keep
    fewest = fewest_answers(min_answers, cohort, max(FEWEST, privacy.at_least) if collecting.sealed else 1)
    collecting.check(TRUSTS[privacy.trust])
    if collecting.sealed and buffering is not None:
        raise InputError(
            "a sum under masks is of devices that are asked at once, and rounds of this run's fleet wait for nobody: "
            "serve without --secure-sum, or run the experiment with another fleet.rounds.policy than async"
        )
    sums = SumTerms.of(origins.learning, cohort) if collecting.sealed else None
    return Devices(broker, origins, timeout_s, min_answers=fewest, answers=answers, sums=sums, buffering=buffering)


def by_http(access: Access, run: Run, origins: Origins, rounds: int, between: Between | None = None) -> Transport:
    """Return the transport of devices over HTTP, which may fetch the bundles of their classes."""
    held = [(open_bundle(published(run) / name), origin.users.values()) for name, origin in origins.classes.items()]

    @contextmanager
    def opened(broker: RoundBroker, keys: Keys) -> Iterator[str]:
        place, log = guarded(access, run.path), Log(run.path / LOG)
        pin = None if place.cert is None else pin_of(place.cert)
        served = listening(broker, keys, place, Delivery.of(held), log, between)
        with served as server, told(run.path, server.url, rounds, pin):
            log.write("listening", url=server.url, rounds=rounds)
            yield server.url
        log.write("stopped")

    return opened


def fewest_answers(asked: int | None, cohort: int, least: int = 1) -> int:
    """Return the answers that a round needs to publish, `least` or more.

    Raises `InputError` for fewer, or more than invited.

    >>> fewest_answers(None, 36)
    18
    """
    fewest = max(FEWEST, least, (cohort + 1) // 2) if asked is None else asked
    if not least <= fewest <= cohort:
        raise InputError(
            f"a round invites {cohort} clients, and {fewest} must answer; give --min-answers from {least} to {cohort}"
        )
    return fewest


def ledger_of(
    run: Run, journal: Journal, origins: Origins, rounds: int, collecting: Collecting = SEEN, buffered: bool = False
) -> ServingLedger:
    """Return the ledger of a run's lineage, for so many rounds more with these devices.

    A killed server's round that does not continue is one of those that share an epsilon, and ends after the check.
    Raises `InputError` without a change where the rounds would cost more than is promised.
    """
    clients, how = len(open_model(run).model.names.users), (origins.bundle, collecting, buffered)

    def after(before: int) -> ServingLedger:
        plan = plan_of(run, len(origins.users), before + rounds)
        return ServingLedger.of(run, journal, plan, clients, *how)

    ledger = after(journal.lineage.over or origins.learning.round)
    if ledger.lost is not None:
        ledger = after(journal.lineage.round)
    ledger.block = origins.learning.block
    ledger.check(np.array(sorted(origins.users), np.int64), rounds, run.experiment.privacy)
    ledger.settle()
    return ledger


def _summary(devices: Devices, training: Training) -> dict[str, Any]:
    """Return what a session took, and the lineage's cost to its clients."""
    counts, counters, ledger = devices.broker.counts, training.federation.counters, devices.ledger
    assert ledger is not None
    trust = TRUSTS[ledger.run.experiment.privacy.trust]
    return {
        "collected": ledger.collecting.said,
        "devices": len(devices.origins.users),
        "uploads": counts.uploads,
        "missing": devices.missing,
        "min_answers": devices.min_answers,
        "withheld_rounds": devices.withheld,
        **({} if devices.sums is None else {"given_up": {str(n): why for n, why in devices.given_up.items()}}),
        **({"stale": devices.broker.stale} if isinstance(devices.broker, BufferedBroker) else {}),
        "dropped": counters.dropped,
        "noise": _noise(devices, training),
        "adversary": None if ledger.ledger is None else ledger.collecting.adversary(trust),
        "refused_requests": counts.refused,
        "too_long": counts.too_long,
        "bytes_up": counts.bytes_up,
        "bytes_down": counts.bytes_down,
        "lineage": ledger.journal.lineage.record(),
        "privacy": ledger.report(),
    }


def _noise(devices: Devices, training: Training) -> dict[str, Any] | None:
    """Return the noise on the mean of the smallest cohort that answered; None without a guarantee."""
    smallest, ledger = training.federation.counters.smallest, devices.ledger
    if ledger is None or ledger.ledger is None or not smallest:
        return None
    std = ledger.plan.std_on_mean_of(smallest)
    return {"where": ledger.plan.where, "std_on_mean": std, "smallest_cohort": smallest}


def origins_of(run: Run, classes: str | Sequence[str] | None, clients: Collection[int] | None = None) -> Origins:
    """Return the bundles of these classes (None: all that can learn and have users) and their users or `clients`.

    Raises `InputError` for a class without a bundle or users, and one that is named twice.
    """
    names = [classes] if isinstance(classes, str) else classes
    if names is None:
        able = [name for name in _classes(run) if open_bundle(published(run) / name).config.learning is not None]
        kept = {name: origin for name in able if (origin := _origin(run, name, clients)).users}
        if not kept:
            why = cannot_learn(run.experiment) or "export the run again, with learning"
            raise InputError(f"no device of a user of {run.path} can learn; {why}")
        return Origins(kept)
    if not names or len(set(names)) < len(names):
        raise InputError(f"--bundle-class names each class of devices once, not {', '.join(names) or 'none'}")
    kept = {name: _origin(run, name, clients) for name in names}
    for name, origin in kept.items():
        if not origin.users:
            raise InputError(f"no user of {run.path} has a device of class {name}; choose another --bundle-class")
    return Origins(kept)


def _classes(run: Run) -> list[str]:
    folder = published(run)
    classes = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    if not classes:
        raise InputError(f"{run.path} has no bundles; make some with `edgefr export --run {run.path} --out {folder}`")
    return classes


def _origin(run: Run, bundle_class: str, clients: Collection[int] | None) -> Origin:
    """Return a class's bundle and its users, or those in `clients`.

    Raises `InputError` for a class without a bundle, and a bundle that another key signed.
    """
    classes = _classes(run)
    if bundle_class not in classes:
        raise unknown("device class", bundle_class, classes)
    bundle, key = open_bundle(published(run) / bundle_class), signing_key(run)
    if bundle.signed_by not in (None, key_id(key.public_key())):
        raise InputError(
            f"{bundle.root} is signed by another key than the run's own, so its devices would take nothing from here; "
            f"sign it with `edgefr bundle sign {bundle.root} --key {run.path}/{PRIVATE}/{SIGNING_KEY}`"
        )
    users = users_of_class(run, bundle_class)
    return Origin.of(bundle, {n: user for n, user in users.items() if clients is None or n in clients}, key)


def _write(target: Path, shared: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
    from safetensors.torch import save

    write_atomic(target / "shared.safetensors", save({n: t.contiguous() for n, t in shared.items()}))
    write_json(target / "summary.json", summary)
