"""References of two domains against what one finds by hand: CMF, EMCDR, and folds of users who are cold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cloud.references.factors import CMF, Factors, TwoDomains
from cloud.references.folds import EMCDR, MAPPINGS, Folds, MappingFit, drawn_folds, linear, mlp
from cloud.references.pooling import Pooled
from cloud.references.reference import Batches, squared

USERS, ITEMS = 9, 14
HOW = Batches(epochs=3, patience=2, size=8, negatives=2, lr=0.1, l2=0.01)
FIT = MappingFit(ridge=0.5, hidden=3, steps=20, lr=0.05, seed=1)


def domain(name: str, items: range) -> Pooled:
    """Every user has some of a domain's items."""
    rng = np.random.default_rng(len(name))
    pairs = [(u, i) for u in range(USERS) for i in rng.choice(list(items), 1 + u % 4, replace=False)]
    user, item = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    return Pooled(user, item, USERS, ITEMS, np.array(items, np.int64), 3, name)


SOURCE, TARGET = domain("", range(8)), domain("target", range(8, ITEMS))


# --- CMF --------------------------------------------------------------------------------------------------------------


def test_negatives_of_cmf_are_of_their_interactions_domain() -> None:
    joint, met = TwoDomains.of(SOURCE, TARGET), []
    for user, items in joint.batches(1, 3, 7):
        assert ((items < 8) == (items[:, :1] < 8)).all()
        met += list(zip(user.tolist(), items[:, 0].tolist(), strict=True))
    both = [(d.user.tolist(), d.item.tolist()) for d in (SOURCE, TARGET)]
    assert sorted(met) == sorted(pair for columns in both for pair in zip(*columns, strict=True))


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1.0])
def test_cmf_weighs_both_matrices_and_shares_a_users_vector(alpha: float) -> None:
    """The gradient by hand: a positive of either domain with one negative, of one user."""
    how = Batches(epochs=1, patience=1, size=4, negatives=1, lr=0.1)
    learner = CMF(TwoDomains.of(SOURCE, TARGET), "squared", 3, 0.7, how, alpha)
    user, items = torch.tensor([2, 2]), torch.tensor([[1, 4], [9, 12]])
    p, q = learner.own["user"].detach().clone(), learner.shared["item"].detach().clone()
    by_user, by_item = torch.zeros_like(p), torch.zeros_like(q)
    for row, weight in zip(items.tolist(), (alpha, 1 - alpha), strict=True):
        for item, label in zip(row, (1, 0), strict=True):
            error = 2 * weight * (float(p[2] @ q[item]) - label) / 4
            by_user[2] += error * q[item]
            by_item[item] += error * p[2]
    learner.step(user, items)
    torch.testing.assert_close(learner.own["user"].grad, by_user)
    torch.testing.assert_close(learner.shared["item"].grad, by_item)


def test_cmf_of_equal_weights_is_mf_of_both_matrices() -> None:
    joint = TwoDomains.of(SOURCE, TARGET)
    one, other = CMF(joint, "squared", 3, 0.5, HOW, 0.5), Factors(joint, "squared", 3, 0.5, HOW)
    for learner in (one, other):
        learner.epoch(1)
    torch.testing.assert_close(one.tensors(), other.tensors(), atol=1e-4, rtol=1e-4)
    scores = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    items = torch.tensor([1, 9, 2, 3, 4, 12]).unsqueeze(1)
    assert float(one.cost(scores, items)) == pytest.approx(float(squared(scores)))
    assert float(one.cost(scores[:1], items[:1])) == pytest.approx(float(squared(scores[:1]))), "one domain in a batch"


# --- folds ------------------------------------------------------------------------------------------------------------


def test_every_user_is_in_one_fold_and_every_fold_has_its_share() -> None:
    fold = drawn_folds(0, 5000, 5)
    assert np.bincount(fold, minlength=5).min() > 900
    assert np.bincount(fold).shape == (5,)
    assert (fold == drawn_folds(0, 5000, 5)).all()
    assert (fold != drawn_folds(1, 5000, 5)).any()


