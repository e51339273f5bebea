"""From a run to what is shipped: bundles of its model, one per device class, and how their devices learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edge.manifest import LASTS_DAYS, Promise
from edgefr.config.arguments import checked
from edgefr.config.display import COLUMNS, Brief
from edgefr.config.progress import watched
from edgefr.config.sheet import Sheet
from edgefr.data.datasets import bare_name
from edgefr.experiment.continual import strategy
from edgefr.experiment.experiment import Experiment
from edgefr.experiment.sections import ExportSection
from edgefr.fleet import FleetFile, cost
from edgefr.simulation.bundle_checks import check_shippable, counted, only_recommends
from edgefr.simulation.encoders.encoder import encoder_of
from edgefr.simulation.runs.device_users import fleet_of, users_by_class
from edgefr.simulation.runs.layout import PRIVATE, SIGNING_KEY
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.files import write_atomic
from privacy.plan import PrivacyPlan
from privacy.progress import Progress
from privacy.settings import PrivacySettings
from privacy.trust import TRUSTS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from pandas import DataFrame
    from rich.console import RenderableType

    from edgefr.simulation.runs.saved_model import Saved
    from edgefr.simulation.runs.served_tensors import ServedTensors
    from export.bundle import Targets
    from export.encoders import Reads
    from export.learning import LearningSpec
    from export.model import TrainedModel
    from export.variants import ClassLimits, Rules


NOISED: Mapping[str, Literal["here", "server", "nowhere"]] = {
    "each upload": "here",
    "the sum": "server",
    "nowhere": "nowhere",
}
"""Who adds a plan's noise, as a bundle says it."""

PUBLISHER = "publisher.pem"
"""A run's own key: the private half in its private part, and the public one beside it."""


def export_run(
    run: Run,
    out: Path | None = None,
    progress: Progress | None = None,
    expires_days: int | None = LASTS_DAYS,
    *,
    with_users: bool = False,
    key: Path | None = None,
    only: str | None = None,
    variant: str | None = None,
    served: ServedTensors | None = None,
) -> list[dict[str, Any]]:
    """Write a bundle for every device class of the run's fleet to `out` (default: in the run); one row per class.

    A class that lies there already with the same content is kept. Devices refuse the bundles `expires_days` after the
    run was made (None: never). `with_users`: bundles carry the simulated users of their class, for tests. `key`: a
    private key that signs them (None: the run's own). `only`: the one class that a bundle is made for. `variant`: what
    every class gets (None: the best of each). `served`: what
    devices have learned since, in place of the run's own tensors: the next bundles of its lineage. Raises `InputError`
    for a run that is not whole, a folder in the way, and a full disk.

    Example: ``export_run(edgefr.Run.open("runs/demo"), Path("shipped"))[0]["variant"]``
    """
    from edgefr.simulation.resolve import Releases
    from edgefr.simulation.runs.saved_model import of_users, open_model
    from edgefr.simulation.runs.served_tensors import first_block, place_of
    from export.bundle import Provenance, export_bundles
    from export.learning import unlearnable
    from export.sign import load_private

    if served is not None and with_users:
        raise InputError("bundles of what devices have learned carry nobody: their users' private state is on them")
    check_shippable(run.experiment)
    signer = signing_key(run) if key is None else load_private(key)  # before the work, not after it
    experiment, saved = run.experiment, open_model(run)
    users, block = saved.learners, first_block(experiment) if served is None else served.block
    begun = experiment.protocol.entry.hands_on and not experiment.total_rounds
    model = of_users(saved.at_block(block) if begun else saved.model, users)
    facts: dict[str, Any] = {"experiment": experiment.name, "data": bare_name(experiment.data)}
    facts["pool"] = len(model.offered)
    if (why := only_recommends(experiment)) is not None:
        facts["learning"] = f"none: {why}"
    resolved = Releases.of_run(run, len(users)).plan(experiment)
    promise = promise_of(resolved, experiment.privacy)
    learning = learning_of(experiment, resolved)
    if (why := unlearnable(model.program)) is not None:
        learning, facts["learning"] = None, f"none: {why}"
    learning = None if learning is None else replace(learning, block=block)
    created, place = saved.created, run.path / "bundles"
    if served is not None:
        model = replace(model, shared={**model.shared, **served.shared})
        learning = None if learning is None else replace(learning, round=served.round)
        created, place = served.created(created, experiment.total_rounds), place_of(run, served)
        facts["served_rounds"] = served.round - experiment.total_rounds
    return export_bundles(
        place if out is None else out,
        model,
        _targets(run, saved, only, with_users),
        Provenance(created, facts, experiment.seed, expires_days, promise, counted(experiment)),
        text=encoders_of(run, model, progress),
        learning=learning,
        rules=replace(rules_of(experiment.export), variant=variant),
        key=signer,
        progress=progress,
    )


