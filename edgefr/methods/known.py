"""These are the methods that ship: a row each, whose local program is in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgefr.experiment.method import METHODS, Central, Method
from edgefr.methods.central.settings import (
    CMFSettings,
    EaseSettings,
    EMCDRSettings,
    MFSettings,
    NeuMFSettings,
    PMFSettings,
)
from edgefr.methods.dmi_gnn.settings import DMIGNNSettings
from edgefr.methods.fcf.settings import FCFSettings
from edgefr.methods.fcucr.parts import LOSSES
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.fedcar.settings import FedCARSettings
from edgefr.methods.feddcsr.settings import FedDCSRSettings
from edgefr.methods.fedlightgcn.settings import FedLightGCNSettings
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.fedrecon.settings import FedReconSettings
from edgefr.methods.fedsasrec.settings import FedSASRecSettings
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.hearint.settings import HearIntSettings
from edgefr.methods.miasrec.settings import MiaSRecSettings
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.methods.transfr.settings import TransFRSettings

_IN_BLOCKS: Mapping[str, Any] = {"redraw": "step", "labels": "anew", "item_rate": "present"}
"""What F3CRec's released code does with every backbone."""

_ROUNDS: Mapping[str, Any] = {"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0}

AS_ZHANG: Mapping[str, Any] = {
    "rounds": 100,
    "batch_size": 256,
    "protocol": {"name": "leave-one-out", "negatives_avoid_held_out": True},
    "evaluation": {"keep": "best", "judged_by": "HR", "tables": "own"},
}
"""How the released codes of PFedRec and GPFedRec split, train and evaluate."""

for _row in (
    Method(
        name="transfr",
        paper="TransFR: Transferable Federated Recommendation with Pre-trained Language Models",
        settings=TransFRSettings,
        build="edgefr.methods.transfr.program:build",
        check="edgefr.methods.transfr.settings:check",
        defaults={"rounds": 10, "local_epochs": 30, "clients_per_round": 0.2, "batch_size": 256},
        needs_text=True,
        stages=("finetune", "localtrain"),
        ablation="edgefr.methods.transfr.program:untrained_stages",
        ours={
            "rounds": 60,
            "local_epochs": 1,
            "batch_size": 4096,  # everything that a client has, in one step
            "aggregation": {"rule": "mean", "optimiser": "adam", "optimiser_lr": 0.003},
            "evaluation": {"every": 10},
            "model": {
                "user_encoder": "mean",
                "loss": "softmax",
                "temperature": 0.5,
                "optimiser": "sgd",
                "lr": 1.0,
                "head_lr": 0.01,
            },
        },
        as_written={
            "local_training": "cohort",
            "aggregation": {"rule": "mean", "optimiser": "sgd", "server_lr": 1e-3},
            "model": {
                "sends": "gradients",
                "reduction": "sum",
                "optimiser": "sgd",
                "lr": 1e-3,
                "user_lr": None,
                "head_form": "adapter",
                "adapter_init": "random",
            },
        },
        clients={  # a step costs hundreds of an adapter's
            "lora": {
                "rounds": 10,
                "local_epochs": 2,
                "batch_size": 32,
                "aggregation": {"rule": "mean", "optimiser": "sgd"},
                "evaluation": {"every": 1},
                "model": {"optimiser": "adam", "lr": 1e-3, "head_lr": None},
            }
        },
    ),
    Method(
        name="fedmf",
        paper="FedMF, as the backbone of F3CRec",
        settings=FedMFSettings,
        build="edgefr.methods.fedmf.program:FedMF.build",
        check="edgefr.methods.objectives:check",
        defaults={**_ROUNDS, "batch_size": 512},
        between_blocks={**_IN_BLOCKS, "carry": "last"},
    ),
    Method(
        name="fedncf",
        paper="FedNCF: Federated Neural Collaborative Filtering, and as a backbone of F3CRec",
        settings=FedNCFSettings,
        build="edgefr.methods.fedncf.program:build",
        check="edgefr.methods.objectives:check",
        defaults={**_ROUNDS, "batch_size": 512},
        between_blocks={**_IN_BLOCKS, "reset_private": True},
        released_over={"blocks": {"model": {"user_start": "same"}}},
    ),
    Method(
        name="pfedrec",
        paper="PFedRec: Dual Personalization on Federated Recommendation, as a backbone of F3CRec",
        settings=PFedRecSettings,
        build="edgefr.methods.pfedrec.program:PFedRec.build",
        check="edgefr.methods.objectives:check",
        defaults={**_ROUNDS, "batch_size": 512},
        between_blocks={**_IN_BLOCKS, "reset_private": True},
        released_over={
            "blocks": {"model": {"turns": "batches"}},
            "leave-one-out": {**AS_ZHANG, "model": {"item_times": 80.0, "turns": "batches", "bce_of": "probabilities"}},
        },
    ),
    Method(
        name="gpfedrec",
        paper="GPFedRec: Graph-Guided Personalization for Federated Recommendation, as a baseline of FCUCR",
        settings=GPFedRecSettings,
        build="edgefr.methods.gpfedrec.program:build",
        defaults={**_ROUNDS, "batch_size": 256, "aggregation": {"rule": "graph"}},
        own_rows=True,
        answered=True,
        check="edgefr.methods.gpfedrec.settings:check",
        released_over={
            "leave-one-out": {
                **AS_ZHANG,
                "model": {"scorer": "mlp", "pulls": "table", "bce_of": "probabilities", "recommends": "global"},
                "aggregation": {"rule": "graph", "similarity": "distance"},
            }
        },
    ),
    Method(
        name="fedcar",
        paper="FedCAR: Federated Context-Aware Personalized Recommendation",
        settings=FedCARSettings,
        build="edgefr.methods.fedcar.program:build",
        messages="edgefr.methods.fedcar.settings:messages",
        check="edgefr.methods.fedcar.settings:check",
        ordered=True,
        # a client's copies of the encoder are no examples, and shards of 64 are measured fastest
        defaults={**_ROUNDS, "batch_size": 256, "engine": {"shard_size": 64}},
    ),
    Method(
        name="fedrap",
        paper="FedRAP: Federated Recommendation with Additive Personalization, as a baseline of FCUCR",
        settings=FedRAPSettings,
        build="edgefr.methods.fedrap.program:FedRAP.build",
        check="edgefr.methods.objectives:check",
        defaults={**_ROUNDS, "batch_size": 256},
        own_rows=True,
    ),
    Method(
        name="fcf",
        paper="FCF: Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation System",
        settings=FCFSettings,
        build="edgefr.methods.fcf.program:build",
        defaults={"rounds": 100, "clients_per_round": 1.0, "aggregation": {"rule": "gram"}},
        stateless=True,
        grams=True,
        batches=False,
        check="edgefr.methods.fcf.settings:check",
    ),
    Method(
        name="fedrecon",
        paper="FedRecon: Federated Reconstruction, Partially Local Federated Learning (Singhal et al., NeurIPS 2021)",
        settings=FedReconSettings,
        build="edgefr.methods.fedrecon.program:FedRecon.build",
        check="edgefr.methods.objectives:check",
        defaults={**_ROUNDS, "batch_size": 512},
        stateless=True,
    ),
    Method(
        name="fedlightgcn",
        paper="LightGCN (He et al., SIGIR 2020) on each client's own graph, a rival of FCUCR and FedCAR",
        settings=FedLightGCNSettings,
        build="edgefr.methods.fedlightgcn.program:FedLightGCN.build",
        check="edgefr.methods.objectives:check",
        ordered=True,
        defaults={**_ROUNDS, "batch_size": 256},
    ),
):
    METHODS.register(_row)


METHODS.register(
    replace(
        METHODS["fedmf"],
        name="f3crec",
        paper="F3CRec: Federated Continual Recommendation",
        defaults={"backbone": "fedmf", "strategy": "f3crec", "protocol": {"name": "blocks"}},
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

FCUCR_AS_WRITTEN: Mapping[str, Any] = {"sessions": {"patience": 5}, "aggregation": {"weights": "size"}}
"""What FCUCR's text says of it and its backbones: rounds end (A.1), and clients weigh by their data (Alg. 1)."""

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
            messages="edgefr.methods.fcucr.settings:messages",
            defaults={**SESSIONS, "model": {"encoder": _encoder, **ALONE}},
            as_written=FCUCR_AS_WRITTEN,
            released={
                "protocol": {"name": "sessions", "stream": "cyclic"},
                "model": {"masked": False, "starts": "own", "negatives_once": True, "dropout": 0.2},
            },
            reads="sessions",
            whole_catalogue=lambda model: LOSSES[model["loss"]].whole,
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
                "starts": "own",
                "dropout": 0.2,
                "mlp_init": "xavier",
                "dice_scaled": True,
                "dice_over": "all",
                "dice_running": True,
                "negatives_once": True,
                "teacher": "received_global",
                "distill": "clamped",
                "distill_first": False,
                "distill_over": "all",
                "prototypes": "trained",
                "prototype_of": "last_step",
                "query": "next",
                "pooling": "map",
            },
            "aggregation": {"weights": "uniform"},
        },
    )
)

