"""These are the central references that ship: a row each."""

from __future__ import annotations

from edgefr.experiment.method import METHODS, Central, Method
from edgefr.methods.central.settings import (
    CMFSettings,
    EaseSettings,
    EMCDRSettings,
    MFSettings,
    NeuMFSettings,
    PMFSettings,
)
from edgefr.methods.feddcsr.settings import FedDCSRSettings

COLD_AND_WARM = ("central", "with target items")
"""The models of a reference across domains: without what a user has in the target, and with it."""

for _row in (
    Method(
        name="mf",
        paper="Central MF: BPR, Bayesian Personalized Ranking (Rendle et al., UAI 2009), or another loss",
        settings=MFSettings,
        build="edgefr.methods.central.programs:mf_program",
        stages=("central", None),
        defaults={"batch_size": 1024},
        central=Central("edgefr.methods.central.programs:mf_learner"),
    ),
    Method(
        name="pmf",
        paper="Central PMF: Probabilistic Matrix Factorization (Salakhutdinov and Mnih, NIPS 2007), which is mf by "
        "squared error",
        settings=PMFSettings,
        build="edgefr.methods.central.programs:mf_program",
        stages=("central", None),
        defaults={"batch_size": 1024},
        central=Central("edgefr.methods.central.programs:pmf_learner"),
    ),
    Method(
        name="neumf",
        paper="Central NeuMF: Neural Collaborative Filtering (He et al., WWW 2017)",
        settings=NeuMFSettings,
        build="edgefr.methods.central.programs:neumf_program",
        stages=("central", None),
        defaults={"batch_size": 512},
        central=Central("edgefr.methods.central.programs:neumf_learner"),
    ),
    Method(
        name="ease",
        paper="Central EASE^R: Embarrassingly Shallow Autoencoders for Sparse Data (Steck, WWW 2019)",
        settings=EaseSettings,
        build="edgefr.methods.central.programs:ease_program",
        stages=("central", None),
        central=Central("edgefr.methods.central.programs:ease_learner", batches=False),
    ),
    Method(
        name="cmf",
        paper="Central CMF: Relational Learning via Collective Matrix Factorization (Singh and Gordon, KDD 2008)",
        settings=CMFSettings,
        build="edgefr.methods.central.programs:cmf_program",
        stages=COLD_AND_WARM,
        defaults={"batch_size": 1024},
        check="edgefr.methods.central.references:across",
        central=Central("edgefr.methods.central.programs:cmf_learner"),
    ),
    Method(
        name="emcdr",
        paper="Central EMCDR: Cross-Domain Recommendation, an Embedding and Mapping Approach (Man et al., IJCAI 2017)",
        settings=EMCDRSettings,
        build="edgefr.methods.central.programs:emcdr_program",
        stages=COLD_AND_WARM,
        defaults={"batch_size": 1024},
        check="edgefr.methods.central.references:across",
        central=Central("edgefr.methods.central.programs:emcdr_learner"),
    ),
    Method(
        name="feddcsr",
        paper="Central FedDCSR: Federated Cross-domain Sequential Recommendation via Disentangled Representation "
        "Learning (Zhang et al., SDM 2024), whose clients are domains",
        settings=FedDCSRSettings,
        build="edgefr.methods.feddcsr.program:build",
        stages=COLD_AND_WARM,
        defaults={"batch_size": 256},
        check="edgefr.methods.central.references:across",
        central=Central("edgefr.methods.feddcsr.program:learner"),
    ),
):
    METHODS.register(_row)
