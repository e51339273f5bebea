"""These are the methods that ship: a row each, whose local program is in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgefr.methods import METHODS, Method
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.methods.transfr.settings import TransFRSettings

for _row in (
    Method(
        name="transfr",
        paper="TransFR: Transferable Federated Recommendation with Pre-trained Language Models",
        settings=TransFRSettings,
        build="edgefr.methods.transfr.program:build",
        defaults={"rounds": 10, "local_epochs": 30, "clients_per_round": 0.2, "batch_size": 256},
        needs_text=True,
        stages=("finetune", "localtrain"),
        ablation="edgefr.methods.transfr.ablation:untrained_stages",
        ours={"local_epochs": 5, "model": {"user_encoder": "mean"}},
        clients={"lora": {"local_epochs": 2, "batch_size": 32}},  # a step costs hundreds of an adapter's
    ),
    Method(
        name="fedmf",
        paper="FedMF, as the backbone of F3CRec",
        settings=FedMFSettings,
        build="edgefr.methods.fedmf.program:build",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        between_blocks={"carry": "last"},
    ),
    Method(
        name="fedncf",
        paper="FedNCF, as a backbone of F3CRec",
        settings=FedNCFSettings,
        build="edgefr.methods.fedncf.program:build",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        between_blocks={"reset_private": True},
    ),
    Method(
        name="pfedrec",
        paper="PFedRec: Dual Personalization on Federated Recommendation, as a backbone of F3CRec",
        settings=PFedRecSettings,
        build="edgefr.methods.pfedrec.program:build",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        between_blocks={"reset_private": True},
    ),
    Method(
        name="gpfedrec",
        paper="GPFedRec: Graph-Guided Personalization for Federated Recommendation, as a baseline of FCUCR",
        settings=GPFedRecSettings,
        build="edgefr.methods.gpfedrec.program:build",
        defaults={
            "rounds": 100,
            "local_epochs": 1,
            "clients_per_round": 1.0,
            "batch_size": 256,
            "aggregation": {"rule": "graph"},
        },
        own_rows=True,
        answered=True,
    ),
    Method(
        name="fedrap",
        paper="FedRAP: Federated Recommendation with Additive Personalization, as a baseline of FCUCR",
        settings=FedRAPSettings,
        build="edgefr.methods.fedrap.program:build",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 256},
        own_rows=True,
    ),
):
    METHODS.register(_row)


METHODS.register(
    replace(
        METHODS["fedmf"],
        name="f3crec",
        paper="F3CRec: Federated Continual Recommendation",
        defaults={
            "backbone": "fedmf",
            "strategy": "f3crec",
            "protocol": {"name": "blocks"},
        },
    )
)


SESSIONS: Mapping[str, Any] = {
    "protocol": {"name": "sessions"},
    "rounds": 40,
    "local_epochs": 4,
    "negatives": 1,
    "clients_per_round": 1.0,
    "evaluation": {"k": [10]},
    "engine": {"shard_size": 128},  # a client's windows and tensors take about a megabyte; measured fastest
}
"""What methods over sessions start from (FCUCR A.1)."""

ALONE = {"personal": False, "teacher": "none", "prototypes": "none"}
"""A federated backbone with nothing of FCUCR's."""

for _encoder, _paper in (
    ("sasrec", "Fed-SASRec, as a backbone of FCUCR"),
    ("gru4rec", "Fed-GRU4Rec, as a backbone of FCUCR"),
    ("tisasrec", "Fed-TiSASRec, as a backbone of FCUCR"),
):
    METHODS.register(
        Method(
            name=_encoder,
            paper=_paper,
            settings=FCUCRSettings,
            build="edgefr.methods.fcucr.program:build",
            defaults={**SESSIONS, "model": {"encoder": _encoder, **ALONE}},
            released={"protocol": {"name": "sessions", "stream": "cyclic"}, "model": {"masked": False}},
            reads="sessions",
        )
    )

METHODS.register(
    replace(
        METHODS["sasrec"],
        name="fcucr",
        paper="FCUCR: Learning Evolving Preferences, a Federated Continual Framework for User-Centric Recommendation",
        defaults={
            **SESSIONS,
            "backbone": "sasrec",
            "model": {"personal": True, "teacher": "previous_local", "prototypes": "received"},
            "aggregation": {"weights": "size"},
        },
        released={
            "protocol": {"name": "sessions", "stream": "cyclic"},
            "model": {
                "personal": True,
                "masked": False,
                "teacher": "received_global",
                "distill": "clamped",
                "prototypes": "trained",
                "pooling": "map",
                "asks_when_recommending": False,
            },
            "aggregation": {"weights": "uniform"},
        },
    )
)
