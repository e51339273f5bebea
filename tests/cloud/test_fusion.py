"""Each fusion against its formula written out for one client, prototype by prototype."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cloud.fusion import KnowledgeSettings
from privacy import keyed

Vectors = npt.NDArray[np.float64]


def literal_mean(found: Vectors, cosines: Vectors, query: Vectors, temperature: float) -> Vectors:
    return sum(found, np.zeros_like(query)) / len(found)


def literal_softmax(found: Vectors, cosines: Vectors, query: Vectors, temperature: float) -> Vectors:
    powers = [math.exp(cosine / temperature) for cosine in cosines]
    return sum((power / sum(powers) * one for power, one in zip(powers, found, strict=True)), np.zeros_like(query))


def literal_pca(found: Vectors, cosines: Vectors, query: Vectors, temperature: float) -> Vectors:
    """By the covariance matrix of the set, [P, P], in place of the products of its members."""
    mean = sum(found, np.zeros_like(query)) / len(found)
    covariance = sum((np.outer(one - mean, one - mean) for one in found), np.zeros((len(query), len(query))))
    axis = np.linalg.eigh(covariance)[1][:, -1]
    return mean if len(found) == 1 else mean + axis * (axis @ (query - mean))


def literal_attention(found: Vectors, cosines: Vectors, query: Vectors, temperature: float) -> Vectors:
    powers = [math.exp(sum(a * b for a, b in zip(one, query, strict=True)) / math.sqrt(len(query))) for one in found]
    return sum((power / sum(powers) * one for power, one in zip(powers, found, strict=True)), np.zeros_like(query))


def fused(*found: torch.Tensor | KnowledgeSettings) -> torch.Tensor:
    *tensors, settings = found
    return settings.entry.fused(settings, *tensors)  # type: ignore[union-attr]


LITERAL = {"attention": literal_attention, "mean": literal_mean, "softmax": literal_softmax, "pca": literal_pca}


def one(found: Vectors, cosines: Vectors, query: Vectors, settings: KnowledgeSettings) -> Vectors:
    """The fusion for a single client with all prototypes present."""
    tensors = [torch.from_numpy(array)[None] for array in (found, cosines, query)]
    present = torch.ones(1, len(found), dtype=torch.bool)
    out = fused(tensors[0], tensors[1], present, tensors[2], settings)
    assert out.dtype == torch.float64
    return out[0].numpy()


@pytest.mark.parametrize("fusion", LITERAL)
@pytest.mark.parametrize(("k", "width"), [(1, 4), (2, 5), (6, 3), (9, 20)])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_a_fusion_is_its_formula(fusion: str, k: int, width: int, temperature: float) -> None:
    generator = keyed.generator(3, fusion, k, width)
    own = {"temperature": temperature} if fusion == "softmax" else {}
    clients, settings = 4, KnowledgeSettings(fusion=fusion, **own)  # type: ignore[arg-type]
    sets, queries = generator.normal(size=(clients, k, width)), generator.normal(size=(clients, width))
    cosines = generator.uniform(-1, 1, (clients, k))
    counts = [k, max(k - 1, 1), 1, 0]
    present = np.arange(k) < np.array(counts)[:, None]
    sets[~present], cosines[~present] = np.nan, np.nan  # what is not there is not looked at
    there, tensors = torch.from_numpy(present), [torch.from_numpy(array) for array in (sets, cosines, queries)]
    found = fused(tensors[0], tensors[1], there, tensors[2], settings).numpy()
    for client, count in enumerate(counts):
        expected = np.zeros(width)
        if count:
            literal = LITERAL[fusion]
            expected = literal(sets[client, :count], cosines[client, :count], queries[client], temperature)
        np.testing.assert_allclose(found[client], expected, atol=1e-12)


def test_a_low_temperature_hands_over_the_nearest() -> None:
    found, cosines = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.2, 0.9])
    cold = one(found, cosines, np.zeros(2), KnowledgeSettings(temperature=1e-3))
    np.testing.assert_allclose(cold, [0.0, 1.0], atol=1e-12)
    released = one(found, cosines, np.zeros(2), KnowledgeSettings())
    np.testing.assert_allclose(released, [1 / (1 + math.exp(0.7)), 1 / (1 + math.exp(-0.7))], atol=1e-12)


PCA = KnowledgeSettings(fusion="pca")


def test_the_released_pca_of_this_set_is_zero_and_ours_is_not() -> None:
    found, query = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, 0.0], [5.0, 2.0, 3.0]]), np.array([2.0, 9.0, 0.0])
    centred = found - found.mean(0)
    released = np.linalg.svd(centred)[2][:1] @ centred.mean(0)
    np.testing.assert_allclose(released, 0.0, atol=1e-12)
    assert np.linalg.norm(one(found, np.ones(3), query, PCA)) > 1


def test_axes_of_equal_variance_are_all_taken() -> None:
    """Of an equilateral triangle any axis in its plane is a first one; the closest point of the plane is the answer."""
    angles = 2 * np.pi * np.arange(3) / 3
    triangle = np.stack([np.cos(angles), np.sin(angles), np.full(3, 5.0)], axis=1)
    np.testing.assert_allclose(one(triangle, np.ones(3), np.array([7.0, -2.0, 1.0]), PCA), [7.0, -2.0, 5.0], atol=1e-9)


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e5])
def test_equal_prototypes_have_no_axis(scale: float) -> None:
    same = np.tile([1.0, 1 / 3, -2.0], (4, 1)) * scale
    np.testing.assert_allclose(one(same, np.ones(4), np.array([4.0, 4.0, 4.0]), PCA), same[0], rtol=1e-12)


@limits(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 8), st.integers(2, 6))
def test_pca_is_the_closest_point_of_a_line_whatever_the_order(seed: int, k: int, width: int) -> None:
    generator = keyed.generator(seed, "pca", k, width)
    found, query = generator.normal(size=(k, width)), generator.normal(size=width)
    answer = one(found, np.ones(k), query, PCA)
    mean = found.mean(0)
    assert abs((query - answer) @ (answer - mean)) < 1e-9, "the rest of the query is at right angles to the line"
    assert np.linalg.norm(query - answer) <= np.linalg.norm(query - mean) + 1e-12
    order = generator.permutation(k)
    np.testing.assert_allclose(one(found[order], np.ones(k), query, PCA), answer, atol=1e-6)
    np.testing.assert_allclose(one(-found, np.ones(k), -query, PCA), -answer, atol=1e-6)
