"""The server and its clients are made as they are before round 1."""

from __future__ import annotations

from typing import cast

import torch

from cloud.prototypes import KnowledgeBase
from edgefr.config.executors import BACKENDS, EngineSection
from edgefr.engine.backends.backend import Backend, InProcess
from edgefr.engine.executors.dp_sgd import DPSGD
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.transfer import Exchange, Order, Relay, Transfer
from edgefr.experiment.experiment import Experiment
from edgefr.simulation.resolve import Resolved
from privacy.example_plan import ExamplePlan
from privacy.noise_key import NoiseKey


def federate(
    experiment: Experiment, resolved: Resolved, users: int, device: torch.device, noise_key: NoiseKey | None = None
) -> Federation:
    """Return the server and its `users` clients before round 1; `noise_key`: of simulated noise (None: nobody's).

    The plan holds for asynchronous rounds too: a client uploads once per round at most, an old update weighs no more
    than a new one and is whole steps of the grid like it, and the broadcast it started from was public before.
    """
    key = NoiseKey.new() if noise_key is None else noise_key
    federation = Federation(
        resolved.program,
        clients=users,
        seed=experiment.seed,
        backend=_backend_of(experiment.engine, key, resolved.examples),
        noise=SimulatedNoise(key, experiment.seed),
        shard_size=resolved.shard_size,
        aggregation=experiment.aggregation,
        plan=resolved.plan,
        device=device,
        keeps="evaluation.tables" in experiment.protocol.entry.own and experiment.evaluation.tables == "own",
    )
    federation.transfer = _transfer(experiment, federation, key)
    return federation


def _backend_of(engine: EngineSection, key: NoiseKey, examples: ExamplePlan | None = None) -> Backend:
    """Return the backend that runs the shards of a run.

    With DP-SGD on the device that is always this process, client after client, with noise of `key`.
    """
    if examples is not None:
        return InProcess(DPSGD(examples.clip, examples.sigma, key))
    return BACKENDS[engine.executor].make(engine)


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
