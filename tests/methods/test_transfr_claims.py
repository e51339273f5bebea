"""What TransFR §3.3.1 says of local heads (Eq. 14-16), in numbers: one model for all against a head of one's own.

A* [L, f] is the true encoder, B*_u [f, d] each client's true head, losses are squared errors of A B against A* B*_u.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

Floats = npt.NDArray[np.float64]
LENGTH, WIDTH, CLIENTS = 12, 4, 30


def world(d: int, apart: float, seed: int = 0) -> tuple[Floats, Floats]:
    """A* and the clients' heads [n, f, d]: one they share, and `apart` times one of their own."""
    rng = np.random.default_rng(seed)
    encoder, shared = rng.standard_normal((LENGTH, WIDTH)), rng.standard_normal((WIDTH, d))
    return encoder, shared + apart * rng.standard_normal((CLIENTS, WIDTH, d))


def one_for_all(encoder: Floats, heads: Floats) -> tuple[Floats, float]:
    """Learn one A and one B by alternating least squares (Eq. 16): A, and the loss they end with."""
    targets, rng = encoder @ heads, np.random.default_rng(1)
    mean = targets.mean(0)  # the part of the loss that A and B can change is their distance from this
    a = rng.standard_normal((LENGTH, WIDTH))
    for _ in range(50):
        b = np.linalg.lstsq(a, mean, rcond=None)[0]
        a = a + (mean - a @ b) @ np.linalg.pinv(b)
    return a, float(np.square(a @ b - targets).sum((1, 2)).mean())


def own_heads(encoder: Floats, heads: Floats) -> tuple[Floats, float]:
    """Learn one A and a B for each client by alternating least squares (Eq. 15): A, and the loss they end with."""
    targets, rng = encoder @ heads, np.random.default_rng(1)
    joined = np.concatenate(list(targets), axis=1)
    a = rng.standard_normal((LENGTH, WIDTH))
    for _ in range(50):
        b = np.linalg.lstsq(a, joined, rcond=None)[0]
        a = joined @ np.linalg.pinv(b)
    return a, float(np.square(a @ b - joined).sum() / CLIENTS)


def same_space(a: Floats, b: Floats) -> bool:
    """Say whether the columns of both span the same space."""
    ranks = [int(np.linalg.matrix_rank(m, tol=1e-6)) for m in (a, b, np.concatenate([a, b], axis=1))]
    return len(set(ranks)) == 1


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 2.0])
def test_heads_of_their_own_leave_no_loss_and_one_model_leaves_what_heads_differ_by(apart: float) -> None:
    encoder, heads = world(3, apart)
    spread = float(np.square(encoder @ (heads - heads.mean(0))).sum((1, 2)).mean())
    assert own_heads(encoder, heads)[1] == pytest.approx(0.0, abs=1e-12)
    assert one_for_all(encoder, heads)[1] == pytest.approx(spread, rel=1e-9, abs=1e-12)


def test_the_loss_of_one_model_grows_with_the_square_of_how_far_heads_are_apart() -> None:
    losses = [one_for_all(*world(3, apart))[1] for apart in (0.5, 1.0, 2.0)]
    assert losses[1] / losses[0] == pytest.approx(4.0)
    assert losses[2] / losses[1] == pytest.approx(4.0)


def test_own_heads_find_the_space_of_the_encoder_where_heads_together_span_its_width() -> None:
    encoder, heads = world(1, 1.0)
    assert same_space(own_heads(encoder, heads)[0], encoder), "30 heads of one column span R^f, f = 4"
    flat = heads.copy()
    flat[:, 1:] = 0.0  # they span one dimension of f, though each spans all of R^d, d = 1
    assert not same_space((encoder @ flat).transpose(1, 0, 2).reshape(LENGTH, -1), encoder)


@pytest.mark.parametrize(("d", "found"), [(1, False), (3, False), (4, True), (6, True)])
def test_one_model_finds_it_too_where_its_head_is_as_wide_as_the_encoder(d: int, found: bool) -> None:
    """The paper says that Eq. 16 cannot recover A* for any d > 1; the mean head does span R^f once d >= f."""
    encoder, heads = world(d, 1.0)
    assert same_space(encoder @ heads.mean(0), encoder) is found
