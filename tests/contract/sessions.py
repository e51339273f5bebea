"""Programs that learn from sessions on a small catalogue, in each of their shapes, and sessions for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from edge.ragged import Ragged
from edge.sessions import SessionSampler
from edgefr.engine.work import LocalWork
from edgefr.experiment.method import METHODS
from edgefr.methods.fcucr.settings import FCUCRSettings
from export.given import Given
from export.program import SessionProgram

ITEMS, CLIENTS, LENGTH, NEGATIVES = 40, 9, 4, 2
LENGTHS = (5, 2, 9, 3, 4, 2, 7, 12, 3)
"""Items of the clients' sessions: a window has one to LENGTH inputs."""

SMALL = {"dim": 6, "length": LENGTH, "lr": 1e-3, "init_scale": 0.3}
ALONE = {"personal": False, "teacher": "none", "prototypes": "none"}
AS_RELEASED = {
    "teacher": "received_global",
    "distill": "clamped",
    "prototypes": "trained",
    "pooling": "map",
    "masked": False,
}
TO_THE_LETTER = {
    **AS_RELEASED,
    "mlp_init": "xavier",
    "dice_scaled": True,
    "dice_over": "all",
    "dice_running": True,
    "negatives_once": True,
    "distill_first": False,
    "distill_over": "all",
    "prototype_of": "last_step",
    "query": "next",
    "dropout": 0.2,
}
SHIPPABLE = {"dropout": 0.0, "dice_running": False, "prototype_of": "end", "query": "sent"}
"""What no device does of it, as it is without."""

WITHOUT_MASK = {key: value for key, value in AS_RELEASED.items() if key != "masked"}
"""What a recurrent encoder can have of it."""

VARIANTS: dict[str, tuple[str, dict]] = {
    "sasrec": ("sasrec", ALONE),
    "sasrec, two heads and blocks, softmax": ("sasrec", {**ALONE, "heads": 2, "layers": 2, "loss": "softmax"}),
    "sasrec, full softmax": ("sasrec", {**ALONE, "loss": "full-softmax", "item_bias": True}),
    "sasrec at unit length": ("sasrec", {**ALONE, "loss": "softmax", "unit": True, "temperature": 0.5}),
    "fcucr, clipped": ("fcucr", {"gradient_clip": 0.05, "prototypes": "trained"}),
    "sasrec with biases": ("sasrec", {**ALONE, "item_bias": True}),
    "sasrec unmasked": ("sasrec", {**ALONE, "masked": False}),
    "gru4rec": ("gru4rec", {**ALONE, "encoder": "gru4rec"}),
    "tisasrec": ("tisasrec", {**ALONE, "encoder": "tisasrec", "spans": 9}),
    "personal alone": ("fcucr", {"teacher": "none", "prototypes": "none"}),
    "without distillation": ("fcucr", {"teacher": "none"}),
    "without prototypes": ("fcucr", {"prototypes": "none"}),
    "distilled backbone": ("sasrec", {**ALONE, "teacher": "previous_local"}),
    "fcucr": ("fcucr", {}),
    "fcucr on gru4rec": ("fcucr", {"encoder": "gru4rec", "distill": "clamped"}),
    "fcucr on tisasrec": ("fcucr", {"encoder": "tisasrec", "spans": 9, "pooling": "map", "loss": "softmax"}),
    "fcucr, trained prototypes": ("fcucr", {"prototypes": "trained", "teacher": "received_global"}),
    "fcucr as released": ("fcucr", AS_RELEASED),
    "fcucr as released on gru4rec": ("fcucr", {**WITHOUT_MASK, "encoder": "gru4rec"}),
    "fcucr to the letter": ("fcucr", TO_THE_LETTER),
    "fcucr to the letter, own starts": ("fcucr", {**TO_THE_LETTER, "starts": "own", "init_scale": 0.1}),
    "fcucr to the letter, shippable": ("fcucr", {**TO_THE_LETTER, **SHIPPABLE}),
    "fcucr unmasked, mean prototypes": ("fcucr", {**AS_RELEASED, "pooling": "mean"}),
    "fedsasrec": ("fedsasrec", {"heads": 2, "loss": "softmax"}),
    "miasrec": ("miasrec", {}),
    "hearint": ("hearint", {}),
    "dmi-gnn": ("dmi-gnn", {"long": 2}),
    "miasrec, two heads and blocks, bce": ("miasrec", {"heads": 2, "layers": 2, "loss": "bce"}),
}


def program(variant: str, local_epochs: int = 3, **settings: object) -> Any:
    """Return the program of a variant, small; what tests ask of it beside the contract is its own."""
    name, own = VARIANTS[variant]
    row = METHODS[name]
    chosen = {**SMALL, **own, **settings}
    if row.settings is FCUCRSettings and chosen.get("personal", True):  # backbones alone have no MLP
        chosen["hidden"] = 5
    made = row.program(row.settings.model_validate(chosen), Given(ITEMS, local_epochs))
    assert isinstance(made, SessionProgram)
    return made


def private_of(local: SessionProgram, clients: np.ndarray, seed: int = 3) -> dict[str, torch.Tensor]:
    """First private tensors, but with a reply and a past: every third client has none yet."""
    private = local.init_private(seed, torch.from_numpy(clients))
    for name, value in private.items():
        if not name.startswith("previous.") and name != "prototype":
            continue
        for row, client in enumerate(clients):
            draws = np.random.default_rng([int(client), len(name)]).normal(0, 0.4, value.shape[1:])
            value[row] = torch.from_numpy(draws * (client % 3 > 0)).float()
    if "previous.known" in private:
        private["previous.known"] = torch.from_numpy(clients % 3 > 0).float().unsqueeze(1)
    return private


def sessions(seed: int = 1, lengths: tuple[int, ...] = LENGTHS) -> tuple[Ragged, Ragged]:
    """Items and times of a session per client; items repeat, times stand still now and then."""
    rng = np.random.default_rng(seed)
    items = [rng.integers(0, ITEMS // 2 if n > 6 else ITEMS, n).tolist() for n in lengths]
    times = [(10**9 + np.cumsum(rng.integers(0, 90, n))).tolist() for n in lengths]
    return Ragged.from_lists(items), Ragged.from_lists(times, np.int64)


def sampler(length: int = LENGTH, negatives: int = NEGATIVES, **options: object) -> SessionSampler:
    items, times = sessions()
    seen = Ragged.from_lists([np.unique(row).tolist() for row in (items[u] for u in range(CLIENTS))])
    current = np.arange(CLIENTS)
    return SessionSampler(items, times, current, seen, np.arange(ITEMS), ITEMS, length, negatives, 5, **options)  # type: ignore[arg-type]


def draws_for(local: SessionProgram) -> SessionSampler:
    """The draws that a program asks for; a client's next session is the next one's."""
    following = (np.arange(CLIENTS) + 1) % CLIENTS if local.asks == "next" else None
    return sampler(once=local.one_draw, following=following)


def work(local: SessionProgram, draws: SessionSampler | None = None) -> LocalWork:
    draws = draws_for(local) if draws is None else draws
    return LocalWork(local, list(local.phases), draws, Ragged.empty(CLIENTS), 2, torch.device("cpu"))
