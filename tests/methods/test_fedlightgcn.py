"""FedLightGCN: what it computes in closed form is LightGCN's propagation over the client's own graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgefr.engine.executors import inline
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fedlightgcn.program import FedLightGCN
from edgefr.methods.fedlightgcn.settings import FedLightGCNSettings
from export.program import LocalProgram
from privacy.errors import InputError
from tests.contract.programs import ITEMS, work


def made(**values: object) -> FedLightGCN:
    return FedLightGCN(FedLightGCNSettings.model_validate({"dim": 5, "item_lr": 9.0} | values), ITEMS, 1)


def propagated(user: np.ndarray, neighbours: np.ndarray, layers: int) -> np.ndarray:
    """LightGCN, Eq. 3 and 4, by its matrices: the user's mean over layers on the graph of itself and its neighbours."""
    count = len(neighbours)
    joined = np.zeros((count + 1, count + 1))
    joined[0, 1:] = joined[1:, 0] = 1
    degree = np.maximum(joined.sum(1), 1)
    walk = joined / np.sqrt(np.outer(degree, degree))
    layer = np.vstack([user, neighbours])
    total = layer.copy()
    for _ in range(layers):
        layer = walk @ layer
        total += layer
    return total[0] / (layers + 1)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_user_is_the_mean_of_the_layers(layers: int, count: int) -> None:
    rng = np.random.default_rng(layers)
    user, rows, there = rng.normal(size=5), rng.normal(size=(9, 5)), np.zeros(9)
    there[rng.permutation(9)[:count]] = 1
    found = made(layers=layers).convolved(*map(torch.from_numpy, (user, rows, there)))
    # a user without neighbours has no edge: of its layers LightGCN keeps the even ones, as of any other user
    expected = propagated(user, rows[there > 0], layers) if count else user * (layers // 2 + 1) / (layers + 1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_a_round_is_one_step_of_bpr_on_what_was_there_before_each_positive() -> None:
    """By hand in float64: a client's vector and rows after one step, from its own pairs and contexts."""
    local = made(lr=0.7, neighbours=4, init_scale=0.5)
    todo = work(local, batch_size=1000)
    who = np.array([int(np.argmax(todo.sampler.train.counts))])
    shared, private = local.init_shared(3), local.init_private(3, torch.from_numpy(who))
    (phase,) = local.phases
    drawn = todo.sampler.epoch(who, phase.purpose, todo.round, 0, which=phase.which)
    item, user = (value.double().numpy() for value in (shared["item"], private["user"][0]))
    own, others = local.shares
    rows, p = np.zeros_like(item), np.zeros_like(user)
    groups = drawn.items.reshape(-1, drawn.group)
    for (i, *negatives), context in zip(groups, drawn.context, strict=True):
        before = context[context >= 0]
        root = np.sqrt(max(len(before), 1))
        e = own * user + others * item[before].sum(0) / root
        for j in negatives:
            wrong = 1 / (1 + np.exp(e @ (item[i] - item[j]))) / len(negatives) / len(groups)
            rows[i] += wrong * e
            rows[j] -= wrong * e
            p += wrong * own * (item[i] - item[j])
            np.add.at(rows, before, wrong * others / root * (item[i] - item[j]))
    found = inline.run(todo, shared, private, who)
    changed = np.zeros_like(item)
    changed[found.rows["item"].rows] = found.rows["item"].values
    assert np.abs(rows).max() > 1e-3
    np.testing.assert_allclose(changed, 9.0 * rows, atol=2e-6)
    np.testing.assert_allclose(found.private["user"][0], user + 0.7 * p, atol=2e-6)


@pytest.mark.parametrize("how", [{}, {"loss": "softmax", "temperature": 0.3, "layers": 3, "neighbours": 7}])
def test_compiled_gradients_are_those_of_the_loss(how: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    local, seen = made(init_scale=0.5, **how), []
    theirs = FedLightGCN.gradients

    def both(self: FedLightGCN, tensors, batch, phase) -> dict[str, torch.Tensor]:
        found, plain = theirs(self, tensors, batch, phase), LocalProgram.gradients(self, tensors, batch, phase)
        for name, value in plain.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-7)
            seen.append(float(value.abs().max()))
        return found

    monkeypatch.setattr(FedLightGCN, "gradients", both)
    who = np.arange(9)
    inline.run(work(local, batch_size=40), local.init_shared(3), local.init_private(3, torch.from_numpy(who)), who)
    assert len(seen) > 4
    assert max(seen) > 1e-2


def test_a_loss_that_compares_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"model\.loss"):
        load_experiment(overrides=["method=fedlightgcn", "model.loss=bce"])
