"""The methods: one folder each, one table. A method is a local program and the experiment values it starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from privacy.errors import unknown

if TYPE_CHECKING:
    import torch

    from edgefr.methods.program import LocalProgram
    from edgefr.methods.transfr.bert import Reader


@dataclass(frozen=True)
class Method:
    """One row of the table. `build(settings, items, text, local_epochs, reader)` makes the local program.

    `text` are the items' vectors; `reader` opens titles and encoder for programs that read on the device.

    `defaults` are experiment values that differ from the general ones; `needs_text`: items are read as text. `stages`
    name the model after the rounds and after local training (None: the method has none); `untrained(settings, text,
    random_text, seed)` gives the ablation's stages before anything is learned. `clients` are experiment values that go
    before `defaults`, by the value of `model.client`; `released` go before them where fidelity is released. `own_rows`:
    item rows differ from client to client, which neither bundles nor blocks can hold. `reads`: whether clients learn
    from sets of items or from sessions in order.
    """

    name: str
    paper: str
    settings: type[BaseModel]
    build: Callable[..., LocalProgram]
    defaults: Mapping[str, Any]
    needs_text: bool
    stages: tuple[str, str | None]
    untrained: Callable[..., list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]] | None = None
    clients: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    released: Mapping[str, Any] = field(default_factory=dict)
    reads: Literal["items", "sessions"] = "items"
    own_rows: bool = False


def _transfr(
    settings: TransFRSettings,
    items: int,
    text: torch.Tensor | None,
    local_epochs: int,
    reader: Callable[[], Reader] | None = None,
) -> LocalProgram:
    if settings.client == "lora":
        from edgefr.methods.transfr.lora import LoRATransFR

        assert reader is not None
        return LoRATransFR(settings, reader(), text, local_epochs)
    from edgefr.methods.transfr.program import TransFR

    assert text is not None
    return TransFR(settings, text, local_epochs)


def _transfr_untrained(
    settings: TransFRSettings, text: torch.Tensor, random_text: torch.Tensor | None, seed: int
) -> list[tuple[str, LocalProgram, dict[str, torch.Tensor]]]:
    from edgefr.methods.transfr.ablation import untrained_stages

    return untrained_stages(settings, text, random_text, seed)


def _fedmf(settings: FedMFSettings, items: int, text: object, local_epochs: int, reader: object = None) -> LocalProgram:
    from edgefr.methods.fedmf.program import FedMF

    return FedMF(settings, items, local_epochs)


def _fedncf(
    settings: FedNCFSettings, items: int, text: object, local_epochs: int, reader: object = None
) -> LocalProgram:
    from edgefr.methods.fedncf.program import FedNCF

    return FedNCF(settings, items, local_epochs)


def _pfedrec(
    settings: PFedRecSettings, items: int, text: object, local_epochs: int, reader: object = None
) -> LocalProgram:
    from edgefr.methods.pfedrec.program import PFedRec

    return PFedRec(settings, items, local_epochs)


def _fedrap(
    settings: FedRAPSettings, items: int, text: object, local_epochs: int, reader: object = None
) -> LocalProgram:
    from edgefr.methods.fedrap.program import FedRAP

    return FedRAP(settings, items, local_epochs)


def _fcucr(settings: FCUCRSettings, items: int, text: object, local_epochs: int, reader: object = None) -> LocalProgram:
    from edgefr.methods.fcucr.program import FCUCR

    return FCUCR(settings, items, local_epochs)


def _gpfedrec(
    settings: GPFedRecSettings, items: int, text: object, local_epochs: int, reader: object = None
) -> LocalProgram:
    from edgefr.methods.gpfedrec.program import GPFedRec

    return GPFedRec(settings, items, local_epochs)


METHODS: dict[str, Method] = {
    "transfr": Method(
        name="transfr",
        paper="TransFR: Transferable Federated Recommendation with Pre-trained Language Models",
        settings=TransFRSettings,
        build=_transfr,
        defaults={"rounds": 10, "local_epochs": 30, "clients_per_round": 0.2, "batch_size": 256},
        needs_text=True,
        stages=("finetune", "localtrain"),
        untrained=_transfr_untrained,
        clients={"lora": {"local_epochs": 2, "batch_size": 32}},  # a step costs hundreds of an adapter's
    ),
    "fedmf": Method(
        name="fedmf",
        paper="FedMF, as the backbone of F3CRec",
        settings=FedMFSettings,
        build=_fedmf,
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        needs_text=False,
        stages=("federated", None),
    ),
    "fedncf": Method(
        name="fedncf",
        paper="FedNCF, as a backbone of F3CRec",
        settings=FedNCFSettings,
        build=_fedncf,
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        needs_text=False,
        stages=("federated", None),
    ),
    "pfedrec": Method(
        name="pfedrec",
        paper="PFedRec: Dual Personalization on Federated Recommendation, as a backbone of F3CRec",
        settings=PFedRecSettings,
        build=_pfedrec,
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 512},
        needs_text=False,
        stages=("federated", None),
    ),
    "gpfedrec": Method(
        name="gpfedrec",
        paper="GPFedRec: Graph-Guided Personalization for Federated Recommendation, as a baseline of FCUCR",
        settings=GPFedRecSettings,
        build=_gpfedrec,
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
    ),
    "fedrap": Method(
        name="fedrap",
        paper="FedRAP: Federated Recommendation with Additive Personalization, as a baseline of FCUCR",
        settings=FedRAPSettings,
        build=_fedrap,
        defaults={"rounds": 100, "local_epochs": 1, "clients_per_round": 1.0, "batch_size": 256},
        needs_text=False,
        stages=("federated", None),
        own_rows=True,
    ),
}

METHODS["f3crec"] = replace(
    METHODS["fedmf"],
    name="f3crec",
    paper="F3CRec: Federated Continual Recommendation",
    defaults={
        "backbone": "fedmf",
        "strategy": "f3crec",
        "protocol": {"name": "blocks"},
        "evaluation": {"k": [20], "full_ranking_users": 100_000, "curve_users": 100_000},
    },
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
    METHODS[_encoder] = Method(
        name=_encoder,
        paper=_paper,
        settings=FCUCRSettings,
        build=_fcucr,
        defaults={**SESSIONS, "model": {"encoder": _encoder, **ALONE}},
        needs_text=False,
        stages=("federated", None),
        released={"protocol": {"name": "sessions", "stream": "cyclic"}, "model": {"masked": False}},
        reads="sessions",
    )

METHODS["fcucr"] = replace(
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


def method(name: str) -> Method:
    """The row of the table. Raises `InputError` with the nearest names when there is none."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