for _name, _paper, _settings, _program in (
    (
        "miasrec",
        "Fed-MiaSRec: Multi-intent-aware Session-based Recommendation (SIGIR 2024), as a baseline of FCUCR",
        MiaSRecSettings,
        "miasrec.program:MiaSRec",
    ),
    (
        "dmi-gnn",
        "Fed-DMI-GNN: Dynamic Multi-Interest Graph Neural Network for Session-Based Recommendation (AAAI 2025), "
        "as a baseline of FCUCR",
        DMIGNNSettings,
        "dmi_gnn.program:DMIGNN",
    ),
    (
        "hearint",
        "Fed-HearInt: Spatial-Temporal Perceiving, Deciphering User Hierarchical Intent in Session-Based "
        "Recommendation (IJCAI 2024), as a baseline of FCUCR",
        HearIntSettings,
        "hearint.program:HearInt",
    ),
):
    build = f"edgefr.methods.{_program}.build"
    METHODS.register(Method(_name, _paper, _settings, build, defaults=SESSIONS, reads="sessions"))

METHODS.register(
    Method(
        name="fedsasrec",
        paper="FedSASRec: Self-Attentive Sequential Recommendation (Kang and McAuley, ICDM 2018) in rounds, as a "
        "baseline of TransFR",
        settings=FedSASRecSettings,
        build="edgefr.methods.fedsasrec.program:build",
        defaults={
            "rounds": 40,
            "local_epochs": 1,
            "clients_per_round": 0.2,
            "aggregation": {"rule": "mean", "optimiser": "adam", "optimises": "tables"},
            "engine": {"shard_size": 128},
        },
        reads="sequence",
    )
)