def _targets(run: Run, saved: Saved, only: str | None, with_users: bool) -> Targets:
    """Return the device classes that bundles are made for (None: all of the fleet), and who has a device of which."""
    from export.bundle import Targets

    fleet, users = fleet_of(run, saved), saved.learners
    wanted = [name for name in fleet.classes if only in (None, name)]
    owners = users_by_class(run, saved)
    limits = {name: limits_of(fleet.spec, name) for name in wanted}
    return Targets(limits, {name: np.searchsorted(users, owners[name]).tolist() for name in wanted}, with_users)


def signing_key(run: Run) -> Ed25519PrivateKey:
    """Return the key that a run signs with: made when it is first asked for, kept in the run's private part.

    Its public half lies in the run as `publisher.pem`, for devices that are told whom to trust. Raises
    `InputError` for a key that is damaged.
    """
    from export.sign import own_key, public_pem

    key = own_key(run.path / PRIVATE / SIGNING_KEY)
    public = run.path / PUBLISHER
    if not public.exists() or public.read_bytes() != public_pem(key):
        write_atomic(public, public_pem(key))
    return key


def promise_of(resolved: PrivacyPlan, settings: PrivacySettings) -> Promise | None:
    """Return what a plan promises of each client's data, as a bundle says it; None where that is nothing.

    >>> settings = PrivacySettings(mechanism="gaussian", trust="local", clip=1.0, epsilon=8.0)
    >>> from privacy.plan import plan
    >>> promise_of(plan(settings, 40, 94, 943), settings).adjacency
    'replace-one'
    """
    if not resolved.guarantees or resolved.clip is None:
        return None
    event, seen = resolved.event, TRUSTS[settings.trust].sees_uploads
    return Promise(
        trust="local" if seen else "central",
        mechanism=event.mechanism,
        adjacency=resolved.adjacency,
        norm=resolved.norm,
        clip=resolved.clip,
        multiplier=event.multiplier,
        steps=event.steps,
        epsilon=resolved.promised.epsilon,
        delta=settings.delta,
        rounds=resolved.rounds,
        cohort=1 if seen else resolved.at_least,
    )


def encoders_of(run: Run, model: TrainedModel, progress: Progress | None) -> Reads | None:
    """Return what reads texts, ready for bundles; None where items are not read, or by the clients' own encoder."""
    if "text" not in model.program.frozen:
        return None
    return encoder_of(run.experiment).shipped(run, model, progress)


def limits_of(spec: FleetFile, name: str) -> ClassLimits:
    """Return what a device class allows, and what a call of a graph takes there by the fleet's cost model."""
    from export.variants import ClassLimits, GraphCost

    device, runtime = spec.devices[name], spec.runtimes[spec.fleet.stack]
    fp32, int8 = device.compute.fp32_gflops.v, device.compute.int8_gops.v

    def seconds(work: GraphCost) -> float:
        rate = int8 if work.integer else fp32
        took = cost.inference_seconds(work.flops, work.weights, rate, device.memory.copy_gbs.v)
        return float(took + cost.overhead_seconds(runtime.step_overhead_ms.v, fp32))

    return ClassLimits(device.memory.app_mb.v, runtime.rss_mb.v, None, seconds, device.power.active_w.v)


def rules_of(section: ExportSection) -> Rules:
    """The experiment's limits on what variants lose and take."""
    from export.variants import Rules

    deadline = None if section.deadline_ms is None else section.deadline_ms / 1e3
    return Rules(section.max_quality_loss, section.min_overlap, deadline, section.budget_j)


