"""There is one folder per method and one table. A method is a local program and values an experiment starts from."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.fedncf.settings import FedNCFSettings
from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.methods.transfr.settings import TransFRSettings
from privacy.table import Table

if TYPE_CHECKING:
    import torch

    from edgefr.methods.given import Given
    from export.program import LocalProgram


@dataclass(frozen=True)
class Method:
    """This is one row of the table.

    `folder` names the folder below `edgefr.methods` whose `program.build` makes the program.

    `defaults` are experiment values that differ from the general ones; `needs_text`: items are read as text. `stages`
    name the model after the rounds and after local training (None: the method has none); `ablation`: the folder has
    one, whose stages before anything is learned are measured. `clients` are experiment values that go
    before `defaults`, by the value of `model.client`; `ours` and `released` go before them where that is the fidelity:
    what is recommended, and what the released code does, where either differs from the paper. `own_rows`:
    item rows differ from client to client, which neither bundles nor blocks can hold. `answered`: the server's rule has
    an answer for each client, as the program reads it. `reads`: whether clients learn
    from sets of items or from sessions in order. `between_blocks`: what F3CRec's released code does with it as a
    backbone (values of `continual`), where fidelity is released.
    """

    name: str
    paper: str
    settings: type[BaseModel]
    folder: str
    defaults: Mapping[str, Any]
    needs_text: bool
    stages: tuple[str, str | None]
    ablation: bool = False
    clients: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ours: Mapping[str, Any] = field(default_factory=dict)
    released: Mapping[str, Any] = field(default_factory=dict)
    reads: Literal["items", "sessions"] = "items"
    own_rows: bool = False
    answered: bool = False
    between_blocks: Mapping[str, Any] = field(default_factory=dict)

    def build(self, settings: BaseModel, given: Given) -> LocalProgram:
        """Build the local program by these settings, which are of the method's own type."""
        made: LocalProgram = importlib.import_module(f"edgefr.methods.{self.folder}.program").build(settings, given)
        return made

    def untrained(
        self, settings: BaseModel, text: torch.Tensor, random_text: torch.Tensor | None, seed: int
    ) -> list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]:
        """The ablation's stages before anything is learned: name, program and shared tensors of each (maybe none)."""
        if not self.ablation:
            return []
        ablation = importlib.import_module(f"edgefr.methods.{self.folder}.ablation")
        stages: list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]
        stages = ablation.untrained_stages(settings, text, random_text, seed)
        return stages


METHODS: Table[Method] = Table("method", Method)
"""Every method by its name; a method of somebody else's is one more line."""

for _row in (
    Method(
        name="transfr",
        paper="TransFR: Transferable Federated Recommendation with Pre-trained Language Models",
        settings=TransFRSettings,
        folder="transfr",
        defaults={"rounds": 10, "local_epochs": 30, "clients_per_round": 0.2, "batch_size": 256},
        needs_text=True,
        stages=("finetune", "localtrain"),
        ablation=True,
        ours={"local_epochs": 5, "model": {"user_encoder": "mean"}},
        clients={"lora": {"local_epochs": 2, "batch_size": 32}},  # a step costs hundreds of an adapter's
    ),
    Method(
        name="fedmf",
        paper="FedMF, as the backbone of F3CRec",
        settings=FedMFSettings,
        folder="fedmf",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        needs_text=False,
        stages=("federated", None),
        between_blocks={"carry": "last"},
    ),
    Method(
        name="fedncf",
        paper="FedNCF, as a backbone of F3CRec",
        settings=FedNCFSettings,
        folder="fedncf",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        needs_text=False,
        stages=("federated", None),
        between_blocks={"reset_private": True},
    ),
    Method(
        name="pfedrec",
        paper="PFedRec: Dual Personalization on Federated Recommendation, as a backbone of F3CRec",
        settings=PFedRecSettings,
        folder="pfedrec",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        needs_text=False,
        stages=("federated", None),
        between_blocks={"reset_private": True},
    ),
    Method(
        name="gpfedrec",
        paper="GPFedRec: Graph-Guided Personalization for Federated Recommendation, as a baseline of FCUCR",
        settings=GPFedRecSettings,
        folder="gpfedrec",
        defaults={
            "rounds": 100,
            "local_epochs": 1,
            "clients_per_round": 1.0,
            "batch_size": 256,
            "aggregation": {"rule": "graph"},
        },
        needs_text=False,
        stages=("federated", None),
        own_rows=True,
        answered=True,
    ),
    Method(
        name="fedrap",
        paper="FedRAP: Federated Recommendation with Additive Personalization, as a baseline of FCUCR",
        settings=FedRAPSettings,
        folder="fedrap",
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 256},
        needs_text=False,
        stages=("federated", None),
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
            folder="fcucr",
            defaults={**SESSIONS, "model": {"encoder": _encoder, **ALONE}},
            needs_text=False,
            stages=("federated", None),
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


def method(name: str) -> Method:
    """Return the row of the table. Raises `InputError` with the nearest names when there is none."""
    return METHODS[name]