_ALONE: Mapping[str, Any] = {"stages": ("central", None)}

_ACROSS: Mapping[str, Any] = {
    "stages": ("central", "with target items"),
    "check": "edgefr.methods.central.references:across",
}
"""A reference across domains has two models: without what a user has in the target, and with it."""

for _central, _title, _schema, _batch, _more in (
    (
        "mf",
        "Central MF: BPR, Bayesian Personalized Ranking (Rendle et al., UAI 2009), or another loss",
        MFSettings,
        1024,
        _ALONE,
    ),
    (
        "pmf",
        "Central PMF: Probabilistic Matrix Factorization (Salakhutdinov and Mnih, NIPS 2007), which is mf by squared "
        "error",
        PMFSettings,
        1024,
        _ALONE,
    ),
    ("neumf", "Central NeuMF: Neural Collaborative Filtering (He et al., WWW 2017)", NeuMFSettings, 512, _ALONE),
    (
        "ease",
        "Central EASE^R: Embarrassingly Shallow Autoencoders for Sparse Data (Steck, WWW 2019)",
        EaseSettings,
        None,
        _ALONE,
    ),
    (
        "cmf",
        "Central CMF: Relational Learning via Collective Matrix Factorization (Singh and Gordon, KDD 2008)",
        CMFSettings,
        1024,
        _ACROSS,
    ),
    (
        "emcdr",
        "Central EMCDR: Cross-Domain Recommendation, an Embedding and Mapping Approach (Man et al., IJCAI 2017)",
        EMCDRSettings,
        1024,
        _ACROSS,
    ),
    (
        "feddcsr",
        "Central FedDCSR: Federated Cross-domain Sequential Recommendation via Disentangled Representation Learning "
        "(Zhang et al., SDM 2024), whose clients are domains",
        FedDCSRSettings,
        256,
        _ACROSS,
    ),
):
    _place = f"edgefr.methods.{'feddcsr.program' if _central == 'feddcsr' else 'central.references'}:{_central}"
    METHODS.register(
        Method(
            _central,
            _title,
            _schema,
            f"{_place}_program",
            central=Central(f"{_place}_learner", batches=_batch is not None),
            defaults={} if _batch is None else {"batch_size": _batch},
            **_more,
        )
    )
