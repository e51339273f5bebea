"""What the sweep of settings asks: values where no general rule finds any that would do, and what to set beside."""

from __future__ import annotations

from typing import Any

from tests.fleet.calibrations import WORK, calibration, phase
from tests.golden.cases import STUDENT


def measured(step_ms: float) -> dict[str, Any]:
    """Return what a host measured on which a step of the small FedMF takes so long."""
    work = WORK | {"upload_bytes": 120 * 6 * 4.0}
    return calibration({"laptop_x86": 8000.0}, phases=[phase(step_ms, 1.0)], work=work)


VALUES: dict[str, list[Any]] = {
    "name": ["other"],
    "fidelity": ["released"],  # paper is always taken: where we recommend its settings, that is the same run
    "method": ["pfedrec", "fedmf", "gru4rec"],
    "backbone": ["pfedrec", "gru4rec"],
    "strategy": ["ft", "kd"],
    "data": ["ml-100k"],
    "protocol.name": ["blocks", "sessions", "leave-one-out"],
    "protocol.source": ["films"],
    "protocol.target": ["books"],
    "protocol.drop": [["shown"], [0]],
    "protocol.gap_minutes": [4000.0],
    "protocol.min_interactions": [9, 6],
    "protocol.min_sessions": [5],
    "protocol.min_length": [3],
    "clients_per_round": [0.3],
    "rounds": [2],
    "batch_size": [8],
    "aggregation.momentum": [0.5],
    "aggregation.floor": [0.5],
    "evaluation.k": [[3]],
    "evaluation.judged_by": ["HR"],
    "evaluation.patience": [1],
    "evaluation.metrics": [["Precision", "Novelty"]],
    "evaluation.curve_users": [5],
    "evaluation.full_ranking_users": [5],
    "data_options.interactions": [20.0],
    "engine.executor": ["debug", "processes"],
    "engine.ray_address": ["auto"],
    "engine.memory_mb": [16],
    "engine.device": ["cuda"],
    "continual.patience": [1],
    "continual.list_size": [3],
    "sessions.patience": [1],
    "knowledge.index": ["faiss", "exact"],
    "knowledge.window": [1],
    "knowledge.interval": [2],
    "knowledge.top_k": [1],
    "knowledge.least_clients": [19],
    "encoder.teacher": ["OTHER"],
    "encoder.kind": ["hash", "tfidf"],
    "encoder.words": [20],
    "encoder.distill": [
        {"layers": 1, "hidden": 24, "layer_map": [1], "steps": 2, "max_tokens": 16, "teacher": STUDENT}
    ],
    "encoder.distill.teacher": ["OTHER"],
    "encoder.distill.layer_map": [[2]],
    "encoder.distill.layer_weights": [[1.0, 2.0], [1.0, 2.0, 1.0]],
    "encoder.distill.hidden": [36],
    "encoder.distill.heads": [2, 4],
    "encoder.distill.intermediate": [20],
    "encoder.encode.max_tokens": [3],
    "encoder.distill.max_tokens": [3],
    "fleet.share": [{"laptop_x86": 1.0}],
    "fleet.stack": ["python_torch"],
    "fleet.networks": [{"lte": 1.0}],
    "fleet.battery.min_soc": [1.0],
    "fleet.battery.own_use_per_hour": [1.0],
    "fleet.battery.charging_h": [24.0],
    "fleet.availability.mean_on_h": [0.1],
    "fleet.availability.mean_off_h": [20.0],
    "fleet.availability.by_hour": [[0.01] * 24],
    "fleet.dropout": [0.5],
    "fleet.rounds.deadline_s": [0.05, 30.0],
    "fleet.rounds.over_select": [3.0],
    "fleet.rounds.min_fraction": [1.0],
    "fleet.rounds.buffer": [20],
    "fleet.rounds.concurrency": [5],
    "fleet.rounds.max_staleness": [0],
    "fleet.cost.calibration": [measured(10.0)],
    "export.students": [[{"layers": 1, "hidden": 8, "steps": 2}]],
    "export.max_quality_loss": [0.99],
    "export.min_overlap": [0.0],
    "export.deadline_ms": [0.000001],
    "export.budget_j": [1e-12],
    "export.vocabulary": [60],
    "model.distill_weight": [5.0, 0.01],
    "model.head": [[5, 6]],
    "model.tower": [[8, 2]],
    "model.patience": [1],
    "model.gradient_clip": [0.001],
    "model.hidden": [3],
    "model.mapping_steps": [5],
    "model.adapter": [[14, 6]],
    "model.lora_targets": [["key"]],
    "model.lora_layers": [1],  # of two
    "privacy.tensors": [["encoder.position"], ["adapter.0.weight"], ["item"]],
    "privacy.mechanism": ["laplace", "gaussian", "paper-laplace", "none"],  # on a grid the discrete laws are the same
    "privacy.clip": [0.001],
    "privacy.prototype_clip": [0.1],
    "privacy.budget": [5.0, 8.0],
    "privacy.at_least": [36, 1000],
    "privacy.grid_exponent": [-6],
    "attackers": [{"kind": "fedrecattack", "share": 0.2}],
    "attackers.target": ["i0000007", "i0000011"],
    "privacy.examples": [{"clip": 1.0, "sigma": 1.0}],
    "aggregation.weights": ["size", "uniform"],
}
"""Values to change to, by the setting's name."""

SLOW = {"fleet.share": {"slow": 1.0}, "fleet.availability.mean_on_h": 0.1, "fleet.rounds.deadline_s": 604800.0}
"""Computers that are at work for minutes a step, and go away as often."""

BESIDE: dict[str, dict[str, Any]] = {
    "data": {"data_options": {}},
    "fleet.availability.sigma_ln": SLOW,
    "fleet.availability.work": SLOW,
    "fleet.battery": {"fleet.battery.own_use_per_hour": 1.0},
    "fleet.battery.charging_h": {"fleet.battery.only_charging": True},
    "export.learning": {"export.learning": True},  # other bundles only recommend, which is traced sooner
    "export.max_quality_loss": {"export.budget_j": 1e-12, "export.min_overlap": 0.0},
    "export.min_overlap": {"export.budget_j": 1e-12, "export.max_quality_loss": 0.99},
    "protocol.few": {"protocol.min_interactions": 12},
    "sessions.patience": {"model.lr": 1e-9, "rounds": 8},
    "continual.item_rate": {"data_options.items": 600},  # so many that some appear late
    "model.patience": {"model.lr": 1e-9},
    "model.beta_2": {"local_epochs": 2},
    "model.turns": {"batch_size": 8},  # of one batch there are no turns
    "model.alternates": {"batch_size": 8},
    "model.distill": {"model.distill_weight": 1e6, "local_epochs": 2},
    "model.distill_weight": {"local_epochs": 2},
}
"""What is set in the base and beside the change, for settings that decide only then: which bundle a class gets that has
no energy for the best one; when a run ends that learns nothing; an Adam of more
than one step; a clamp that is met; spells that end before the work."""
