"""Central references against what their papers' equations give by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import embedding

from cloud.references.ease import Ease, weights
from cloud.references.factors import Factors
from cloud.references.neumf import NeuMF, forward
from cloud.references.pooling import Pooled
from cloud.references.reference import AdamSteps, Batches, bce, bpr, squared
from privacy.errors import InputError

HOW = Batches(epochs=3, patience=2, size=4, negatives=2, lr=0.1)


def pooled(seed: int = 3, users: int = 9, items: int = 12) -> Pooled:
    """Every user but the last has some of the items, none of the last two, which are not in the pool."""
    rng = np.random.default_rng(1)
    pairs = [(u, i) for u in range(users - 1) for i in rng.choice(items - 2, 1 + u % 5, replace=False)]
    user, item = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    return Pooled(user, item, users, items, np.arange(items - 2), seed)


# --- EASE^R -----------------------------------------------------------------------------------------------------------

X = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 1]], np.float64)


def test_ease_of_four_users_and_three_items_is_what_one_finds_by_hand() -> None:
    """X'X + I = [[4, 2, 1], [2, 3, 0], [1, 0, 3]], determinant 21; its adjugate and the diagonal give B."""
    adjugate = np.array([[9, -6, -3], [-6, 11, 2], [-3, 2, 8]])
    np.testing.assert_allclose((X.T @ X + np.eye(3)) @ adjugate, 21 * np.eye(3))
    expected = [[0, 6 / 11, 3 / 8], [6 / 9, 0, -2 / 8], [3 / 9, -2 / 11, 0]]
    np.testing.assert_allclose(weights(X, 1.0), expected, atol=1e-12)


def test_ease_scores_an_item_by_the_weights_of_what_its_user_has() -> None:
    user, item = X.nonzero()
    learner = Ease(Pooled(user, item, 4, 3, np.arange(3), 0), 1.0)
    learner.epoch(1)
    shared, own = learner.tensors()
    np.testing.assert_allclose(own["user"].numpy() @ shared["item"].numpy().T, X @ weights(X, 1.0), atol=1e-6)
    assert (learner.epochs, learner.patience) == (1, float("inf"))


@pytest.mark.parametrize(("users", "items"), [(200_000, 100_000), (10, 40_000), (2_000_000, 1000)])
def test_what_no_memory_holds_is_refused_before_it_is_asked_for(users: int, items: int) -> None:
    some = np.zeros(1, np.int64)
    with pytest.raises(InputError, match=r"GiB .*data_options\.user_core and item_core.*method=mf") as refused:
        Ease(Pooled(some, some, users, items, np.arange(items), 0), 1.0)
    assert f"{users:,} users and {items:,} items" in str(refused.value)


# --- losses -----------------------------------------------------------------------------------------------------------

SCORES = torch.tensor([[0.3, -1.2, 0.8], [2.0, 0.0, 0.5]], dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + np.exp(-x))


def test_bpr_and_its_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = bpr(scores)
    pairs = [(0.3, -1.2), (0.3, 0.8), (2.0, 0.0), (2.0, 0.5)]
    assert float(loss.detach()) == pytest.approx(np.mean([-np.log(sigmoid(p - n)) for p, n in pairs]))
    (found,) = torch.autograd.grad(loss, [scores])
    of = [1 - sigmoid(p - n) for p, n in pairs]  # BPR's gradient by the difference of a pair, with the other sign
    expected = np.array([[-of[0] - of[1], of[0], of[1]], [-of[2] - of[3], of[2], of[3]]]) / 4
    np.testing.assert_allclose(found.numpy(), expected)


def test_bce_and_its_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = bce(scores)
    terms = [-np.log(sigmoid(s)) if at % 3 == 0 else -np.log(1 - sigmoid(s)) for at, s in enumerate(SCORES.flatten())]
    assert float(loss.detach()) == pytest.approx(np.mean(terms))
    (found,) = torch.autograd.grad(loss, [scores])
    np.testing.assert_allclose(found.numpy(), (1 / (1 + np.exp(-SCORES.numpy())) - [[1, 0, 0]] * 2) / 6)


def test_the_squared_error_and_its_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = squared(scores)
    errors = np.array([[0.3 - 1, -1.2, 0.8], [2.0 - 1, 0.0, 0.5]])
    assert float(loss.detach()) == pytest.approx((errors**2).sum() / 2 / 6)
    (found,) = torch.autograd.grad(loss, [scores])
    np.testing.assert_allclose(found.numpy(), errors / 6)


# --- learning from batches --------------------------------------------------------------------------------------------


def test_a_step_of_mf_is_adam_on_the_loss_and_the_rows_it_read() -> None:
    how = Batches(epochs=1, patience=1, size=4, negatives=2, lr=0.1, l2=0.3)
    learner = Factors(pooled(), "bpr", 5, 0.4, how)
    user, items = torch.tensor([0, 3, 3]), torch.tensor([[1, 4, 5], [2, 0, 4], [6, 7, 8]])
    p, q = learner.own["user"].detach().clone(), learner.shared["item"].detach().clone()
    by_user, by_item = np.zeros(p.shape), np.zeros(q.shape)
    for u, (i, *others) in zip(user.tolist(), items.tolist(), strict=True):
        by_user[u] += 0.3 / 3 * p[u].numpy()
        by_item[i] += 0.3 / 3 * q[i].numpy()
        for j in others:
            pull = (1 - sigmoid(float(p[u] @ (q[i] - q[j])))) / 6
            by_user[u] -= pull * (q[i] - q[j]).numpy()
            by_item[i] -= pull * p[u].numpy()
            by_item[j] += pull * p[u].numpy() + 0.3 / 3 * q[j].numpy()
    learner.step(user, items)
    np.testing.assert_allclose(learner.own["user"].grad, by_user, atol=1e-6)  # type: ignore[arg-type]
    np.testing.assert_allclose(learner.shared["item"].grad, by_item, atol=1e-6)  # type: ignore[arg-type]
    moved = (learner.own["user"].detach() - p).numpy()  # Adam's first step is the learning rate, against the gradient
    np.testing.assert_allclose(moved, -0.1 * np.sign(by_user) * (np.abs(by_user) > 1e-6), atol=1e-4)