def learning_of(experiment: Experiment, resolved: PrivacyPlan) -> LearningSpec | None:
    """Say how the devices of a run learn, under the privacy planned for it; None where they cannot, or are not to."""
    from edge.learning import ReleaseRecord, ReplayRecord
    from edgefr.engine.optimisers import RULES
    from edgefr.methods.f3crec.block_strategy import BestItems, keeper
    from edgefr.methods.f3crec.memory import rule_of
    from export.learning import LearningSpec

    how, e = strategy(experiment.strategy), experiment
    if only_recommends(e) is not None:
        return None
    if e.row.reads == "sessions" and e.protocol.pause_s is None:  # a device could not tell where one ends
        return None
    noise, replay = resolved.noise, None
    if keeper(how) is BestItems:
        rule = rule_of(e.continual, how.replays, e.seed)
        replay = ReplayRecord(
            picks=how.replays,
            list_size=rule.list_size,
            shift_scale=rule.shift_scale,
            weight=rule.weight,
            reduction=rule.reduction,
        )
    sessions: dict[str, Any] = {"sender_noise": 0.0 if e.prototypes is None else e.prototypes.nominal}
    batch_size = e.batch_size
    if e.row.reads == "sessions":
        sessions |= {"gap_s": e.protocol.pause_s, "receiver_noise": e.model.get("receiver_noise", 0.0)}
        batch_size = e.model["length"] * (1 + e.drawn_negatives)  # a window is one batch
    return LearningSpec(
        optimisers={name: rule.step for name, rule in RULES.items()},
        negatives=e.drawn_negatives,
        batch_size=batch_size,
        **sessions,
        seed=e.seed,
        round=e.total_rounds,
        release=ReleaseRecord(
            clip=resolved.clip,
            norm=resolved.norm,
            noise=noise.kind if noise else None,
            scale=noise.scale if noise else 0.0,
            step=noise.step if noise else None,
            noised=NOISED[resolved.where],
            weights=e.aggregation.weights,
            project=e.privacy.project,
        ),
        replay=replay,
    )


@dataclass(frozen=True, repr=False)
class Bundles(Brief):
    """These are the bundles of a run: their folder, and a row per device class."""

    path: Path
    rows: Sequence[dict[str, Any]]

    @property
    def classes(self) -> DataFrame:
        """Return a row per device class: variant, sizes, what it keeps of the simulated model, its folder as `path`."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    @property
    def sheets(self) -> list[Sheet]:
        """Return the tables of the variants that were considered, and of the bundles."""
        from edgefr.report.tables import bundle_tables

        return bundle_tables(self.rows)

    def brief(self) -> list[RenderableType]:
        """Return the table as wide as it fits, and the folder."""
        return [self.sheets[-1].first(COLUMNS), f"wrote {self.path}"]


@watched()
@checked
def export(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    expires_days: int | None = LASTS_DAYS,
    key: str | Path | None = None,
    variant: str | None = None,
    zipped: bool = False,
    with_users: bool = False,
    served: bool = False,
    next_block: bool = False,
    progress: Progress | None = None,
) -> Bundles:
    """Write a bundle for every device class of a run's fleet to `out` (default: in the run).

    Devices refuse the bundles `expires_days` after the run was made (None: never). `key`: a private key (PEM) to sign
    them with (None: the run's own). `variant`: what every class gets, as "i8", also where it loses more than allowed or
    does not fit (None: the best of each). `zipped`: each also as one file. `with_users`: they carry the simulated users
    of their class, private state and names, for tests that compare devices with the simulator; else nobody's. `served`:
    of what real devices have learned since (`edgefr serve`): the next bundles of its lineage. `next_block`: of a run
    over blocks of time these open the next one. Raises `InputError` for a run that is not whole or whose model no
    bundle can hold, and for a folder that is in the way or elsewhere in the run.

    Example: ``edgefr.export("runs/demo", "shipped").classes[["class", "variant", "files_mb"]]``
    """
    from edgefr.simulation.runs.served_tensors import ServedTensors, place_of
    from export.archive import pack

    found = Run.of(run)
    if next_block and not served:
        raise InputError("the next block goes on from what devices have learned: give --served with --next-block")
    learned = ServedTensors.of(found, next_block) if served else None
    own = found.path / "bundles" if learned is None else place_of(found, learned)
    place = _outside(found, own, None if out is None else Path(out))
    signer = None if key is None else Path(key)
    asked: dict[str, Any] = {"with_users": with_users, "key": signer, "variant": variant, "served": learned}
    rows = export_run(found, place, progress, expires_days, **asked)
    if zipped:
        for folder in (Path(row["path"]) for row in rows):
            pack(folder, folder.with_name(f"{folder.name}.zip"))
    return Bundles(place, rows)


def _outside(run: Run, own: Path, out: Path | None) -> Path:
    """Return where bundles go: `own`, the run's place for them, or a folder that is none of the run's."""
    if out is not None and out.resolve() != own.resolve() and out.resolve().is_relative_to(run.path.resolve()):
        raise InputError(f"--out {out} lies in the run itself, which is kept as it is; name {own}, or a folder outside")
    return own if out is None else out
