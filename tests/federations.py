"""Servers with their clients, and runs before their first round, for tests that do not say how these are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cloud.rule import AggregationSettings
from edgefr.data.prepared_data import Prepared
from edgefr.engine.federation import Federation
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile, load_fleet
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from export.program import LocalProgram
from privacy.plan import plan
from privacy.prototypes import Prototypes
from privacy.settings import PrivacySettings
from tests.cli.commands import ROOT

CPU = torch.device("cpu")


def federation(
    local: LocalProgram,
    clients: int,
    aggregation: Mapping[str, Any] | None = None,
    privacy: Mapping[str, Any] | None = None,
    *,
    rounds: int = 3,
    prototypes: Prototypes | None = None,
    **options: Any,
) -> Federation:
    """A federation whose clients are in every round that `privacy.apart` allows; `options` of `Federation` itself."""
    server, settings = dict(aggregation or {}), PrivacySettings.model_validate(privacy or {})
    cohort = -(-clients // settings.apart)
    terms = plan(settings, rounds, cohort, clients, server.get("weights", "uniform"), prototypes=prototypes)
    how = {"seed": 3, "shard_size": 4, "device": CPU, **options}
    return Federation(local, clients=clients, aggregation=AggregationSettings.model_validate(server), plan=terms, **how)


def begun(experiment: Experiment, prepared: Prepared | None = None, fleet: FleetFile | None = None) -> Training:
    """A run before its first round, on data prepared for it and the shipped fleet unless others are given."""
    prepared = prepare(experiment, None, "cpu") if prepared is None else prepared
    fleet = load_fleet(ROOT / "devices.yaml") if fleet is None else fleet
    return Training.start(experiment, prepared, fleet, CPU, lambda events: None)
