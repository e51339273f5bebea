"""`fidelity: paper` of TransFR is Algorithm 1: gradients add up, the server steps, drawn clients train their heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.executors import debug, inline
from edgefr.engine.work import Executor
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from privacy.errors import InputError
from tests.federations import federation as made_federation
from tests.methods.test_transfr_learns import HASHED, trained

ITEMS, WIDTH, DIM, EPOCHS, SEED = 20, 6, 3, 4, 3
ETA_S, ETA_C = 0.05, 0.1
TRAIN = Ragged.from_lists([[0, 3, 7], [1, 2, 4, 8, 11, 19], [5, 6]])
SETTINGS: dict[str, Any] = {
    **{"adapter": [4, DIM], "adapter_init": "random", "head_form": "adapter", "user_lr": None},
    **{
        "sends": "gradients",
        "reduction": "sum",
        "optimiser": "sgd",
        "lr": ETA_C,
        "init_scale": 1.0,
        "local_training_epochs": 6,
    },
}
Floats = npt.NDArray[np.float64]
NAMES = [f"{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")]


def text() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((ITEMS, WIDTH)).astype(np.float32)


def made() -> TransFR:
    return TransFR(TransFRSettings.model_validate(SETTINGS), torch.from_numpy(text()), EPOCHS)


def sampler(batch_size: int = 5) -> Sampler:
    return Sampler(TRAIN, np.arange(ITEMS), ITEMS, 4, batch_size, SEED)


def step(
    net: list[Floats], user: Floats, items: npt.NDArray[np.int64], label: npt.NDArray[np.float32]
) -> tuple[list[Floats], Floats]:
    """Gradients of Eq. 6, a sum, for a network of two layers (Eq. 12) and for the user, by hand."""
    first, first_bias, second, second_bias = net
    x = text()[items].astype(np.float64)
    inner = x @ first + first_bias
    hidden = np.maximum(inner, 0)
    vectors = hidden @ second + second_bias
    error = 1 / (1 + np.exp(-vectors @ user)) - label
    up = error[:, None] * user
    down = (up @ second.T) * (inner > 0)
    return [x.T @ down, down.sum(0), hidden.T @ up, up.sum(0)], error @ vectors


def client_update(net: list[Floats], user: Floats, client: int, number: int) -> tuple[list[Floats], Floats]:
    """Algorithm 1, lines 16 to 27: the adapter stays, its gradients add up, the user's embedding moves (Eq. 7, 8)."""
    total = [np.zeros_like(value) for value in net]
    for epoch in range(EPOCHS):
        drawn = sampler().epoch(np.array([client]), "federated fine-tuning", number, epoch)
        for at in range(0, len(drawn.items), 5):
            gradients, of_user = step(net, user, drawn.items[at : at + 5], drawn.label[at : at + 5])
            user = user - ETA_C * of_user
            total = [one + more for one, more in zip(total, gradients, strict=True)]
    return total, user


def client_training(net: list[Floats], user: Floats, client: int, number: int) -> list[Floats]:
    """Algorithm 1, lines 28 to 36, of a head of the adapter's form that goes on from it (Eq. 9)."""
    for epoch in range(6):
        drawn = sampler().epoch(np.array([client]), "local training", number, epoch)
        for at in range(0, len(drawn.items), 5):
            gradients, _ = step(net, user, drawn.items[at : at + 5], drawn.label[at : at + 5])
            net = [one - ETA_C * more for one, more in zip(net, gradients, strict=True)]
    return net


