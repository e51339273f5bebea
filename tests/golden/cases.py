"""The small runs whose results are kept: every method on every protocol it runs on, by privacy and fidelity.

The cases are computed from the tables of methods and strategies, so a new entry has cases before it has values.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import edgefr
from edgefr.experiment.continual import STRATEGIES
from edgefr.experiment.method import METHODS
from tests.golden.kept import kept

SIZE = {
    "data_options": "{users: 60, items: 120, interactions: 16}",
    "rounds": "3",
    "clients_per_round": "0.6",
    "evaluation.k": "[5]",
    "engine.shard_size": "7",
}
PROTOCOLS = {
    "leave-one-out": {"protocol.negatives": "30"},
    "cross-domain": {"protocol.source": "books", "protocol.target": "films", "protocol.negatives": "20"},
    "blocks": {"protocol.min_interactions": "3", "protocol.increments": "2"},
    "sessions": {"protocol.gap_minutes": "40000", "protocol.negatives": "30"},
    "holdout": {"protocol.test": "0.2"},
}
_NOISE = {"privacy.clip": "0.5", "privacy.sigma": "0.1", "aggregation.weights": "uniform"}
PRIVACY: dict[str, dict[str, str]] = {
    "none": {},
    "central": {"privacy.mechanism": "gaussian", **_NOISE},
    "local": {"privacy.mechanism": "laplace", "privacy.trust": "local", "privacy.norm": "l1", **_NOISE},
}
FIDELITIES = ("paper", "released")
STUDENT = "STUDENT"
"""Stands for the folder of the small text encoder, in overrides of methods that read text."""
TEXT = {"encoder.distill": "null", "encoder.teacher": STUDENT, "encoder.encode.max_tokens": "32"}
MODELS = {
    "mlp": {"method": "transfr", "model.adapter": "[12, 6]", "model.head": "[6]", **TEXT, "local_epochs": "2"},
    "lora": {
        **{"method": "transfr", "model.client": "lora", "model.adapter": "[12, 6]", "model.head": "[6]"},
        **{"model.lora_rank": "2", **TEXT, "local_epochs": "1", "model.local_training_epochs": "1"},
        # Adam divides small gradients by their size, and rounding with them; the other client has it
        **{"model.optimiser": "sgd", "model.lr": "0.1", "model.lora_lr": "0.1", "model.user_lr": "null"},
    },
    "items": {"model.dim": "6"},
    "mf": {"model.dim": "6", "model.epochs": "4"},
    "pmf": {"model.dim": "6", "model.epochs": "4"},
    "neumf": {"model.dim": "4", "model.tower": "[4, 2]", "model.epochs": "4"},
    "ease": {},
    **{name: {"model.dim": "4", "model.epochs": "3", "model.folds": "2"} for name in ("cmf", "emcdr")},
    "feddcsr": {
        "model.dim": "4",
        "model.length": "5",
        "model.epochs": "3",
        "model.annealing": "20",
        "batch_size": "32",
    },
    "sequences": {
        "model.dim": "6",
        "model.length": "5",
        "local_epochs": "1",
        **{"model.lr": "0.01", "model.init_scale": "0.5"},  # larger gradients and smaller steps, for the same reason
    },
}
"""Sizes of local programs, by what they are."""
FEDERATED = ("rounds", "clients_per_round", "engine.shard_size")
"""What a central reference does not read."""
EXTRAS = {
    "fedmf, what came first is taken": {"method": "fedmf", "fleet.rounds.policy": "first_k"},
    "fedmf, nobody waits": {"method": "fedmf", "fleet.rounds.policy": "async", "fleet.rounds.buffer": "9"},
    "fedmf, a budget": {"method": "fedmf", **PRIVACY["central"], "privacy.sigma": "1", "privacy.budget": "7"},
    "fedmf, a projection": {"method": "fedmf", **PRIVACY["central"], "privacy.project": "50"},
    "fedmf, a grid": {
        "method": "fedmf",
        **PRIVACY["local"],
        **{"privacy.mechanism": "discrete-laplace", "privacy.sampler": "grid", "privacy.grid_exponent": "-12"},
    },
    "fedmf, sealed sums": {"method": "fedmf", "privacy.at_least": "34"},
    "fedmf, DP-SGD": {"method": "fedmf", "privacy.examples": "{clip: 1.0, sigma: 1.0}"},
    "fedmf, Adam of the server": {"method": "fedmf", "aggregation.optimiser": "adam"},
    "fedmf, weights by size": {"method": "fedmf", "aggregation.weights": "size"},
    **{f"fedmf, {r}": {"method": "fedmf", "aggregation.rule": r} for r in ("median", "trimmed-mean", "krum")},
    "fedmf, norm-bounded": {"method": "fedmf", "aggregation.rule": "norm-bounded"},
    "fedmf, blocks of shards": {"method": "fedmf", "engine.shard_size": "1"},
    "f3crec, patience": {"method": "f3crec", "continual.patience": "1", "evaluation.keep_blocks": "true"},
    "fcucr, patience": {"method": "fcucr", "sessions.patience": "1", "sessions.first_session": "true"},
}
"""What rounds can do beside, a run each."""


Overrides = dict[str, str]


@cache
def cases() -> dict[str, list[str]]:
    """Overrides of every case that an experiment takes, by name; seconds, so no test is parametrised by it."""
    found = {}
    for name, overrides in combinations().items():
        try:
            edgefr.load_experiment(overrides=overrides)
        except edgefr.InputError:
            if name in EXTRAS:
                raise
            continue
        found[name] = overrides
    return found


def known() -> dict[str, list[str]]:
    """Overrides of every case whose values are kept, by name; `test_golden` holds that none is missing."""
    values = kept()
    return {name: overrides for name, overrides in combinations().items() if name in values}


@cache
def combinations() -> dict[str, list[str]]:
    """Overrides of every combination, whether or not it may be run."""
    return {name: [f"{key}={value}" for key, value in values.items()] for name, values in _asked()}


def _asked() -> Iterator[tuple[str, Overrides]]:
    """Every combination, whether or not it may be run."""
    for (program, base), protocol in product(_programs(), PROTOCOLS):
        differs = bool(METHODS[base["method"]].released) or protocol == "blocks"
        for trust, fidelity in product(PRIVACY if protocol != "holdout" else ("none",), FIDELITIES):  # rounds are alike
            if differs or trust == "none" or fidelity == "paper":  # elsewhere it would be the same run once more
                name = f"{program}, {protocol}, {trust}, {fidelity}"
                yield name, _values(base, protocol, trust, fidelity)
        if METHODS[base["method"]].ours:
            calm = CALM if base["method"] == "transfr" and protocol != "cross-domain" else {}
            yield f"{program}, {protocol}, none, ours", _values(base, protocol, "none", "ours") | calm
    for program, base in _strategies():
        yield f"{program}, none, paper", _values(base, "blocks", "none", "paper")
        trust, fidelity = _PAIRS[len(program) % len(_PAIRS)]  # one more each, which no new entry of a table changes
        yield f"{program}, {trust}, {fidelity}", _values(base, "blocks", trust, fidelity)
    for name, values in EXTRAS.items():
        protocol = own_protocol(values["method"])
        yield name, {**_values({**_size(values["method"]), **values}, protocol, "none", "paper"), **values}


CALM = {"aggregation.optimiser": "sgd", "model.lr": "0.05", "model.head_lr": "0.05"}
"""Rates at which processors come to the same values, for TransFR. A server's Adam divides small gradients by their
size, and rounding with them. The case across domains has it."""

STEADY = {"model.optimiser": "sgd", "model.lr": "0.05", "model.user_lr": "0.05"}
"""Plain steps of TransFR's clients where they replay, so that processors agree: by Adam they came 2e-4 apart."""

