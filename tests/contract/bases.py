"""What the sweep of settings starts from: every method on its own protocol, and choices that no method starts from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tests.contract.values import measured
from tests.golden.cases import FEDERATED, MODELS, PRIVACY, PROTOCOLS, SIZE, STUDENT, Overrides, own_protocol


@dataclass(frozen=True)
class Base:
    """Values that differ from the defaults, which settings are asked for (none: all), and the slow class's GFLOP/s."""

    values: Overrides
    asks: tuple[str, ...] = field(default=())
    slow: float = 2e-5

    def overrides(self) -> list[str]:
        """Return `key=value` of a small run."""
        values = {**SIZE, **self.values}
        own = own_protocol(values["method"])
        name = values.pop("protocol.name", own)
        chosen = {} if name == own else {"protocol.name": name}  # first: it drops what goes with another
        every = {**chosen, **PROTOCOLS[name], **values}
        return [f"{key}={value}" for key, value in every.items() if value != DROPPED]


DROPPED = "dropped"
FEDMF = {"method": "fedmf", **MODELS["items"]}
FEDCAR = {"method": "fedcar", **MODELS["items"]}  # a table and dense tensors travel
OWN_VECTOR = {"model.user_encoder": "vector"}
MLP, LORA = MODELS["mlp"] | OWN_VECTOR, MODELS["lora"] | OWN_VECTOR
FCUCR = {"method": "fcucr", **MODELS["sequences"], "local_epochs": "2"}
F3CREC = {  # what it remembers says something only where the model does
    **{"method": "f3crec", **MODELS["items"], "model.init_scale": "1.0", "continual.kd_weight": "1.0"},
}
ITEMS = ("fedmf", "fedncf", "pfedrec", "fedrap", "gpfedrec", "fedrecon", "fcf", "fedcar", "fedlightgcn")
TWO_DOMAINS = ("cmf", "emcdr", "feddcsr")
CENTRAL = ("mf", "pmf", "neumf", "ease")
ACROSS = {"protocol.name": "cross-domain", "data_options": "{users: 60, items: 120, interactions: 30}"}
COSTS = {
    "fleet.share": "{laptop_x86: 1.0}",
    "fleet.cost.mode": "host-ratio",
    "fleet.cost.calibration": json.dumps(measured(20.0)),
}

ASYNC = tuple(
    f"fleet.rounds.{name}"
    for name in ("policy", "deadline_s", "over_select", "buffer", "concurrency", "staleness_power", "max_staleness")
)

DISTILLED = {"teacher": STUDENT, "layers": 1, "hidden": 24, "layer_map": [1], "steps": 4, "max_tokens": 16}

BASES: dict[str, Base] = {
    **{name: Base({**FEDMF, "method": name}) for name in ITEMS},
    "f3crec": Base(F3CREC),
    **{name: Base({**FCUCR, "method": name}) for name in ("sasrec", "gru4rec", "tisasrec", "fcucr")},
    **{name: Base({**FCUCR, "method": name}) for name in ("miasrec", "hearint", "dmi-gnn", "fedsasrec")},
    "transfr mlp": Base(MLP),
    "transfr lora": Base(LORA, slow=5e-3),
    **{name: Base({"method": name, **MODELS[name], **dict.fromkeys(FEDERATED, DROPPED)}) for name in CENTRAL},
    **{
        name: Base({"method": name, **MODELS[name], **ACROSS, **dict.fromkeys(FEDERATED, DROPPED)})
        for name in TWO_DOMAINS
    },
}
"""Every method, and both kinds of clients of TransFR: every setting is asked for."""

