"""An experiment is resolved once, before round 1: what its data and its fleet make of it is worked out here alone.

    experiment, data, fleet → Resolved: program, schedule, privacy plan, cohort, size of shards

Everything that cannot run is refused here. The numbers are written to `resolved.json` in the run's folder, where
bundles, audits and served rounds read them. Owns: what follows from an experiment on its data. Does not own: the
server and its clients (`edgefr.simulation.loop`), what single settings mean (their own rooms).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cloud.rules.mean import MeanSettings
from edgefr.config.executors import EngineSection
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.split import Task
from edgefr.engine.aggregate import released_values
from edgefr.engine.attacks.attackers import Attackers
from edgefr.engine.device import torch_device
from edgefr.engine.executors.dp_sgd import largest_shard, start_up_probe, uses_per_round
from edgefr.engine.footprint import default_shard_size
from edgefr.engine.work import trained
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.fleet.policies import POLICIES
from edgefr.fleet.spec import Rounds
from edgefr.simulation.attackers import attackers_of
from edgefr.simulation.program import build_program
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.runs.folder import RunFolder
from edgefr.simulation.stages.stage import Stage
from export.program import LocalProgram
from privacy.errors import InputError
from privacy.example_plan import ExamplePlan, plan_examples
from privacy.plan import PrivacyPlan, plan
from privacy.setting_scope import default_of
from privacy.settings import PrivacySettings


@dataclass(frozen=True)
class Releases:
    """These are the releases that a run's privacy is planned for: how often, and among how many clients.

    `cohort`: updates in a server step, out of `clients` that train. `values`: those of a release, where it is known.
    """

    rounds: int
    cohort: int
    clients: int
    values: int | None = None

    @classmethod
    def of(cls, experiment: Experiment, policy: Rounds, clients: int, rounds: int | None = None) -> Releases:
        """Return the releases of so many clients. `rounds`: how many are planned for (None: the experiment's).

        The fleet's `policy` says how many updates an asynchronous server step takes.

        >>> from edgefr.experiment import load_experiment
        >>> small = load_experiment(overrides=["method=fedmf", "clients_per_round=30", "privacy.at_least=50"])
        >>> Releases.of(small, Rounds(policy="async", buffer=60), 600).cohort
        60
        """
        counted = experiment.total_rounds if rounds is None else rounds
        cohort, _ = policy.buffered(experiment.cohort_size(clients), clients)
        return cls(max(counted, 1), cohort, clients)

    @classmethod
    def of_run(cls, run: RunFolder, clients: int) -> Releases:
        """Return the releases of a finished run; `clients` trained in it, for runs that did not write it down."""
        found = run.resolved
        if found is None:
            return cls.of(run.experiment, load_fleet(run.path / "devices.yaml").rounds, clients)
        return cls(found["rounds"], found["cohort"], found["clients"], found["values"])

    def plan(self, experiment: Experiment, settings: PrivacySettings | None = None) -> PrivacyPlan:
        """Return what privacy settings (None: the experiment's) mean for these releases.

        Raises `InputError` as `privacy.plan.plan`.
        """
        return plan(
            experiment.privacy if settings is None else settings,
            self.rounds,
            self.cohort,
            self.clients,
            experiment.aggregation.weights,
            self.values,
            prototypes=experiment.prototypes,
        )


@dataclass(frozen=True)
class Resolved:
    """This is what an experiment comes to on its data and its fleet.

    `experiment` says how many clients share a vectorised call, as a run writes it down. `program` is what clients run;
    on `device`; `plan` is the privacy of all rounds; `examples` its DP-SGD (None: plain steps);
    `attackers`: clients that are hostile (None: none).
    """

    experiment: Experiment
    program: LocalProgram
    schedule: tuple[Stage, ...]
    releases: Releases
    device: torch.device
    plan: PrivacyPlan
    examples: ExamplePlan | None
    attackers: Attackers | None = None

    @property
    def shard_size(self) -> int:
        """Return how many clients share a vectorised call."""
        assert self.experiment.engine.shard_size is not None
        return self.experiment.engine.shard_size

    def facts(self) -> dict[str, Any]:
        """Return what `resolved.json` says."""
        r = self.releases
        return {
            "rounds": r.rounds,
            "cohort": r.cohort,
            "clients": r.clients,
            "values": r.values,
            "shard_size": self.shard_size,
            "stages": [stage.task.name for stage in self.schedule],
        }


def resolve(experiment: Experiment, prepared: Prepared, fleet: FleetFile) -> Resolved:
    """Work out what an experiment comes to on its data and its fleet.

    Raises `InputError` for everything that cannot run.
    """
    e = experiment
    schedule = protocol_of(e).stages(e, prepared)
    for stage in schedule:
        stage.check(fleet)
    clients = len(np.flatnonzero(schedule[0].task.train.counts))
    _check(e, schedule, fleet.rounds, clients)
    releases = Releases.of(e, fleet.rounds, clients)

    program = build_program(e, prepared)
    section = e.aggregation
    if isinstance(section, MeanSettings) and section.optimises == "tables":
        names = trained(program, [phase for phase in program.phases if phase.when == "round"], "shared")
        every = all(program.specs[name].kind == "rows" for name in names)
        if every and section.server_lr != default_of(MeanSettings.model_fields["server_lr"]):
            raise InputError(
                f"aggregation.server_lr: rounds of {program.name} train tables alone, and "
                f"{section.optimiser} moves these, by optimiser_lr: drop it"
            )
    releases = replace(releases, values=released_values(program, e.privacy.project))

    tasks: list[Task] = [*prepared.splits.values(), *prepared.blocks]
    most = max((int(task.train.counts.max(initial=0)) for task in tasks), default=0)
    batch = max(1, min(e.batch_size, most * (1 + e.negatives)))  # nobody's batch is longer
    size, examples = default_shard_size(program, batch, e.engine.memory_mb), None
    if e.privacy.examples is not None:
        uses, size = uses_per_round(program), min(size, largest_shard(program, e.engine.memory_mb))
        start_up_probe(program, e.seed, e.negatives, torch.device("cpu"))
        examples = plan_examples(e.privacy.examples, e.privacy.delta, max(e.total_rounds, 1), uses)
    if e.engine.shard_size is None:  # it decides the order of sums, so it belongs to the record of a run
        found = {"shard_size": size, "memory_mb": EngineSection().memory_mb}  # which nothing reads from here on
        e = e.model_copy(update={"engine": e.engine.model_copy(update=found)})
    attackers = None
    if e.attackers is not None:
        attackers = attackers_of(e, prepared.train_split, prepared.dataset.catalogue, program)
    device = torch_device(e.engine.device)
    return Resolved(e, program, schedule, releases, device, releases.plan(e), examples, attackers)


def _check(experiment: Experiment, schedule: tuple[Stage, ...], rounds: Rounds, clients: int) -> None:
    """Refuse what the number of clients does not allow, and what needs rounds whose updates start from one broadcast.

    A policy that waits for nobody has none of these.
    """
    e, learned = experiment, sum(stage.federated for stage in schedule)
    if e.row.central is None and learned != e.protocol.learned:
        raise TypeError(
            f"protocol {e.protocol.name} speaks of {e.protocol.learned} stages with rounds and makes {learned}"
        )
    if e.clients_per_round > max(clients, 1):
        raise InputError(
            f"clients_per_round is {e.clients_per_round:g} and only {clients} clients train; give at most "
            f"{clients}, or 1.0 for all of them"
        )
    policy = POLICIES[rounds.policy]
    if not policy.waits and e.privacy.apart > 1:
        raise InputError(
            f"privacy.apart needs rounds that end before the next begins: use another policy than {policy.name}"
        )
    if not policy.waits and e.privacy.project:
        raise InputError(
            f"privacy.project needs rounds whose updates all weigh alike: use another policy than {policy.name}"
        )
    if not policy.waits and e.aggregation.entry.personal:
        raise InputError(
            f"rule {e.aggregation.rule} compares tables of one broadcast: use another fleet.rounds.policy than "
            f"{policy.name}"
        )