_PAIRS = (("central", "released"), ("local", "paper"), ("none", "released"))


def own_protocol(method: str) -> str:
    """Name the protocol that a method starts from."""
    return str(METHODS[method].defaults.get("protocol", {}).get("name", "leave-one-out"))


def _size(method: str) -> Overrides:
    """Overrides that make a local program small."""
    if method == "transfr":
        return MODELS["mlp"]
    if METHODS[method].central is not None:
        return MODELS[method]
    return MODELS["sequences" if METHODS[method].reads != "items" else "items"]


def _programs() -> Iterator[tuple[str, Overrides]]:
    """What clients run: the methods, and those made of another's local program on each of them."""
    for name, method in METHODS.items():
        if name == "transfr":
            yield from ((f"{name} {client}", MODELS[client]) for client in ("mlp", "lora"))
        elif "backbone" not in method.defaults:
            yield name, {"method": name, **_size(name)}
        else:
            for backbone in _backbones(name):
                yield f"{name} on {backbone}", {**_size(backbone), "method": name, "backbone": backbone}


def _backbones(name: str) -> list[str]:
    """Methods whose local program another may be made of."""
    return [row.name for row in METHODS.values() if row.reads == METHODS[name].reads and "backbone" not in row.defaults]


def _strategies() -> Iterator[tuple[str, Overrides]]:
    """What keeps old knowledge, on every backbone; `f3crec` itself is a method."""
    for strategy, backbone in product(STRATEGIES, _backbones("f3crec")):
        if strategy != "f3crec":
            values = {**_size(backbone), "method": "f3crec", "backbone": backbone, "strategy": strategy}
            yield f"{strategy} on {backbone}", values


def _values(base: Overrides, protocol: str, trust: str, fidelity: str) -> Overrides:
    """All overrides of one case."""
    chosen = {} if protocol == own_protocol(base["method"]) else {"protocol.name": protocol}
    values = {**base, "fidelity": fidelity, **SIZE, **chosen, **PROTOCOLS[protocol], **PRIVACY[trust]}
    if METHODS[base["method"]].central is not None:
        values = {key: value for key, value in values.items() if key not in FEDERATED}
    if base.get("backbone") == "transfr":
        values |= STEADY
    if base["method"] == "transfr" and fidelity == "paper" and "model.client" not in base:
        values.pop("model.head")  # its head is of the adapter's widths
    if base["method"] == "fcucr" and trust == "central":
        values |= {"model.prototypes": "none"}
    if base["method"] == "fcucr" and trust == "local":
        values |= {"model.asks_when_recommending": "false"}
        if fidelity == "released":  # where sessions come back, and the released code asks about the next
            values |= {"knowledge.replace": "false", "model.query": "sent"}
    return values


def ready(overrides: list[str], student: Path) -> list[str]:
    """Overrides with the folder of a small text encoder in its place."""
    return [text.replace(STUDENT, str(student)) for text in overrides]