CHOICES: dict[str, Base] = {
    "noise of the server": Base({**FEDMF, **PRIVACY["central"]}, ("privacy",)),
    "noise that is correlated": Base(
        {
            **FEDMF,
            **PRIVACY["central"],
            "privacy.mechanism": "gaussian",
            "privacy.apart": "2",
            "privacy.correlated": "true",
            "clients_per_round": "0.4",
        },
        ("privacy.apart", "privacy.correlated"),
    ),
    "a clip that follows the updates": Base(
        {**FEDMF, **PRIVACY["central"], "privacy.mechanism": "gaussian", "privacy.clip_quantile": "0.5"},
        ("privacy.clip_quantile", "aggregation.server_lr"),
    ),
    "noise of each client": Base({**FEDMF, **PRIVACY["local"]}, ("privacy",)),
    "a clip alone": Base({**FEDMF, "privacy.clip": "0.05"}, ("privacy",)),
    "noise on a grid": Base(
        {**FEDMF, **PRIVACY["local"], "privacy.sampler": "grid", "privacy.grid_exponent": "-12"}, ("privacy",)
    ),
    "noise as papers add it": Base(
        {**FEDMF, "privacy.mechanism": "paper-laplace", "privacy.scale": "0.01"}, ("privacy",)
    ),
    "noise by epsilon": Base(
        {**FEDMF, **PRIVACY["central"], "privacy.sigma": "null", "privacy.epsilon": "20"}, ("privacy",)
    ),
    "a budget": Base({**FEDMF, **PRIVACY["central"], "privacy.sigma": "1", "privacy.budget": "7"}, ("privacy",)),
    "attackers": Base({**FEDMF, "attackers": "{kind: fedrecattack, share: 0.2}"}, ("attackers",)),
    "DP-SGD": Base({**FEDMF, "privacy.examples": "{clip: 1.0, sigma: 1.0}"}, ("privacy",)),
    "DP-SGD by epsilon": Base({**FEDMF, "privacy.examples": "{clip: 1.0, epsilon: 20.0}"}, ("privacy.examples",)),
    "the whole catalogue": Base(
        {**FCUCR, "method": "sasrec", "model.loss": "full-softmax"}, ("negatives", "model.loss")
    ),
    "noise on prototypes": Base({**FCUCR, **PRIVACY["local"], "model.asks_when_recommending": "false"}, ("privacy",)),
    "sessions that come back": Base({**FCUCR, "protocol.stream": "cyclic"}, ("knowledge", "protocol", "sessions")),
    "fcucr as released": Base({**FCUCR, "fidelity": "released"}, ("knowledge", "protocol", "model")),
    **{
        rule: Base({**FEDMF, "aggregation.rule": rule}, ("aggregation",))
        for rule in ("median", "trimmed-mean", "norm-bounded", "krum")
    },
    "Adam of the server": Base(
        {**FEDCAR, "aggregation.optimiser": "adam", "aggregation.optimises": "tables"}, ("aggregation",)
    ),
    "momentum of the server": Base({**FEDCAR, "aggregation.optimiser": "momentum"}, ("aggregation",)),
    "strategy reg": Base({**F3CREC, "strategy": "reg", "continual.kd_weight": DROPPED}, ("continual",)),
    **{f"strategy {name}": Base({**F3CREC, "strategy": name}, ("continual",)) for name in ("spp", "rlp2")},
    "nobody waits": Base({**FEDMF, "fleet.rounds.policy": "async", "fleet.rounds.buffer": "9"}, ASYNC),
    "what came first": Base({**FEDMF, "fleet.rounds.policy": "first_k"}, ("fleet.rounds",)),
    "nobody waits, and nobody is left": Base(
        {**FEDMF, "fleet.rounds.policy": "async", "fleet.rounds.buffer": "55"}, ("fleet.rounds.min_fraction",)
    ),
    "costs by measurement": Base({**FEDMF, **COSTS}, ("fleet.cost",)),
    "distilled": Base(
        {
            **{"method": "transfr", "model.adapter": "[12, 6]", "model.head": "[6]", "local_epochs": "2"},
            "encoder.distill": json.dumps(DISTILLED),
            "encoder.encode.max_tokens": "16",
        },
        ("encoder",),
    ),
    **{
        f"words by {kind}": Base(
            {"method": "transfr", "model.adapter": "[12, 6]", "model.head": "[6]", "encoder.kind": kind, **own},
            ("encoder",),
        )
        for kind, own in (
            *(("hash", {}), ("tfidf", {})),
            *((kind, {"encoder.teacher": STUDENT}) for kind in ("static", "static+tfidf")),
        )
    },
    "smaller students": Base({**MLP, "export.students": "[{layers: 1, hidden: 24, steps: 2}]"}, ("export.students",)),
    "the history as user": Base({**MODELS["mlp"], "model.user_encoder": "mean"}, ("model",)),
    "as TransFR is written": Base(
        {key: value for key, value in MLP.items() if key != "model.head"} | {"fidelity": "paper"},
        ("model.sends", "model.head_form", "model.lr", "local_training"),
    ),
    "two domains": Base(
        {**MLP, **ACROSS},
        ("protocol", "model.adapter_fit"),
    ),
    "words of two domains": Base(
        {
            **{"method": "transfr", "model.adapter": "[12, 6]", "model.head": "[6]", "encoder.kind": "tfidf"},
            **ACROSS,
        },
        ("encoder.fit",),
    ),
    "positives among their negatives": Base({**FEDMF, "model.loss": "softmax"}, ("model.loss", "model.temperature")),
    "sums over examples": Base({**MLP, "model.loss": "bce"}, ("model.reduction",)),
    "scores that are scaled": Base({**FEDMF, "model.loss": "bce-scaled"}, ("model.loss", "model.loss_lr")),
    "held out by ratio": Base({**FEDMF, "protocol.name": "holdout"}, ("protocol",)),
    "held out from a moment on": Base({**FEDMF, "protocol.name": "holdout", "protocol.by": "time"}, ("protocol",)),
    "cold items": Base(
        {**MLP, "protocol.name": "holdout", "protocol.by": "cold-items"}, ("protocol", "model.adapter_fit")
    ),
    "the best round": Base({**FEDMF, "evaluation.keep": "best"}, ("evaluation.judged_by", "evaluation.patience")),
    "worker processes": Base({**FEDMF, "engine.executor": "processes"}, ("engine",)),
    "shards by memory": Base({**FEDMF, "engine.shard_size": DROPPED}, ("engine",)),
}
"""Choices, with the settings that are theirs."""
