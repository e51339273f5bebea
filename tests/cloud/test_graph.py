"""GPFedRec's relations against whole tables laid out one beside the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cloud.rule import AggregationSettings
from cloud.rules.graph import relations
from cloud.similarities import similarities
from cloud.uploads import Rows

ITEMS, WIDTH = 7, 3


def cohort(seed: int, clients: int) -> tuple[Rows, torch.Tensor, np.ndarray]:
    """Changes of some rows in a mixed order, the broadcast, and every client's whole table [clients, items * width]."""
    rng = np.random.default_rng(seed)
    slot, item = np.nonzero(rng.random((clients, ITEMS)) < 0.5)
    mixed = rng.permutation(len(slot))
    slot, item = slot[mixed], item[mixed]
    values = rng.standard_normal((len(slot), WIDTH)).astype(np.float32)
    table = rng.standard_normal((ITEMS, WIDTH)).astype(np.float32)
    whole = np.repeat(table[None].astype(np.float64), clients, 0)
    whole[slot, item] += values
    rows = torch.from_numpy(item), torch.from_numpy(slot), torch.from_numpy(values)
    return rows, torch.from_numpy(table), whole.reshape(clients, -1)


def cosines(whole: np.ndarray) -> np.ndarray:
    unit = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    return unit @ unit.T


@given(st.integers(0, 10_000), st.integers(1, 9))
@limits(max_examples=50, deadline=None)
def test_similarities_are_cosines_of_whole_tables(seed: int, clients: int) -> None:
    rows, table, whole = cohort(seed, clients)
    np.testing.assert_allclose(similarities(rows, clients, table), cosines(whole), atol=1e-5)


@given(st.integers(0, 10_000), st.integers(2, 9), st.sampled_from(["cosine", "distance"]))
@limits(max_examples=50, deadline=None)
def test_neighbours_are_those_above_the_mean_and_weigh_alike(seed: int, clients: int, similarity: str) -> None:
    rows, table, whole = cohort(seed, clients)
    alike = cosines(whole) if similarity == "cosine" else 1 - cosines(whole)
    settings = AggregationSettings.model_validate({"rule": "graph", "similarity": similarity})
    found = relations(rows, clients, table, settings).numpy()
    for client in range(clients):
        near = [other for other in range(clients) if alike[client, other] > alike.mean()] or [client]
        expected = np.zeros(clients)
        expected[near] = 1 / len(near)
        close = np.abs(alike[client] - alike.mean()).min() < 1e-5  # rounding may decide
        assert close or found[client].tolist() == pytest.approx(expected.tolist())
        assert found[client].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("similarity", ["cosine", "distance"])
@pytest.mark.parametrize("neighbours", [1, 2, 4])
def test_a_number_of_neighbours_of_cohorts_that_are_drawn(neighbours: int, similarity: str) -> None:
    """By distance a client is not near itself, and some are near nobody: they get none of their own for that."""
    for seed in range(8):
        rows, table, whole = cohort(seed, 7)
        alike = cosines(whole) if similarity == "cosine" else 1 - cosines(whole)
        settings = AggregationSettings.model_validate(
            {"rule": "graph", "neighbours": neighbours, "similarity": similarity}
        )
        expected = np.zeros((7, 7))
        for client in range(7):
            expected[client, np.argsort(-alike[client], kind="stable")[:neighbours]] = 1 / neighbours
        np.testing.assert_allclose(relations(rows, 7, table, settings).numpy(), expected, err_msg=str(seed))


def test_who_resembles_nobody_keeps_its_own() -> None:
    rows, table, _ = cohort(3, 4)
    found = relations(rows, 4, table, AggregationSettings(rule="graph", threshold=100.0))
    assert torch.equal(found, torch.eye(4, dtype=torch.float64))
