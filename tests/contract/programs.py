"""Every method of the table on a small catalogue, in each of its shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.tables import Own
from edgefr.engine.work import LocalWork
from edgefr.experiment.method import METHODS
from edgefr.methods.regularised import Anchored, anchors
from edgefr.methods.testing import cases
from export.given import Given
from export.program import LocalProgram
from tests.methods import berts

ITEMS, CLIENTS, WIDTH = 60, 23, 16

READER = partial(berts.reader, ITEMS, layers=1)  # tracing takes as long as there are layers

ROWS = {"dim": 8, "lr": 0.5, "item_lr": 20.0, "init_scale": 0.3}
MF, NCF = {**ROWS, "init_scale": 0.1}, {**ROWS, "user_lr": 2.0}
LAYERS = {"dim": 6, "scorer": "mlp", "hidden": [5, 4], "lr": 0.3, "user_lr": 1.0, "item_lr": 20.0, "pull": 3.0}
RAP = {"dim": 8, "lr": 0.5, "item_lr": 5.0, "own_lr": 5.0, "init_scale": 0.3}
RECON = {"dim": 8, "rebuild_lr": 0.5, "item_lr": 20.0, "init_scale": 0.3}
CAR = {"dim": 8, "lr": 0.5, "encoder_lr": 0.1, "item_lr": 5.0, "init_scale": 0.3}
COOL, ROUNDED = {"loss": "softmax", "temperature": 0.5}, {"bce_of": "probabilities"}
TWO = {"adapter": [18, 8], "head": [6, 8]}
ONE, SGD = {"adapter": [8], "head": [8]}, {"optimiser": "sgd", "lr": 0.05}
LORA = {"client": "lora", "lora_lr": 0.01}
VARIANTS: dict[str, tuple[str, dict]] = {
    "fedmf": ("fedmf", MF),
    "fedncf": ("fedncf", NCF),
    "fedncf with a network": ("fedncf", {**NCF, "dim": 6, "scorer": "mlp", "hidden": [5, 4], "lr": 0.3}),
    "pfedrec": ("pfedrec", ROWS),
    "pfedrec in turns": ("pfedrec", {**ROWS, "turns": "batches", **ROUNDED}),
    "pfedrec of probabilities": ("pfedrec", {**ROWS, **ROUNDED}),
    "gpfedrec": ("gpfedrec", {**ROWS, "pull": 3.0}),
    "gpfedrec in layers": ("gpfedrec", LAYERS),
    "gpfedrec of whole tables": ("gpfedrec", {**ROWS, "pulls": "table", **ROUNDED}),
    "gpfedrec as released": ("gpfedrec", {**LAYERS, "pulls": "table", **ROUNDED, "recommends": "global"}),
    "fedrap": ("fedrap", {**RAP, "apart": 0.05, "curriculum": 4.0}),
    "fedrecon": ("fedrecon", {**RECON, "support": 0.6}),
    "fedlightgcn": ("fedlightgcn", {**ROWS, "neighbours": 4}),
    "fedlightgcn by softmax": ("fedlightgcn", {**ROWS, "neighbours": 3, "layers": 3, **COOL}),
    "fcf": ("fcf", {"dim": 8, "alpha": 3.0, "ridge": 4.0, "init_scale": 0.3}),
    "fedcar": ("fedcar", {**CAR, "norm": "post"}),
    "fedcar vectors, two heads": (
        "fedcar",
        {**CAR, "negative": "vectors", "heads": 2, "norm": "pre", "alternates": False},
    ),
    "fedcar both, projected": (
        "fedcar",
        {**CAR, "negative": "both", "attention": "projected", "norm": "none", "context": 3},
    ),
    "fedcar, context alone": ("fedcar", {**CAR, "negative": "none"}),
    "fedcar, neither": ("fedcar", {**ROWS, "context": 0, "negative": "none"}),
    "anchored fedmf": ("fedmf", MF),
    "anchored pfedrec": ("pfedrec", ROWS),
    "anchored transfr": ("transfr", {**ONE, "head_form": "plain", "lr": 0.01}),
    "transfr vector": ("transfr", {**TWO, "local_trains": "head and user", "lr": 0.01}),
    "transfr mean": (
        "transfr",
        {**TWO, "adapter": [12, 8], "adapter_init": "random", "user_encoder": "mean", "lr": 0.01},
    ),
    "transfr vector, neural": ("transfr", {**TWO, "match": "neural", **SGD}),
    "transfr mean by softmax, neural": ("transfr", {**TWO, "match": "neural", "user_encoder": "mean", **SGD, **COOL}),
    "transfr lora": ("transfr", {**LORA, "adapter": [16, 8], "head": [6, 8], "lora_rank": 2, "lr": 0.01}),
    "transfr lora mean": (
        "transfr",
        {**LORA, **ONE, "lora_layers": 1, "user_encoder": "mean", "optimiser": "sgd", "lr": 0.02},
    ),
    "transfr sgd plain": ("transfr", {**ONE, "head_form": "plain", **SGD}),
    "fedmf by bpr": ("fedmf", {**MF, "loss": "bpr"}),
    "fedncf by softmax": ("fedncf", {**NCF, "loss": "softmax"}),
    "pfedrec in turns by softmax": ("pfedrec", {**ROWS, "turns": "batches", **COOL}),
    "gpfedrec in layers by bpr": ("gpfedrec", {**LAYERS, "loss": "bpr"}),
    "fedrap by bpr": ("fedrap", {**RAP, "loss": "bpr"}),
    "fedrecon by softmax": ("fedrecon", {**RECON, **COOL}),
    "fedmf by bce-scaled": ("fedmf", {**ROWS, "loss": "bce-scaled"}),
    "pfedrec by bce-scaled": ("pfedrec", {**MF, "loss": "bce-scaled"}),
    "transfr as written": (
        "transfr",
        {
            **{"adapter": [18, 8], "adapter_init": "random", "head_form": "adapter"},
            **{"sends": "gradients", "reduction": "sum", **SGD, "lr": 0.002, "user_lr": None},
        },
    ),
    # moves by Adam, which losses that compare cannot
    "transfr mean by bce-scaled": ("transfr", {**TWO, "user_encoder": "mean", "lr": 0.01, "loss": "bce-scaled"}),
    "transfr vector by softmax": ("transfr", {**TWO, **SGD, "negative_weight": 5.0, **COOL}),
    "transfr mean by softmax": ("transfr", {**TWO, "user_encoder": "mean", **SGD, **COOL}),  # as the default run has it
}


def program(variant: str, local_epochs: int = 3) -> LocalProgram:
    name, settings = VARIANTS[variant]
    row = METHODS[name]
    text = torch.from_numpy(np.random.default_rng(0).standard_normal((ITEMS, WIDTH)).astype(np.float32))
    given = Given(ITEMS, local_epochs, text if row.needs_text else None, READER)
    local = row.program(row.settings.model_validate(settings), given)
    return Held(local, weight=0.1) if variant.startswith("anchored") else local


class Held(Anchored):
    """A block in which two clients of three and three items of four have a past, which the model has left far behind.

    What a client's past is depends on its number alone, as all first values do.
    """

    def init_shared(self, seed: int) -> dict[str, torch.Tensor]:
        shared = self.program.init_shared(seed)
        past = {name: value + 0.5 for name, value in self.program.init_shared(seed + 1).items()}
        old = {name: torch.arange(len(past[name])) % 4 > 0 for name in past if self.specs[name].kind == "rows"}
        return shared | anchors(past, {}, torch.zeros(0), old)[0]

    def init_private(self, seed: int, clients: torch.Tensor) -> dict[str, torch.Tensor]:
        past = {name: value - 0.5 for name, value in self.program.init_private(seed + 1, clients).items()}
        return self.program.init_private(seed, clients) | anchors({}, past, clients % 3 > 0)[1]


def interactions(seed: int = 1, clients: int = CLIENTS) -> Ragged:
    """Clients of very different activity; one has nothing."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.geometric(0.12, clients), ITEMS // 2)
    counts[clients // 2] = 0
    return Ragged.from_lists([rng.choice(ITEMS, n, replace=False) for n in counts])


def work(local: LocalProgram, when: str = "round", batch_size: int = 16, train: Ragged | None = None) -> LocalWork:
    train = interactions() if train is None else train
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, negatives=3, batch_size=batch_size, seed=5)
    phases = [phase for phase in local.phases if phase.when == when]
    return LocalWork(local, phases, sampler, train, 2, torch.device("cpu"), tables=own_rows(local, len(train)))


def in_float64(todo: LocalWork) -> LocalWork:
    """The same work with all that its program reads in float64 (`edgefr.methods.testing.closeness` says why)."""
    tables = {name: cases.Wide(table) for name, table in todo.tables.items()}
    return replace(todo, program=cases.widened(todo.program), tables=tables)


def doubled(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.double() for name, value in tensors.items()}


def most_steps(todo: LocalWork) -> int:
    """Steps of the client that has most to learn from, in any phase of the work."""
    examples = int(interactions().counts.max()) * 4  # three negatives of each
    return max(phase.epochs for phase in todo.phases) * -(-examples // cast(Sampler, todo.sampler).batch_size)


def own_rows(local: LocalProgram, clients: int = CLIENTS) -> dict[str, Own]:
    """Rows of the clients' own tables: a third of them touched before, or made of other clients' changes."""
    return cases.own_rows(local, ITEMS, clients)
