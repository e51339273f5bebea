"""The server and its clients are made before round 1: the local program, the backend, and the privacy of all rounds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from cloud.prototypes import KnowledgeBase
from cloud.rules.mean import MeanSettings
from edgefr.config.executors import BACKENDS, EngineSection
from edgefr.data.prepared import Prepared
from edgefr.engine.aggregate import released_values, restricted
from edgefr.engine.backends.backend import Backend, InProcess
from edgefr.engine.executors.dp_sgd import DPSGD, plan_for, start_up_probe
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.transfer import Exchange, Order, Relay, Transfer
from edgefr.engine.work import trained
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.fleet.policies import POLICIES
from edgefr.simulation.privacy_plan import planned
from export.given import Given
from export.program import LocalProgram
from privacy.errors import InputError
from privacy.example_plan import ExamplePlan
from privacy.noise_key import NoiseKey
from privacy.setting_scope import default_of

if TYPE_CHECKING:
    from edgefr.methods.transfr.bert import Reader


def build_program(experiment: Experiment, prepared: Prepared, present: int | None = None) -> LocalProgram:
    """Build the experiment's local program on the prepared catalogue; `present`: the items that learning rates count.

    None: all of the catalogue.
    """
    row = experiment.row
    text = None if prepared.text is None else torch.from_numpy(prepared.text.vectors)
    items = len(prepared.dataset.catalogue.ids)
    reader = None if prepared.text is None else partial(read_on_device, experiment, prepared)
    source = torch.from_numpy(prepared.source_items)
    given = Given(items, experiment.local_epochs, text, reader, present, source)
    made = row.program(row.settings.model_validate(experiment.model), given)
    return restricted(made, experiment.privacy.tensors)


def read_on_device(experiment: Experiment, prepared: Prepared) -> Reader:
    """Return titles and encoder for clients that read for themselves."""
    from edgefr.methods.transfr.bert import Reader

    assert prepared.text is not None
    assert prepared.text.folder is not None
    how = experiment.encoder.encode
    return Reader.open(prepared.text.folder, prepared.dataset.catalogue.text, how.pooling, how.max_tokens)


def backend_of(engine: EngineSection, key: NoiseKey, examples: ExamplePlan | None = None) -> Backend:
    """Return the backend that runs the shards of a run.

    With DP-SGD on the device that is always this process, client after client, with noise of `key`.
    """
    if examples is not None:
        return InProcess(DPSGD(examples.clip, examples.sigma, key))
    return BACKENDS[engine.executor].make(engine)


def federate(
    experiment: Experiment,
    prepared: Prepared,
    devices: FleetFile,
    population: int,
    rounds: int,
    device: torch.device,
    noise_key: NoiseKey | None = None,
) -> Federation:
    """Return the server and its clients before round 1; privacy is planned for `rounds` rounds of a `population`.

    `noise_key`: of simulated noise (None: one that nobody keeps).

    That holds for asynchronous rounds too: a client uploads once per round at most, an old update weighs no more than
    a new one and is whole steps of the grid like it, and the broadcast it started from was public before.
    """
    assert experiment.engine.shard_size is not None
    if experiment.clients_per_round > max(population, 1):
        raise InputError(
            f"clients_per_round is {experiment.clients_per_round:g} and only {population} clients train; give at most "
            f"{population}, or 1.0 for all of them"
        )
    program = build_program(experiment, prepared)
    policy = POLICIES[devices.rounds.policy]
    if not policy.waits and experiment.privacy.project:
        raise InputError(
            f"privacy.project needs rounds whose updates all weigh alike: use another policy than {policy.name}"
        )
    if not policy.waits and experiment.aggregation.entry.personal:
        raise InputError(
            f"rule {experiment.aggregation.rule} compares tables of one broadcast: use another fleet.rounds.policy "
            f"than {policy.name}"
        )
    key = NoiseKey.new() if noise_key is None else noise_key
    check_server_step(experiment, program)
    examples = plan_for(experiment.privacy, program, rounds)
    if examples is not None:
        start_up_probe(program, experiment.seed, experiment.negatives, torch.device("cpu"))
    federation = Federation(
        program,
        clients=len(prepared.dataset.users),
        seed=experiment.seed,
        backend=backend_of(experiment.engine, key, examples),
        noise=SimulatedNoise(key, experiment.seed),
        shard_size=experiment.engine.shard_size,
        aggregation=experiment.aggregation,
        plan=planned(
            experiment,
            devices.rounds,
            population,
            rounds=rounds,
            values=released_values(program, experiment.privacy.project),
        ),
        device=device,
        keeps="evaluation.tables" in experiment.protocol.entry.own and experiment.evaluation.tables == "own",
    )
    federation.transfer = _transfer(experiment, federation, key)
    return federation


def check_server_step(experiment: Experiment, program: LocalProgram) -> None:
    """Raise `InputError` for a `server_lr` by which no tensor moves, since another optimiser moves them all."""
    section = experiment.aggregation
    if not isinstance(section, MeanSettings) or section.optimises != "tables":
        return
    names = trained(program, [phase for phase in program.phases if phase.when == "round"], "shared")
    every = all(program.specs[name].kind == "rows" for name in names)
    if every and section.server_lr != default_of(MeanSettings.model_fields["server_lr"]):
        raise InputError(
            f"aggregation.server_lr: rounds of {program.name} train tables alone, and "
            f"{section.optimiser} moves these, by optimiser_lr: drop it"
        )


def _transfer(experiment: Experiment, federation: Federation, key: NoiseKey) -> Exchange | None:
    """Return what handles the messages that clients send beside their updates; None where they send none."""
    terms, program = federation.plan.prototypes, federation.program
    if terms is None:
        return None
    if terms.through == "relay":
        assert program.reply is not None
        return Relay(program.reply, terms, experiment.seed, key)
    base = KnowledgeBase(terms.values, experiment.knowledge, federation.device)
    return Transfer(base, cast(Order, program.publishes), terms, experiment.seed, key)
