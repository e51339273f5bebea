"""These are the fields of an experiment, and what follows from them alone."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, Field

from cloud.fusion import KnowledgeSettings
from cloud.rule import AggregationSettings
from edgefr.config.attackers import AttackersSection
from edgefr.config.documents import PublicModel
from edgefr.config.executors import EngineSection
from edgefr.config.validation import Section
from edgefr.data.protocol import ProtocolSettings
from edgefr.experiment.continual import BETWEEN_BLOCKS, ContinualSettings
from edgefr.experiment.method import Context, Method, method
from edgefr.experiment.sections import EncoderSection, ExportSection, SessionsSection
from edgefr.metrics.settings import PATIENCE, EvaluationSection
from privacy.prototypes import Prototypes
from privacy.settings import PrivacySettings

KINDS = ("name", "rule")
"""Keys that say of what kind a section is, so that another kind's defaults mean nothing to it."""


class ExperimentFields(Section, PublicModel):
    """These are the fields of an experiment, and what follows from them."""

    name: str = Field("demo", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="name of the run folder")
    method: str = Field("transfr", description="a method of the table: fedmf, pfedrec, fcucr, fedrap, ...")
    backbone: str | None = Field(None, description="whose local program clients run; none: the method's own")
    model: dict[str, Any] = Field(default_factory=dict, description="hyper-parameters of the backbone")
    strategy: str = Field("ft", description="what keeps old knowledge: ft, reg, kd, rlp2, spp, f3crec, its ablations")
    continual: ContinualSettings = Field(default_factory=ContinualSettings, description="protocol blocks alone")
    sessions: SessionsSection = Field(default_factory=SessionsSection, description="protocol sessions alone")
    knowledge: KnowledgeSettings = Field(
        default_factory=KnowledgeSettings, description="the server's prototypes (fcucr alone)"
    )
    fidelity: Literal["ours", "paper", "released"] = Field(
        "ours",
        description="ours: the settings we recommend, the paper's where we know no better; paper: what the text says; "
        "released: what its public code does",
    )
    data: str = Field("demo", description="data set: demo, ml-100k, ml-latest-small, lastfm-2k, amazon, ...")
    data_options: dict[str, Any] = Field(default_factory=dict, description="options of the data set's reader")
    protocol: ProtocolSettings = Field(default_factory=ProtocolSettings, description="split and candidates")
    rounds: int = Field(10, ge=0, le=1_000_000, description="federated rounds (T)")
    local_epochs: int = Field(1, ge=1, le=10_000, description="epochs on a device per round (E)")
    clients_per_round: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="cohort: a share of the clients up to 1, or a number above 1"
    )
    local_training: Literal["everybody", "cohort"] = Field(
        "everybody",
        description="who trains locally after the rounds; cohort: the clients drawn for the last of them, or as many "
        "of another task (TransFR, Algorithm 1, line 11)",
    )
    batch_size: int = Field(256, ge=1, description="examples per optimiser step")
    negatives: int = Field(4, ge=0, le=1000, description="sampled negatives per positive")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="every random number of the run follows from it")
    aggregation: AggregationSettings = Field(default_factory=AggregationSettings, description="the server's rule")
    encoder: EncoderSection = Field(default_factory=EncoderSection, description="text encoder (methods that read text)")
    privacy: PrivacySettings = Field(default_factory=PrivacySettings, description="clip, noise, budget")
    attackers: AttackersSection | None = Field(None, description="hostile clients; none: there are none")
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection, description="metrics")
    engine: EngineSection = Field(default_factory=EngineSection, description="executor and its shards")
    fleet: dict[str, Any] = Field(default_factory=dict, description="changes to devices.yaml: fleet, fleet.rounds")
    export: ExportSection = Field(default_factory=ExportSection, description="variants of the bundles")

    @property
    def row(self) -> Method:
        return method(self.backbone or self.method)

    @property
    def own(self) -> Method:
        """Return the method's own row of the table, whose defaults and released values it starts from."""
        return method(self.method)

    @property
    def settings(self) -> BaseModel:
        """`model` as the settings of the local program that clients run."""
        return self.row.settings.model_validate(self.model)

    @property
    def context(self) -> Context:
        """Return what the method may ask of the experiment around its own settings."""
        return Context(
            self.row.name,
            self.model,
            self.protocol,
            self.strategy,
            self.encoder.kind,
            self.negatives,
            self.rounds,
            self.total_rounds,
            self.knowledge.interval,
            self.privacy,
            self.evaluation,
        )

    @property
    def prototypes(self) -> Prototypes | None:
        return self.row.sent(self.settings, self.context)

    @property
    def over_blocks(self) -> ContinualSettings:
        """Return `continual` with the released code's values for unset fields where that is run."""
        released = self.row.between_blocks if self.fidelity == "released" else {}
        left = [name for name in BETWEEN_BLOCKS if getattr(self.continual, name) is None]
        return self.continual.model_copy(update={name: released.get(name, BETWEEN_BLOCKS[name]) for name in left})

    @property
    def total_rounds(self) -> int:
        """Return the rounds in which updates leave devices, of all stages."""
        return 0 if self.row.central is not None else self.rounds * self.protocol.learned

    @property
    def drawn_negatives(self) -> int:
        """Return the negatives that clients draw for a positive, 0 where the loss reads the whole catalogue."""
        return 0 if self.learns_from_all else self.negatives

    @property
    def learns_from_all(self) -> bool:
        """Say whether the loss reads the whole catalogue instead of negatives."""
        whole = self.row.whole_catalogue
        return whole is not None and whole(self.model)

    @property
    def keeps_best(self) -> bool:
        """Say whether leave-one-out keeps the best round on validation items, which is a choice that no noise hides."""
        if self.evaluation.keep is not None:
            return self.evaluation.keep == "best"
        read = "evaluation.patience" in self.protocol.entry.own and self.protocol.entry.tuned
        return read and self.fidelity == "ours" and self.row.central is None and not self.draws_noise

    @property
    def measured(self) -> EvaluationSection:
        """Return what is measured, with the learning curve's ranking and users settled where no ranking is set.

        It is the test's ranking, of no more users than the test's, under our settings where one item is held out.
        """
        asked, entry = self.evaluation, self.protocol.entry
        if asked.curve_ranking is not None:
            return asked
        one_item = "evaluation.patience" in entry.own and not entry.several
        if self.fidelity == "ours" and one_item and asked.full_ranking_users:
            users = min(asked.curve_users, asked.full_ranking_users)
            return asked.model_copy(update={"curve_ranking": "full", "curve_users": users})
        return asked.model_copy(update={"curve_ranking": "sampled"})

    @property
    def patience(self) -> float:
        """Return the rounds without a better validation after which those of leave-one-out end."""
        asked = self.evaluation
        if not self.keeps_best or (asked.patience is None and asked.keep is not None):
            return math.inf
        return asked.patience or max(PATIENCE, asked.every)

    @property
    def draws_noise(self) -> bool:
        """Say whether a run draws by its noise key: on updates, in DP-SGD, or for relays."""
        relays = self.prototypes is not None and self.prototypes.through == "relay"
        return self.privacy.law is not None or self.privacy.examples is not None or relays

    def cohort_size(self, clients: int) -> int:
        """Return the clients per round out of `clients`, at least 1."""
        wanted = self.clients_per_round * clients if self.clients_per_round <= 1 else self.clients_per_round
        return max(1, min(clients, round(wanted)))
