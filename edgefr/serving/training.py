"""A finished run continues in the loop of every run, with real devices for clients.

Devices are the backend of its rounds; the server has no interactions and no measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from edge.learning import ReleaseRecord
from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.data.interactions import Catalogue, Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Split
from edgefr.engine.cohort import Cohort
from edgefr.engine.federation import Federation
from edgefr.engine.model import Model
from edgefr.engine.noise import RealNoise
from edgefr.engine.work import Clients
from edgefr.experiment.continual import strategy
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import load_fleet
from edgefr.methods.f3crec.block_strategy import keeping
from edgefr.serving.devices import Devices
from edgefr.simulation.evaluation.beyond import About
from edgefr.simulation.evaluation.measure import Measurements
from edgefr.simulation.loop import Training
from edgefr.simulation.participation import Participants
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.resolve import Releases
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from edgefr.simulation.stages.blocks import previous_of
from edgefr.simulation.stages.leave_one_out import Rounds
from edgefr.simulation.stages.stage import Running
from export.model import TrainedModel
from privacy.errors import InputError
from privacy.plan import PrivacyPlan
from privacy.trust import TRUSTS


@dataclass(frozen=True)
class OnDevices(Rounds):
    """These are rounds of `clients`, whose examples and measurements stay on devices."""

    clients: Clients = field(kw_only=True)

    def turn(self, run: Running, number: int) -> tuple[Clients, Sampler | SessionSampler]:
        return self.clients, run.sampler(self.task)

    def validate(self, run: Running, model: Model) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class InBlock(OnDevices):
    """These are rounds in block `number` of time; `pool`: items of the block before."""

    number: int = field(kw_only=True)
    pool: npt.NDArray[np.int64] = field(kw_only=True)

    def begin(self, run: Running) -> None:
        """Let a rule look back at the tables that the block began with, unless an earlier server noted them.

        Rows of new items are those of the bundles.
        """
        f = run.federation
        if self.number and f.rule.looks_back and not f.previous:
            f.previous = previous_of(f, f.shared, self.pool)


@dataclass
class Called(Participants):
    """Devices are invited, and come or do not; those who may not release again sit out."""

    federation: Federation
    devices: Devices
    clients_per_round: int
    number: int = 0

    def meet(self, number: int, population: Clients, sampler: Sampler | SessionSampler) -> Cohort:
        self.number = number
        if self.devices.buffering is not None:
            return self.devices.gather(number, population, self.federation.shared)
        if self.devices.ledger is not None:
            population = self.devices.ledger.rested(number, population)
        size = min(self.clients_per_round, len(population))
        return self.devices.invite(number, self.federation.cohort(number, population, size))

    def adjourn(self) -> None:
        self.devices.finish(self.number, self.federation.shared)


def training_of(run: Run, devices: Devices, rounds: int) -> Training:
    """Return the run as its last round left it, for `rounds` more rounds with `devices` as clients.

    It starts from the end of `devices.ledger`'s lineage, else from the run's own. Raises `InputError` for runs that
    devices cannot continue, and where the bundle's terms are not the run's.
    """
    check_goes_on(run.experiment, devices)
    experiment, saved, origins = run.experiment, open_model(run), devices.origins
    model, learning = saved.model, origins.learning
    shared, clients = dict(model.shared), np.array(sorted(origins.users), np.int64)
    if learning.round == experiment.total_rounds:
        origins.check(shared)
    assert experiment.engine.shard_size is not None
    before, planned = learning.round, None
    if devices.ledger is not None:  # which charges for the noise of its plan, and no other may be added
        before, planned = devices.ledger.round, devices.ledger.plan
    federation = Federation(
        model.program,
        clients=len(model.names.users),
        seed=experiment.seed,
        shard_size=experiment.engine.shard_size,
        aggregation=experiment.aggregation,
        plan=on_the_server(planned or plan_of(run, len(clients), before + rounds), learning.release),
        device=torch.device("cpu"),
        backend=devices,
        noise=RealNoise(),
    )
    federation.shared = shared
    if devices.ledger is not None:
        devices.ledger.restore(federation)
    if before < learning.round:
        raise InputError(f"the bundles are of round {learning.round}, their run's lineage at {before}: put it back")
    if before == learning.round:  # no update comes before the first round
        origins.check(federation.shared)
    prepared = without_data(experiment.data, model)
    rounds_here = prepared.train_split, rounds, before
    stage = OnDevices(*rounds_here, clients=clients)
    if experiment.protocol.entry.hands_on:
        block = learning.block
        stage = InBlock(*rounds_here, clients=clients, number=block, pool=saved.pool_of(block - 1))
    return Training(
        experiment,
        prepared,
        federation,
        Called(federation, devices, experiment.cohort_size(len(clients))),
        Measurements(experiment.measured, experiment.seed, About.of(prepared.dataset.catalogue)),
        (stage,),
        keeping(strategy(experiment.strategy), experiment.over_blocks, experiment.seed),
    )


def check_goes_on(experiment: Experiment, devices: Devices) -> None:
    """Raise `InputError` for an experiment whose rounds these devices cannot do."""
    learning = devices.origins.learning
    why = protocol_of(experiment).unserved(experiment)
    if why is not None:
        raise InputError(why)
    if experiment.privacy.quantile is not None:
        raise InputError(
            "a server's devices keep one clip, which does not follow what they send: serve one without "
            "privacy.clip_quantile"
        )
    if not experiment.aggregation.is_sum and devices.sums is not None:
        what = f"{experiment.aggregation.rule} compares single uploads, and a sum under masks has none to show"
        raise InputError(f"{what}; use aggregation.rule=mean, or serve without --secure-sum")
    if not experiment.aggregation.is_sum and learning.release.noise is not None:
        what = f"{experiment.aggregation.rule} would take the devices' noise for their updates"
        raise InputError(f"{what}; use aggregation.rule=mean")
    if devices.buffering is not None and experiment.aggregation.entry.personal:
        what = f"rule {experiment.aggregation.rule} compares tables of one broadcast"
        raise InputError(f"{what}, and rounds of this run's fleet wait for nobody: use another fleet.rounds.policy")
    if learning.exchange is not None and learning.exchange.publish is not None:
        raise InputError(
            "the server relays no messages between real devices: use a method that sends none beside updates"
        )


def plan_of(run: Run, clients: int, rounds: int) -> PrivacyPlan:
    """Plan the privacy of a lineage's first `rounds` rounds, over so many devices.

    An epsilon is shared by all rounds of server noise; devices add their bundle's noise.
    """
    e = run.experiment
    counted = max(e.total_rounds, 1) if TRUSTS[e.privacy.trust].sees_uploads else rounds
    return Releases.of(e, load_fleet(run.path / "devices.yaml").rounds, clients, counted).plan(e)


def on_the_server(privacy: PrivacyPlan, terms: ReleaseRecord) -> PrivacyPlan:
    """Return the run's privacy without the noise that uploads of these `terms` carry.

    Raises `InputError` where devices do not clip or add noise as the plan has it.
    """
    noise = privacy.noise
    local = noise if privacy.where == "each upload" else None
    drawn = (None, None) if noise is None else (noise.kind, noise.step)
    scale = 0.0 if noise is None else noise.scale
    enough = terms.scale == scale if local is not None else terms.scale <= scale  # a server may add more than promised
    if (terms.clip, terms.norm, terms.noise, terms.step) != (privacy.clip, privacy.norm, *drawn) or not enough:
        raise InputError(
            f"the bundle's devices clip at {terms.clip} for noise of {terms.scale:g}, which is not what "
            f"the run says ({privacy.clip} and {scale:g}); export the run again"
        )
    if terms.project != privacy.project:
        raise InputError("the bundle's devices release other projections than the run; export the run again")
    return privacy if local is None else replace(privacy, noise=None, where="nowhere", clip=None)


def without_data(data: str, model: TrainedModel) -> Prepared:
    """Return a model's users and catalogue as a data set without interactions."""
    names, users = model.names, len(model.names.users)
    items, nobodys, never = len(names.items), Ragged.empty(users), np.full(users, -1, np.int32)
    texts = list(names.texts or names.titles)
    catalogue = Catalogue(np.array(names.items), list(names.titles), texts, np.zeros(items, np.uint8))
    none, nobody = np.empty(0, np.int32), np.empty((0, 1), np.int32)
    dataset = Dataset(
        data, np.array(names.users), catalogue, none, none, none.astype(np.int64), ("main",), False, nobodys.offsets
    )
    split = Split("main", nobodys, nobodys, never, never, np.arange(items, dtype=np.int32), nobody, nobody)
    return Prepared(dataset, {"main": split}, "", None)
