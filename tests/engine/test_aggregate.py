"""What leaves a shard, against sums and norms written as loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.engine.aggregate import RUN, SHORT, JointVector, ReleaseTerms, release
from edgefr.engine.work import RowUpdates, Updates
from privacy.compress import Projection

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
    out = release(found, sizes, ReleaseTerms(clip, norm, by_size, False))
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
    rows, sums = release(
        Updates({}, {"item": item}, {}), np.ones(clients, int), ReleaseTerms(None, "l2", False, True)
    ).rows["item"]
    assert rows.tolist() == [0]
    assert abs(sums.item() - (2.0**19 + (clients - 1) * small)) <= (RUN - 1) * small
    one_by_one = torch.zeros(1, 1).index_add_(0, item.rows, values).item()
    assert one_by_one == 2.0**19, "float32 would not have lost anything, so nothing was tested"


def literal_projections(found: Updates, clients: int, joint: JointVector) -> np.ndarray:
    """Each client's whole dense vector, projected."""
    vectors = []
    for client in range(clients):
        parts = []
        for name, shape in joint.shapes.items():
            whole = np.zeros(shape)
            if name in found.dense:
                whole[:] = found.dense[name][client].numpy()
            else:
                mine = found.rows[name].client == client
                whole[found.rows[name].rows[mine].numpy()] = found.rows[name].values[mine].numpy()
            parts.append(whole.ravel())
        vectors.append(np.concatenate(parts))
    return joint.projection.forth(np.array(vectors))


def shard(clients: int = 6) -> tuple[Updates, dict[str, tuple[int, ...]]]:
    rng = np.random.default_rng(8)
    rows = [np.sort(rng.choice(9, n, replace=False)) for n in rng.integers(1, 9, clients)]
    slots = torch.from_numpy(np.repeat(np.arange(clients), [len(r) for r in rows]))
    table = RowUpdates(
        torch.from_numpy(np.concatenate(rows)), slots, torch.from_numpy(rng.normal(size=(len(slots), 4)))
    )
    dense = torch.from_numpy(rng.normal(size=(clients, 2, 3)))
    return Updates({"w": dense}, {"item": table}, {}), {"w": (2, 3), "item": (9, 4)}


@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize(("norm", "clip"), [("l2", 1.5), ("l1", 3.0), ("l2", None)])
def test_a_projected_release_is_the_sum_of_clipped_projections(
    norm: str, clip: float | None, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefr.engine.aggregate.PIECE", piece)
    found, shapes = shard()
    joint = JointVector(shapes, Projection.of_round(3, 1, 42, 10))
    out = release(found, np.ones(6, int), ReleaseTerms(clip, norm, False, True, joint=joint))
    literal = literal_projections(found, 6, joint)
    norms = np.linalg.norm(literal, 1 if norm == "l1" else 2, axis=1)
    np.testing.assert_allclose(out.norms, norms)
    factor = np.ones(6) if clip is None else np.minimum(1, clip / norms)
    assert set(out.dense) == {SHORT}
    assert not out.rows
    np.testing.assert_allclose(out.dense[SHORT].numpy(), (literal * factor[:, None]).sum(0), rtol=1e-5)
    whole = joint.whole(out.dense[SHORT])
    assert {name: tuple(v.shape) for name, v in whole.items()} == shapes
    flat = np.concatenate([v.numpy().ravel() for v in whole.values()])
    np.testing.assert_allclose(flat, joint.projection.back(out.dense[SHORT].numpy()))


def test_a_diverged_client_is_not_in_a_projected_sum() -> None:
    found, shapes = shard()
    found.dense["w"][2, 0, 0] = torch.nan
    found.rows["item"].values[found.rows["item"].client == 4] = 1e7
    joint = JointVector(shapes, Projection.of_round(3, 1, 42, 10))
    out = release(found, np.ones(6, int), ReleaseTerms(1.0, "l2", False, True, joint=joint))
    assert (out.dropped, out.clients, out.weight) == (2, 4, 6.0)
    kept = [0, 1, 3, 5]
    literal = literal_projections(found, 6, joint)[kept]
    factor = np.minimum(1, 1 / np.linalg.norm(literal, axis=1))
    np.testing.assert_allclose(out.dense[SHORT].numpy(), (literal * factor[:, None]).sum(0), rtol=1e-5)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("clip", [2.0, 1e3])
def test_a_release_on_the_grid_is_the_exact_sum_of_rounded_updates(clip: float, projected: bool) -> None:
    found, shapes = shard()
    joint = JointVector(shapes, Projection.of_round(3, 1, 42, 10)) if projected else None
    out = release(found, np.ones(6, int), ReleaseTerms(clip, "l2", False, True, joint=joint, step=0.25))
    each = release(found, np.ones(6, int), ReleaseTerms(clip, "l2", False, True, joint=joint))
    norms = each.norms if projected else found.norms(6, 2).numpy()
    factor = np.minimum(1, clip / norms)[:, None]
    if joint is not None:
        literal = np.trunc(literal_projections(found, 6, joint) * factor / 0.25) * 0.25
        np.testing.assert_array_equal(out.dense[SHORT].numpy(), literal.sum(0))
        return
    literal = np.trunc(found.dense["w"].numpy().reshape(6, 6) * factor / 0.25) * 0.25
    np.testing.assert_array_equal(out.dense["w"].numpy().ravel(), literal.sum(0))
    rows, sums = out.rows["item"]
    table = np.zeros((9, 4))
    rounded = np.trunc(found.rows["item"].values.numpy() * factor[found.rows["item"].client] / 0.25) * 0.25
    np.add.at(table, found.rows["item"].rows.numpy(), rounded)
    np.testing.assert_array_equal(sums.numpy(), table[rows.numpy()])
    assert np.abs(table).sum() > 0


@pytest.mark.parametrize("width", [64, 4_096, 65_536])
@pytest.mark.parametrize("order", [1, 2])
def test_norms_of_wide_rows_are_not_short(width: int, order: int) -> None:
    """A clip lets 5e-7 pass: a norm that is shorter by more would let an update leave that is longer than the clip."""
    values = np.random.default_rng(width).exponential(size=(2, width)).astype(np.float32)
    rows = RowUpdates(torch.tensor([3, 5]), torch.tensor([0, 1]), torch.from_numpy(values))
    found = Updates({}, {"item": rows}, {})
    exact = [float(sum(abs(float(value)) ** order for value in row) ** (1 / order)) for row in values]
    assert found.norms(2, order).tolist() == pytest.approx(exact, rel=1e-9)
