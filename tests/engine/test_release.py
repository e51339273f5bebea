"""What leaves a shard, against sums and norms written as loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.engine.release import RUN, Terms, release
from edgefr.engine.work import RowUpdates, Updates

ITEMS, WIDTH = 7, 3


def updates(touched: list[list[int]], seed: int = 0) -> Updates:
    """One client per list, which changed these rows; and a dense tensor of each."""
    rng = np.random.default_rng(seed)
    client = np.repeat(np.arange(len(touched)), [len(items) for items in touched])
    rows = np.array([item for items in touched for item in items], np.int64)
    values = torch.from_numpy(rng.standard_normal((len(rows), WIDTH), dtype=np.float32))
    dense = torch.from_numpy(rng.standard_normal((len(touched), 2, 2), dtype=np.float32))
    return Updates({"w": dense}, {"item": RowUpdates(torch.from_numpy(rows), torch.from_numpy(client), values)}, {})


def literal(found: Updates, order: int, clip: float | None, weights: list[float]) -> tuple[list[float], np.ndarray]:
    """Norms and the weighted sum of the item table, one value after another in float64."""
    item, norms = found.rows["item"], []
    total = np.zeros((ITEMS, WIDTH))
    for client, weight in enumerate(weights):
        mine = np.flatnonzero(item.client.numpy() == client)
        every = np.concatenate([found.dense["w"][client].numpy().ravel(), item.values.numpy()[mine].ravel()])
        norm = float((np.abs(every.astype(np.float64)) ** order).sum() ** (1 / order))
        norms.append(norm)
        factor = weight * (1.0 if clip is None else min(1.0, clip / norm))
        for k in mine:
            total[item.rows[k]] += factor * item.values.numpy()[k].astype(np.float64)
    return norms, total


@given(
    st.lists(st.lists(st.integers(0, ITEMS - 1), unique=True), min_size=1, max_size=80),
    st.sampled_from(["l1", "l2"]),
    st.sampled_from([None, 1.5]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_norms_and_sums_are_those_of_loops(touched: list[list[int]], norm: str, clip: float | None, by_size: bool):
    found, sizes = updates(touched), np.arange(1, len(touched) + 1)
    weights = [float(n) if by_size else 1.0 for n in sizes]
    norms, total = literal(found, 1 if norm == "l1" else 2, clip, weights)
    out = release(found, sizes, Terms(clip, norm, by_size, False))
    rows, sums = out.rows["item"]
    assert out.norms == pytest.approx(norms, rel=1e-6)
    assert rows.tolist() == sorted({item for items in touched for item in items})
    assert sums.dtype == torch.float64
    scale = max(1.0, float(np.abs(total).max())) * len(touched)
    np.testing.assert_allclose(sums.numpy(), total[rows.numpy()], atol=1e-6 * scale)
    assert out.weight == sum(weights)


def test_a_popular_row_is_summed_in_float64_beyond_a_run() -> None:
    """Ones that float32 would lose beside 2^19 + 2^-5 are lost in the first run alone."""
    clients, small = 50 * RUN, 2.0**-6
    values = torch.full((clients, 1), small)
    values[0] = 2.0**19
    item = RowUpdates(torch.zeros(clients, dtype=torch.int64), torch.arange(clients), values)
    rows, sums = release(Updates({}, {"item": item}, {}), np.ones(clients, int), Terms(None, "l2", False, True)).rows[
        "item"
    ]
    assert rows.tolist() == [0]
    assert abs(sums.item() - (2.0**19 + (clients - 1) * small)) <= (RUN - 1) * small
    one_by_one = torch.zeros(1, 1).index_add_(0, item.rows, values).item()
    assert one_by_one == 2.0**19, "float32 would not have lost anything, so nothing was tested"


def test_the_same_updates_give_the_same_bits() -> None:
    found = updates([[0, 1, 2], [1], [], [2, 6, 1]] * 30)
    sizes = np.arange(120) + 1
    first, second = (release(found, sizes, Terms(0.7, "l2", True, False)).rows["item"][1] for _ in range(2))
    assert torch.equal(first, second)


def test_a_client_that_diverged_is_dropped_and_leaves_nothing() -> None:
    found = updates([[0, 1], [1, 2], [2, 3]])
    found.rows["item"].values[2:4] = torch.nan
    out = release(found, np.ones(3, int), Terms(None, "l2", False, False))
    assert (out.dropped, out.clients, out.weight) == (1, 2, 2.0)
    assert bool(torch.isfinite(out.rows["item"][1]).all())
    assert bool((out.rows["item"][1][0] == found.rows["item"].values[0].double()).all())