@pytest.mark.parametrize("executor", [inline.run, debug.run])
def test_rounds_and_local_training_are_algorithm_1(executor: Executor) -> None:
    how: dict[str, Any] = {"rounds": 2, "seed": SEED, "shard_size": 2, "executor": executor}
    server = made_federation(made(), 3, {"weights": "uniform", "server_lr": ETA_S}, **how)
    net = [server.shared[f"adapter.{name}"].double().numpy() for name in NAMES]
    users = server.private["user"].double().numpy().copy()
    cohort = np.array([0, 1])
    for number in (1, 2):
        server.round(number, cohort, sampler(), TRAIN)
        sent = [client_update(net, users[client], client, number) for client in cohort]
        users[cohort] = [user for _, user in sent]
        mean = [np.mean(parts, 0) for parts in zip(*(total for total, _ in sent), strict=True)]
        net = [value - ETA_S * one for value, one in zip(net, mean, strict=True)]  # Eq. 5
    for name, value in zip(NAMES, net, strict=True):
        np.testing.assert_allclose(server.shared[f"adapter.{name}"].numpy(), value, atol=2e-6)
    np.testing.assert_allclose(server.private["user"].numpy(), users, atol=2e-6)
    own = server.personalise(cohort, sampler(), TRAIN, server.private, 3)
    for client in cohort:
        for name, value in zip(NAMES, client_training(net, users[client], client, 3), strict=True):
            head = server.shared[f"adapter.{name}"] + own[f"head.{name}"][client]
            np.testing.assert_allclose(head.numpy(), value, atol=2e-6)
    assert all(not own[f"head.{name}"][2].any() for name in NAMES)  # whoever did not train has the adapter


def test_the_paper_asks_for_it() -> None:
    e = load_experiment(overrides=["fidelity=paper"])
    assert (e.rounds, e.local_epochs, e.clients_per_round, e.negatives, e.local_training) == (10, 30, 0.2, 4, "cohort")
    assert (e.aggregation.optimiser, e.aggregation.server_lr, e.aggregation.weights) == ("sgd", 1e-3, "uniform")
    wanted = {
        "sends": "gradients",
        "reduction": "sum",
        "optimiser": "sgd",
        "lr": 1e-3,
        "user_lr": None,
        "head_lr": None,
        "loss": "bce",
    }
    wanted |= {"user_encoder": "vector", "adapter": [128, 64, 32], "head_form": "adapter", "local_training_epochs": 6}
    assert {name: e.model[name] for name in wanted} == wanted
    ours = load_experiment(overrides=["fidelity=paper", "model.client=lora"])  # of which the paper knows nothing
    assert (ours.model["sends"], ours.model["head_form"], ours.local_training) == ("update", "residual", "everybody")


def test_as_many_clients_as_a_round_has_train_locally() -> None:
    run = trained([*HASHED, "fidelity=paper", "rounds=2", "local_epochs=1", "clients_per_round=7"])
    assert run.final is not None
    moved = run.final.private["head.0.bias"].abs().sum(1).nonzero().squeeze(1)
    everyone = np.flatnonzero(run.schedule[0].task.train.counts)
    np.testing.assert_array_equal(moved.numpy(), np.sort(run.federation.cohort(2, everyone, 7)))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.sends=gradients", "model.optimiser=adam"], "model.sends: gradients add up as steps of sgd do"),
        (["model.client=lora", "model.head_form=adapter"], "model.head_form: it stands on the encoder's vectors"),
        (
            ["method=f3crec", "backbone=transfr", "strategy=kd", "model.loss=bce", "model.reduction=sum"],
            "model.reduction: privacy.examples and replays weigh examples themselves",
        ),
        (["model.client=lora", "model.sends=gradients"], "model.sends: belongs to client mlp"),
        (["model.head_form=adapter", "model.head=[16, 32]"], "model.head: nothing reads it where head_form is adapter"),
        (["method=fedmf", "local_training=cohort"], "local_training: belongs to methods whose clients train locally"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_experiment(overrides=overrides)


@pytest.mark.parametrize("backbone", ["fcucr", "sasrec", "gru4rec", "tisasrec"])
def test_fcucr_and_its_backbones_end_and_weigh_alike_as_the_text_says(backbone: str) -> None:
    e = load_experiment(overrides=[f"method={backbone}", "fidelity=paper"])
    assert (e.sessions.patience, e.aggregation.weights) == (5, "size")


def test_f3crec_sums_over_its_memory_as_eq_5_says() -> None:
    assert load_experiment(overrides=["method=f3crec", "fidelity=paper"]).continual.kd_reduction == "sum"
    assert load_experiment(overrides=["method=f3crec"]).continual.kd_reduction == "mean"
    load_experiment(overrides=["method=f3crec", "strategy=ft", "fidelity=paper"])  # which has no memory