def test_a_user_is_scored_by_the_own_folds_learner_alone() -> None:
    fold = np.array([0, 1] * 5)[:USERS]
    learners = [Factors(domain("target", range(8, ITEMS)), "squared", 3, scale, HOW) for scale in (0.3, 0.9)]
    shared, own = Folds(learners, fold, 10).tensors()
    assert (shared["item"].shape, own["user"].shape) == ((ITEMS, 10), (USERS, 10))
    found = own["user"] @ shared["item"].T
    for user in range(USERS):
        mine = learners[fold[user]]
        expected = mine.own["user"][user] @ mine.shared["item"].T
        torch.testing.assert_close(found[user, 8:], expected.detach()[8:])
    assert not found[:, :8].any(), "items that no learner met"


# --- EMCDR ------------------------------------------------------------------------------------------------------------


def test_a_linear_mapping_of_one_dimension_by_hand() -> None:
    """Four users with 1, 2, -1, 0 in the source and 2, 3, -3, 5 in the target: (2 + 6 + 3) / (1 + 4 + 1 + ridge)."""
    mapped = linear(torch.tensor([[1.0], [2.0], [-1.0], [0.0]]), torch.tensor([[2.0], [3.0], [-3.0], [5.0]]), FIT)
    assert float(mapped(torch.tensor([[2.0]]))) == pytest.approx(2 * 11 / 6.5)


def test_a_step_of_the_mlp_by_hand() -> None:
    """Adam's first step is the learning rate against the sign of the gradient, here with numpy."""
    source, target = np.array([[0.5, -1.0], [2.0, 0.3], [0.1, 0.7]]), np.array([[1.0, 0.0], [-1.0, 2.0], [0.5, 0.5]])

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32)

    one, two = (
        w.numpy().astype(np.float64) for w in (first_weight("mapping.0", (2, 3)), first_weight("mapping.1", (3, 2)))
    )
    h = np.tanh(source @ one)
    error = 2 * (h @ two - target) / 3
    inner = (error @ two.T) * (1 - h**2)
    steps = [source.T @ inner + one / 3, h.T @ error + two / 3, inner.sum(0), error.sum(0)]  # ridge 0.5, twice, over 3
    w1, w2, b1, b2 = (w - 0.05 * np.sign(g) for w, g in zip((one, two, 0.0, 0.0), steps, strict=True))
    found = mlp(tensor(source), tensor(target), MappingFit(0.5, 3, 1, 0.05, 1))(tensor(source))
    np.testing.assert_allclose(found.numpy(), np.tanh(source @ w1 + b1) @ w2 + b2, atol=1e-5)


def first_weight(name: str, shape: tuple[int, int]) -> torch.Tensor:
    from cloud.references.reference import first

    return first(1, name, shape, shape[0] ** -0.5)


@pytest.mark.parametrize("name", MAPPINGS)
def test_a_mapping_comes_nearer_than_nothing_and_is_the_same_again(name: str) -> None:
    rng = torch.Generator().manual_seed(0)
    source = torch.randn(60, 4, generator=rng)
    target = torch.tanh(source @ torch.randn(4, 4, generator=rng))
    how = MappingFit(ridge=0.01, hidden=8, steps=200, lr=0.02, seed=0)
    found = MAPPINGS[name](source, target, how)(source)
    assert float((found - target).square().mean()) < 0.3 * float(target.square().mean())
    assert torch.equal(found, MAPPINGS[name](source, target, how)(source))
    assert not found.requires_grad


def test_emcdr_maps_every_user_by_what_others_show() -> None:
    fold, dim = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0]), 2
    both = np.array([True] * 8 + [False])
    source = Folds([Factors(SOURCE, "squared", dim, 0.5, HOW)], np.zeros_like(fold), 3 * dim)
    learners = [Factors(domain("target", range(8, ITEMS)), "squared", dim, scale, HOW) for scale in (0.3, 0.9)]
    learner = EMCDR(learners, fold, 3 * dim, both, "linear", FIT)
    first, own = source.tensors()
    learner.follow(first, own)
    shared, users = learner.tensors()
    found = users["user"] @ shared["item"].T
    p = own["user"][:, :dim].double().numpy()
    torch.testing.assert_close(found[:, :8], (own["user"] @ first["item"].T)[:, :8])
    for user in range(USERS):
        mine, shown = learners[fold[user]], both & (fold != fold[user])
        q = mine.own["user"].detach().double().numpy()
        m = np.linalg.solve(p[shown].T @ p[shown] + 0.5 * np.eye(dim), p[shown].T @ q[shown])
        expected = p[user] @ m @ mine.shared["item"].detach().double().numpy().T
        np.testing.assert_allclose(found[user, 8:].numpy(), expected[8:], atol=1e-5)