def test_neumf_is_gmf_and_a_tower_side_by_side() -> None:
    """He et al. Eq. 12 with numpy, for one pair of a user and an item."""
    learner = NeuMF(pooled(), 3, (4, 3, 2), 0.5, HOW)
    shared, own = learner.tensors()
    u, i = own["user"][2].numpy(), shared["item"][7].numpy()
    assert u.shape == (3 + 2,)
    x = np.concatenate([u[3:], i[3:]])
    for layer in (0, 1):
        weight, bias = shared[f"tower.{layer}.weight"].numpy(), shared[f"tower.{layer}.bias"].numpy()
        x = np.maximum(x @ weight + bias, 0)
    expected = np.concatenate([u[:3] * i[:3], x]) @ shared["fused.weight"].numpy()
    found, read = learner.scores(torch.tensor([2]), torch.tensor([[7, 1]]))
    assert found.shape == (1, 2)
    assert float(found[0, 0].detach()) == pytest.approx(float(expected), abs=1e-6)
    assert [tuple(rows.shape) for rows in read] == [(1, 5), (1, 2, 5)]
    whole = forward(shared, own["user"].unsqueeze(1), shared["item"], 3)
    assert whole.shape == (9, 12)
    assert float(whole[2, 7]) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("name", ["bpr", "bce", "squared", "neumf"])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(name: str) -> None:
    def learned(seed: int) -> torch.Tensor:
        found = pooled(seed)
        learner = NeuMF(found, 3, (4, 2), 0.5, HOW) if name == "neumf" else Factors(found, name, 3, 0.5, HOW)
        for number in (1, 2):
            learner.epoch(number)
        shared, own = learner.tensors()
        assert not any(value.requires_grad for value in (*shared.values(), *own.values()))
        return torch.cat([value.flatten() for value in (*shared.values(), *own.values())])

    assert torch.equal(learned(3), learned(3))
    assert not torch.equal(learned(3), learned(4))


@given(seed=st.integers(0, 1000), size=st.integers(1, 50), negatives=st.integers(0, 5))
@settings(deadline=None, max_examples=25)
def test_an_epoch_has_every_interaction_once_and_no_negative_that_its_user_has(
    seed: int, size: int, negatives: int
) -> None:
    data = pooled(seed)
    had = set(zip(data.user.tolist(), data.item.tolist(), strict=True))
    met = []
    for user, items in data.batches(2, negatives, size):
        assert 1 <= len(user) <= size
        assert items.shape == (len(user), 1 + negatives)
        met += list(zip(user.tolist(), items[:, 0].tolist(), strict=True))
        for u, row in zip(user.tolist(), items[:, 1:].tolist(), strict=True):
            assert not any((u, item) in had or item >= 10 for item in row)
    assert sorted(met) == sorted(had)


def test_a_user_who_has_everything_is_refused() -> None:
    full = Pooled(np.zeros(4, np.int64), np.arange(4), 1, 4, np.arange(4), 0)
    with pytest.raises(InputError, match="larger catalogue"):
        full.negatives(1, 2)
    assert full.negatives(1, 0).shape == (4, 0)


def test_learning_without_negatives_is_refused() -> None:
    with pytest.raises(InputError, match="use at least 1"):
        Factors(pooled(), "bce", 3, 0.1, Batches(epochs=1, patience=1, size=4, negatives=0, lr=0.1))


# --- steps on tables of which few rows are read are those of Adam on whole tables


def leaves() -> list[Tensor]:
    """A table of which rows are read, one of which more are, and a layer that is read whole."""
    draws = torch.Generator().manual_seed(5)
    shapes = ((9, 4), (9, 4), (4, 3))
    return [torch.randn(shape, generator=draws).requires_grad_() for shape in shapes]


def cost(of: list[Tensor], step: int, sparse: bool) -> Tensor:
    """What a step reads is other rows than the step before, some of them twice, and the second table at two places."""
    one, other, layer = of
    rows = torch.tensor([step % 9, 2, (step * step) % 9, 2])
    read = embedding(rows, one, sparse=sparse) * embedding(rows.flip(0), other, sparse=sparse)
    return (read @ layer).square().sum() + embedding(rows[:1], other, sparse=sparse).sum()


def learned(take: Callable[[Tensor], None], of: list[Tensor], sparse: bool) -> list[Tensor]:
    for step in range(12):
        take(cost(of, step, sparse))
    return [leaf.detach() for leaf in of]


def by_adam() -> list[Tensor]:
    of = leaves()
    adam = torch.optim.Adam(of, 0.05)

    def take(loss: Tensor) -> None:
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()

    return learned(take, of, sparse=False)


@pytest.mark.parametrize("fused", [False, True])
def test_they_end_where_adam_on_whole_tables_does(fused: bool) -> None:
    of = leaves()
    found = learned(AdamSteps(of, 0.05, fused).take, of, sparse=True)
    torch.testing.assert_close(found, by_adam(), rtol=1e-5, atol=1e-6)
